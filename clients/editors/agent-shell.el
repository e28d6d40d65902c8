;;; agent-shell.el --- turnd in Emacs with agent-shell -*- lexical-binding: t; -*-

;; `M-x turnd' opens a shell that talks to turnd in the current project.

(require 'acp)
(require 'agent-shell)

(defun turnd ()
  "Start a turnd session in an agent shell."
  (interactive)
  (agent-shell-start
   :config (agent-shell-make-agent-config
            :identifier 'turnd
            :mode-line-name "turnd"
            :buffer-name "turnd"
            :shell-prompt "turnd> "
            :shell-prompt-regexp "turnd> "
            :client-maker (lambda (buffer)
                            (acp-make-client :context-buffer buffer
                                             :command "turnd"
                                             :command-params '("acp"))))))

(provide 'turnd)
;;; agent-shell.el ends here
