-- Neovim, avante.nvim: `:AvanteAsk` then talks to turnd.
require("avante").setup({
  provider = "turnd",
  acp_providers = {
    ["turnd"] = {
      command = "turnd",
      args = { "acp" },
      env = {},
    },
  },
})
