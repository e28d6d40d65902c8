//! `turnd doctor`: what works, what does not, and what to do about it.

use std::io::Write;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use tokio_util::sync::CancellationToken;

use crate::app::exit_code;
use crate::approval::RememberedRules;
use crate::config::{Config, McpServerConfig, RuntimeCommand, SandboxMode};
use crate::mcp::{Address, IS_SUPPORTED, Origin, ServerSpec};
use crate::provider::credentials::stored_key;
use crate::provider::http::Http;
use crate::provider::redact::Redactor;
use crate::provider::{ApiMode, Endpoint};
use crate::sandbox::{Facts, SandboxPolicy};
use crate::session::objections::objections;
use crate::session::{SessionError, first_endpoint, sandbox_policy};
use crate::store::Store;
use crate::tool::GitCare;
use crate::tool::process::{CommandLine, Ended, Processes, find_program};

/// Runs every check and says how it went; fails when one of them does.
pub(super) async fn run(config: &Config, out: &mut (dyn Write + Send)) -> Result<u8, String> {
    let endpoint = first_endpoint(config);
    let runtime = endpoint.as_ref().ok().and_then(|endpoint| config.runtime_of(&endpoint.provider));
    let model_server = match runtime {
        Some(runtime) => check_runtime(&runtime),
        None => check_endpoint(endpoint.as_ref().ok()).await,
    };
    let mut checks = vec![check_config(config), check_model(&endpoint), model_server];
    checks.extend([check_keys(config), check_rules(config), check_store(config).await, check_sandbox(config).await]);
    checks.extend(mcp_servers(config));
    let mut code = exit_code::OK;
    for check in checks {
        let mark = if check.problem.is_some() { "FAIL" } else { "ok  " };
        let fact = Redactor::process().clean(&check.fact).into_owned();
        writeln!(out, "{mark} {}: {fact}", check.name).map_err(|error| error.to_string())?;
        if let Some(remedy) = check.problem {
            code = exit_code::FAILED;
            writeln!(out, "     {remedy}").map_err(|error| error.to_string())?;
        }
    }
    Ok(code)
}

/// One thing that was looked at.
struct Check {
    name: &'static str,
    fact: String,
    /// What to do, when it does not work.
    problem: Option<String>,
}

fn check_config(config: &Config) -> Check {
    let fact = format!("home {}", config.home.display());
    let found = match &config.problem {
        Some(problem) => vec![problem.clone()],
        None => [config.warnings.clone(), objections(config)].concat(),
    };
    Check { name: "configuration", fact, problem: (!found.is_empty()).then(|| found.join("\n     ")) }
}

/// The keys that `turnd login` stored.
fn check_keys(config: &Config) -> Check {
    let fact = config.home.join("credentials.toml").display().to_string();
    let problem = stored_key(&config.home, "").err();
    let problem = problem.map(|error| format!("{error}: mend it, or remove it and log in again"));
    Check { name: "stored keys", fact, problem }
}

/// The approvals that were given for good.
fn check_rules(config: &Config) -> Check {
    let (rules, problem) = RememberedRules::new(&config.home).list();
    let problem = problem.map(|problem| format!("{problem}; until then every call is asked about"));
    Check { name: "remembered rules", fact: rules.len().to_string(), problem }
}

fn check_model(endpoint: &Result<Endpoint, SessionError>) -> Check {
    match endpoint {
        Ok(endpoint) => {
            let place = if endpoint.base_url.is_empty() { "" } else { " at " };
            Check { name: "model", fact: format!("{}{place}{}", endpoint.id(), endpoint.base_url), problem: None }
        }
        Err(error) => Check { name: "model", fact: "none can be used".into(), problem: Some(error.to_string()) },
    }
}

/// Whether that program is there. It is not started.
fn check_runtime(runtime: &RuntimeCommand) -> Check {
    let program = runtime.command.first().map(String::as_str).unwrap_or_default();
    let command = runtime.command.join(" ");
    match find_program(program, Path::new("/"), &[]) {
        Ok(path) => Check { name: "runtime", fact: format!("`{command}` is {}", path.display()), problem: None },
        Err(_) => {
            let remedy = "install it (for codex: npm install -g @openai/codex) or name it in runtime_command";
            Check { name: "runtime", fact: format!("`{command}` is not installed"), problem: Some(remedy.into()) }
        }
    }
}

/// Whether the model's server answers at all. Many have no list of models, so any answer will do.
async fn check_endpoint(endpoint: Option<&Endpoint>) -> Check {
    let name = "model server";
    let Some(endpoint) = endpoint else {
        return Check { name, fact: "not asked: there is no model".into(), problem: None };
    };
    if endpoint.mode == ApiMode::Scripted {
        return Check { name, fact: "a script, no server".into(), problem: None };
    }
    match endpoint.list_models(&Http::default()).await {
        Ok(models) => Check { name, fact: format!("answers and lists {} models", models.len()), problem: None },
        Err(error) if matches!(error.status, Some(404 | 405 | 501)) => {
            Check { name, fact: "answers; it has no list of models".into(), problem: None }
        }
        Err(error) => Check { name, fact: "cannot be used".into(), problem: Some(error.to_string()) },
    }
}

/// Whether commands can be walled in: one is. Without the wall they are asked for instead, so it is no failure.
async fn check_sandbox(config: &Config) -> Check {
    let name = "sandbox";
    let facts = Facts::here();
    if config.sandbox.mode == SandboxMode::Off {
        return Check {
            name,
            fact: "off, as configured; the mode auto asks before each command".into(),
            problem: None,
        };
    }
    let cwd = std::env::current_dir().unwrap_or_else(|_| "/".into());
    let policy = sandbox_policy(config, &cwd, &[]);
    let mut missing = facts.missing();
    missing.extend(policy.objection());
    let tried = if facts.can_contain() { try_command(policy, cwd).await } else { Err("not tried".to_owned()) };
    let outcome = match &tried {
        Ok(taken) => format!("a contained command runs, in {:.1} ms", taken.as_secs_f64() * 1000.0),
        Err(problem) => format!("commands cannot be contained, so the mode auto asks before each one: {problem}"),
    };
    let remedy = match (tried.is_ok(), config.sandbox.allow_degraded) {
        (false, false) if facts.can_restrict() => {
            vec!["allow user name spaces, or set sandbox.allow_degraded = true to do without them".to_owned()]
        }
        _ => Vec::new(),
    };
    let fact = [vec![facts.describe(), outcome], missing, remedy].concat().join("; ");
    Check { name, fact, problem: None }
}

/// Runs `true` behind the wall and says how long it took.
async fn try_command(policy: SandboxPolicy, cwd: std::path::PathBuf) -> Result<Duration, String> {
    let line = CommandLine {
        command: "true".into(),
        cwd,
        timeout: Duration::from_secs(10),
        secret_env: Arc::from([]),
        keep_bytes: 4096,
        sandbox: Some(Arc::new(policy)),
        spill: None,
        workspace: Arc::from([]),
        git: GitCare::AsConfigured,
    };
    let processes = Processes::default();
    let began = Instant::now();
    let finished = processes.run(&line, &CancellationToken::new(), |_| {}).await;
    let taken = began.elapsed();
    processes.shut_down().await;
    match finished {
        Ok(finished) if finished.ended == Ended::Exited(0) => Ok(taken),
        Ok(finished) => Err(finished.output.text().trim().to_owned()),
        Err(error) => Err(error.to_string()),
    }
}

/// One check per configured MCP server: whether its entry makes sense and its program is there. None is started:
/// that would run code only to look.
fn mcp_servers(config: &Config) -> Vec<Check> {
    let cwd = std::env::current_dir().unwrap_or_default();
    let check = |(name, entry): (&String, &McpServerConfig)| {
        let spec = match ServerSpec::from_config(name, entry, Origin::User) {
            Ok(spec) => spec,
            Err(problem) => return Check { name: "MCP server", fact: name.clone(), problem: Some(problem) },
        };
        let fact = format!("{}, {}", spec.name(), spec.address().describe());
        let problem = match spec.address() {
            _ if entry.disabled => {
                return Check { name: "MCP server", fact: format!("{fact} (disabled)"), problem: None };
            }
            _ if !IS_SUPPORTED => Some("this turnd was built without MCP".into()),
            Address::Stdio { command, cwd: own, .. } => {
                let cwd = own.as_ref().map_or_else(|| cwd.clone(), |own| cwd.join(own));
                find_program(command, &cwd, std::slice::from_ref(&cwd))
                    .err()
                    .map(|problem| format!("{problem}; install it, or give its full path"))
            }
            Address::Http { .. } | Address::Sse { .. } => None,
        };
        Check { name: "MCP server", fact, problem }
    };
    config.mcp_servers.iter().map(check).collect()
}

async fn check_store(config: &Config) -> Check {
    let store = Store::open(&config.home);
    let ready = store.ready().await;
    let problem = ready.err().map(|error| error.to_string()).or_else(|| store.notice());
    drop(store.close().await);
    Check { name: "store", fact: config.home.join("sessions.db").display().to_string(), problem }
}
