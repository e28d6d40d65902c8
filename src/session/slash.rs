//! Slash commands: what every client can do with plain prompt text.

use super::port::CommandInfo;

/// A command and what follows it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Slash {
    /// Lists the commands.
    Help,
    /// Tells the model something in the running turn.
    Steer(String),
    /// Corrects the request of the running turn.
    Redirect(String),
    /// Cancels the running turn and all that wait.
    Stop,
    /// Runs the rest as a prompt of its own once the running turn has ended.
    Queue(String),
    /// Shows or changes the mode.
    Mode(Option<String>),
    /// Shows or changes the model.
    Model(Option<String>),
    /// Lists the tools.
    Tools,
    /// Shows how full the context is.
    Context,
    /// Shows the tokens used.
    Usage,
    /// Makes the history shorter; what is to be kept in particular.
    Compact(Option<String>),
}

/// The commands as they are announced.
pub(super) const COMMANDS: [CommandInfo; 11] = [
    info("help", "List the commands", None),
    info("steer", "Tell the agent something while it works", Some("what to tell it")),
    info("redirect", "Correct the request the agent is working on", Some("the correction")),
    info("stop", "Stop the running turn and those that wait", None),
    info("queue", "Run a prompt once the running turn has ended", Some("the prompt")),
    info("compact", "Make the conversation shorter", Some("what to keep in particular")),
    info("mode", "Show or change the approval mode", Some("ask | accept_edits | plan | auto | full_access")),
    info("model", "Show or change the model", Some("PROVIDER/MODEL")),
    info("tools", "List the tools the agent has", None),
    info("context", "Show how full the context is", None),
    info("usage", "Show the tokens used in this session", None),
];

const fn info(name: &'static str, description: &'static str, hint: Option<&'static str>) -> CommandInfo {
    CommandInfo { name, description, hint }
}

/// The command a prompt is, if it is one. A slash before anything else is ordinary text: paths begin
/// with one too.
pub(super) fn parse(text: &str) -> Option<Slash> {
    let rest = text.trim().strip_prefix('/')?;
    let (name, argument) = rest.split_once(char::is_whitespace).unwrap_or((rest, ""));
    let argument = argument.trim();
    let optional = || (!argument.is_empty()).then(|| argument.to_owned());
    Some(match name {
        "help" => Slash::Help,
        "steer" => Slash::Steer(argument.into()),
        "redirect" => Slash::Redirect(argument.into()),
        "stop" => Slash::Stop,
        "queue" => Slash::Queue(argument.into()),
        "mode" => Slash::Mode(optional()),
        "model" => Slash::Model(optional()),
        "tools" => Slash::Tools,
        "context" => Slash::Context,
        "usage" => Slash::Usage,
        "compact" => Slash::Compact(optional()),
        _ => return None,
    })
}

/// The answer to `/help`.
pub(super) fn help() -> String {
    let mut text = String::from("Commands:\n");
    for command in &COMMANDS {
        let hint = command.hint.map(|hint| format!(" <{hint}>")).unwrap_or_default();
        text.push_str(&format!("- `/{}{hint}`: {}\n", command.name, command.description));
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_known_names_are_commands() {
        assert_eq!(parse("/steer  go left \n"), Some(Slash::Steer("go left".into())));
        assert_eq!(parse("/mode"), Some(Slash::Mode(None)));
        assert_eq!(parse("/stop"), Some(Slash::Stop));
        for text in ["/etc/hosts is wrong", "/", "steer x", "/unknown", "/ help"] {
            assert_eq!(parse(text), None, "{text}");
        }
    }

    #[test]
    fn every_announced_command_is_obeyed() {
        for command in &COMMANDS {
            assert!(parse(&format!("/{}", command.name)).is_some(), "{}", command.name);
        }
    }
}
