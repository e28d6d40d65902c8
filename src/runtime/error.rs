//! Why the external runtime cannot run a turn, and what to do about it.

/// What went wrong between turnd and the runtime. Trouble of the runtime's own model is not among it: that is
/// a failed turn with a provider's error.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RuntimeError {
    /// There is no such program.
    #[error(
        "the runtime `{command}` is not installed: install it (for codex: npm install -g @openai/codex) or name it in \
         runtime_command"
    )]
    Missing {
        /// The command, as configured.
        command: String,
    },
    /// It could not be started.
    #[error("the runtime `{command}` cannot be started: {problem}")]
    Start {
        /// The command, as configured.
        command: String,
        /// What the system said.
        problem: String,
    },
    /// It ended by itself.
    #[error("the runtime `{command}` ended ({how}){said}; the next prompt starts it again")]
    Ended {
        /// The command, as configured.
        command: String,
        /// The exit status, in words.
        how: String,
        /// The end of its standard error, with something before it, or nothing.
        said: String,
    },
    /// It did not answer in time.
    #[error(
        "the runtime `{command}` did not answer {method} within {seconds} s; it was ended, the next prompt starts it again"
    )]
    Silent {
        /// The command, as configured.
        command: String,
        /// What it was asked.
        method: &'static str,
        /// How long it was waited for.
        seconds: u64,
    },
    /// What it says is not the protocol.
    #[error(
        "the runtime `{command}` does not speak the app-server protocol ({problem}): check runtime_command, or use a \
         version of codex that turnd knows (see README)"
    )]
    Protocol {
        /// The command, as configured.
        command: String,
        /// What was wrong.
        problem: String,
    },
    /// It refused a request.
    #[error("the runtime `{command}` refused {method}: {message}")]
    Refused {
        /// The command, as configured.
        command: String,
        /// What it was asked.
        method: &'static str,
        /// What it said.
        message: String,
    },
}
