//! What is known of a server before it is started.

use std::collections::BTreeMap;
use std::fmt;
use std::path::PathBuf;
use std::time::Duration;

use sha2::{Digest, Sha256};

use crate::approval::display;
use crate::config::McpServerConfig;
use crate::tool::output::one_line;

use super::{environment, name};

/// Seconds a call may take when nothing else is said; progress of the call begins them anew.
const DEFAULT_TIMEOUT_SECONDS: u64 = 60;

/// The longest time a call may be given.
const MAX_TIMEOUT_SECONDS: u64 = 24 * 3600;

/// Who wants a server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Origin {
    /// The user's own configuration.
    User,
    /// The client, with the session.
    Client,
    /// The workspace's own configuration, trusted by the user.
    Project,
}

/// Where a server is.
#[derive(Clone, PartialEq, Eq)]
pub enum Address {
    /// A program that speaks on its standard input and output.
    Stdio {
        /// The program.
        command: String,
        /// Its arguments.
        args: Vec<String>,
        /// Variables beside the cleaned environment of turnd.
        env: BTreeMap<String, String>,
        /// Where it runs; `None`: the session's folder.
        cwd: Option<PathBuf>,
    },
    /// Streamable HTTP.
    Http {
        /// The address.
        url: String,
        /// Sent with each request.
        headers: BTreeMap<String, String>,
    },
    /// The older HTTP with server-sent events.
    Sse {
        /// The address of the stream.
        url: String,
        /// Sent with each request.
        headers: BTreeMap<String, String>,
    },
}

/// Values of variables and headers are secrets, so they are not shown.
impl fmt::Debug for Address {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(&self.describe())
    }
}

impl Address {
    /// For a person, without the values of variables and headers.
    #[must_use]
    pub fn describe(&self) -> String {
        match self {
            Self::Stdio { command, args, .. } => [std::slice::from_ref(command), args].concat().join(" "),
            Self::Http { url, .. } | Self::Sse { url, .. } => url.split('?').next().unwrap_or_default().to_owned(),
        }
    }

    /// Values that must not be shown or logged: those of variables and headers, and what follows an address's `?`.
    pub(super) fn secrets(&self) -> impl Iterator<Item = &str> {
        let (values, query) = match self {
            Self::Stdio { env, .. } => (env.values(), None),
            Self::Http { url, headers } | Self::Sse { url, headers } => (headers.values(), url.split_once('?')),
        };
        values.map(String::as_str).chain(query.map(|(_, query)| query))
    }
}

/// A server to start.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ServerSpec {
    /// Its name for a person, one line without hidden characters.
    name: String,
    /// Its name as a part of its tools' names, unique in a session.
    slug: String,
    /// Where it is.
    address: Address,
    /// How long a call may take.
    timeout: Duration,
    /// The tools that are offered, by the server's own names; empty: all.
    tools: Vec<String>,
}

impl ServerSpec {
    /// The server of an entry of a configuration.
    ///
    /// # Errors
    /// In words for a notice: why it is not started.
    pub fn from_config(name: &str, config: &McpServerConfig, origin: Origin) -> Result<Self, String> {
        let refuse = |problem: &str| Err(format!("The MCP server {} is not started: {problem}", shown(name)));
        let address = match (&config.command, &config.url, config.kind.as_deref()) {
            (Some(command), None, None | Some("stdio")) => Address::Stdio {
                command: command.clone(),
                args: config.args.clone(),
                env: config.env.clone(),
                cwd: config.cwd.as_ref().map(PathBuf::from),
            },
            (None, Some(url), None | Some("http")) => {
                Address::Http { url: url.clone(), headers: config.headers.clone() }
            }
            (None, Some(url), Some("sse")) => Address::Sse { url: url.clone(), headers: config.headers.clone() },
            (_, _, Some(kind)) if !["stdio", "http", "sse"].contains(&kind) => {
                return refuse("its type must be stdio, http or sse");
            }
            _ => return refuse("give it either a `command` or a `url`, and a `type` that fits"),
        };
        let seconds = config.timeout_seconds.unwrap_or(DEFAULT_TIMEOUT_SECONDS);
        let spec = Self::new(name, address, origin)?;
        let timeout = Duration::from_secs(seconds.clamp(1, MAX_TIMEOUT_SECONDS));
        Ok(Self { timeout, tools: config.tools.clone(), ..spec })
    }

    /// A server at an address.
    ///
    /// # Errors
    /// In words for a notice: why it is not started.
    pub fn new(name: &str, address: Address, origin: Origin) -> Result<Self, String> {
        let refuse = |problem: String| Err(format!("The MCP server {} is not started: {problem}", shown(name)));
        if let Address::Stdio { command, env, .. } = &address {
            if command.trim().is_empty() {
                return refuse("no command is given".into());
            }
            if let Some(odd) = env.keys().find(|name| !environment::is_name(name)) {
                return refuse(format!("{:?} cannot be the name of a variable", one_line(odd, 40)));
            }
            let refused = environment::refused(env.keys().map(String::as_str));
            if let Some(refused) = refused.filter(|_| origin != Origin::User) {
                return refuse(format!(
                    "its environment sets {refused}, which can make other code run. Leave it out, or put the server \
                     under [mcp_servers] of your own configuration, where it may be set"
                ));
            }
        }
        if let Address::Http { url, .. } | Address::Sse { url, .. } = &address
            && !(url.starts_with("http://") || url.starts_with("https://"))
        {
            return refuse("its address must begin with http:// or https://".into());
        }
        Ok(Self {
            name: shown(name),
            slug: name::slug(name),
            address,
            timeout: Duration::from_secs(DEFAULT_TIMEOUT_SECONDS),
            tools: Vec::new(),
        })
    }

    /// Its name for a person.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Where it is.
    #[must_use]
    pub fn address(&self) -> &Address {
        &self.address
    }

    pub(super) fn slug(&self) -> &str {
        &self.slug
    }

    pub(super) fn timeout(&self) -> Duration {
        self.timeout
    }

    pub(super) fn offers(&self, tool: &str) -> bool {
        self.tools.is_empty() || self.tools.iter().any(|offered| offered == tool)
    }

    /// What makes it this server and no other of the same name, for what is approved.
    pub(super) fn identity(&self) -> Sha256 {
        let mut hash = Sha256::new();
        let mut field = |text: &str| {
            hash.update((text.len() as u64).to_be_bytes());
            hash.update(text);
        };
        match &self.address {
            Address::Stdio { command, args, .. } => {
                field("stdio");
                field(command);
                args.iter().for_each(|argument| field(argument));
            }
            Address::Http { url, .. } => field(url),
            Address::Sse { url, .. } => field(url),
        }
        hash
    }

    /// Those of `more` whose name nobody in `first` has, with parts of tool names that nobody in `first` has.
    pub(super) fn beside(first: &[Self], more: Vec<Self>) -> Vec<Self> {
        let mut all: Vec<Self> = Vec::new();
        for mut spec in more.into_iter().filter(|spec| first.iter().all(|other| other.name != spec.name)) {
            let (slug, mut number) = (spec.slug.clone(), 1_usize);
            while first.iter().chain(&all).any(|other| other.slug == spec.slug) {
                number += 1;
                spec.slug = format!("{slug}_{number}");
            }
            all.push(spec);
        }
        all
    }

    /// The servers of a session: those of `later` beside and over those of `first`. Two that would have the
    /// same name are told apart by a number.
    #[must_use]
    pub fn merged(first: Vec<Self>, later: Vec<Self>) -> Vec<Self> {
        let kept = first.into_iter().filter(|spec| later.iter().all(|other| other.name != spec.name));
        let mut all: Vec<Self> = Vec::new();
        for mut spec in kept.chain(later.clone()) {
            let (name, slug) = (spec.name.clone(), spec.slug.clone());
            let mut number = 1_usize;
            while all.iter().any(|other| other.slug == spec.slug) {
                number += 1;
                spec.slug = format!("{slug}_{number}");
                spec.name = format!("{name} ({number})");
            }
            all.push(spec);
        }
        all
    }
}

fn shown(name: &str) -> String {
    let name = display::escape(&one_line(name, 60));
    if name.trim().is_empty() { "(no name)".to_owned() } else { name }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn stdio(name: &str, env: &[&str]) -> Result<ServerSpec, String> {
        let env = env.iter().map(|name| ((*name).to_owned(), "secret value".to_owned())).collect();
        let address = Address::Stdio { command: "server".into(), args: vec!["x".into()], env, cwd: None };
        ServerSpec::new(name, address, Origin::Client)
    }

    #[test]
    fn a_variable_that_makes_other_code_run_is_the_users_alone_to_set() {
        let refused = stdio("evil", &["LD_PRELOAD"]).unwrap_err();
        assert!(refused.contains("evil") && refused.contains("LD_PRELOAD"), "{refused}");
        assert!(stdio("fine", &["GITHUB_TOKEN"]).is_ok());
        let config: McpServerConfig = toml::from_str("command = \"server\"\nenv = { PATH = \"/bin\" }").unwrap();
        assert!(ServerSpec::from_config("own", &config, Origin::User).is_ok());
        assert!(ServerSpec::from_config("theirs", &config, Origin::Project).is_err());
    }

    #[test]
    fn an_entry_that_makes_no_sense_says_what_to_do() {
        let check = |text: &str, problem: &str| {
            let config: McpServerConfig = toml::from_str(text).unwrap();
            let refused = ServerSpec::from_config("x", &config, Origin::User).unwrap_err();
            assert!(refused.contains(problem), "{refused}");
        };
        check("", "either a `command` or a `url`");
        check("command = \"a\"\nurl = \"http://b\"", "either a `command` or a `url`");
        check("command = \"a\"\ntype = \"http\"", "either a `command` or a `url`");
        check("url = \"http://b\"\ntype = \"websocket\"", "stdio, http or sse");
        check("url = \"file:///etc/passwd\"", "http:// or https://");
        check("command = \" \"", "no command");
    }

    #[test]
    fn the_clients_server_wins_over_the_configured_one_of_its_name() {
        let named = |name: &str| stdio(name, &[]).unwrap();
        let other = ServerSpec { timeout: Duration::from_secs(1), ..named("a") };
        let merged = ServerSpec::merged(vec![named("a"), named("b")], vec![other.clone(), named("c c"), named("c?c")]);
        let slugs: Vec<&str> = merged.iter().map(ServerSpec::slug).collect();
        assert_eq!(slugs, ["b", "a", "c_c", "c_c_2"]);
        assert!(merged.contains(&other));
    }

    #[test]
    fn no_secret_of_a_server_is_shown() {
        let spec = stdio("x", &["TOKEN"]).unwrap();
        assert!(!format!("{spec:?}").contains("secret value"));
        assert_eq!(spec.address().describe(), "server x");
    }
}
