-- Neovim, codecompanion.nvim: `:CodeCompanionChat` then talks to turnd.
require("codecompanion").setup({
  adapters = {
    acp = {
      turnd = function()
        -- Any ACP adapter that only starts a command can be extended.
        return require("codecompanion.adapters").extend("opencode", {
          name = "turnd",
          formatted_name = "turnd",
          commands = { default = { "turnd", "acp" } },
        })
      end,
    },
  },
  interactions = { chat = { adapter = "turnd" } },
})
