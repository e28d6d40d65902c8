//! Names that mean something: protected, secret and steering files.

use std::path::{Path, PathBuf};

/// How files at a place stand.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::approval) enum Standing {
    /// Nothing special.
    Plain,
    /// Steers an agent, an editor, a shell or a build server; says what.
    Steering(&'static str),
    /// Holds secrets.
    Secret,
}

/// Entries read from a folder of secrets when looking for a second name.
const MAX_TWINS: usize = 64;

/// A name as the most forgiving file system would compare it: lower case, ignorable characters and
/// trailing dots and spaces gone.
fn fold(name: &str) -> String {
    let kept: String = name
        .chars()
        .filter(|c| {
            !matches!(c, '\u{ad}' | '\u{200b}'..='\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2060}'..='\u{206f}' | '\u{feff}')
        })
        .flat_map(char::to_lowercase)
        .collect();
    kept.trim_end_matches(['.', ' ']).to_owned()
}

fn folded(path: &Path) -> Vec<String> {
    path.components().map(|component| fold(&component.as_os_str().to_string_lossy())).collect()
}

fn is_git_dir(name: &str) -> bool {
    matches!(name, ".git" | "git~1")
}

/// True inside a `.turnd` folder.
pub(super) fn is_turnd(path: &Path) -> bool {
    folded(path).iter().any(|name| matches!(name.as_str(), ".turnd" | "turnd~1"))
}

/// True for `.git` itself and for what controls it.
pub(super) fn is_protected_git(path: &Path) -> bool {
    let names = folded(path);
    names.iter().position(|name| is_git_dir(name)).is_some_and(|at| {
        let rest = names.get(at + 1..).unwrap_or_default();
        rest.is_empty() || rest.iter().any(|name| is_control_name(name))
    })
}

/// True for a path below a git directory that controls what git runs.
pub(super) fn is_git_control(rest: &Path) -> bool {
    folded(rest).iter().any(|name| is_control_name(name))
}

fn is_control_name(name: &str) -> bool {
    matches!(name, "config" | "config.worktree" | "config.lock" | "hooks" | "commondir" | "gitdir")
}

/// Files and folders in the home folder that hold secrets, by their path below it.
const SECRET_IN_HOME: [&str; 24] = [
    ".ssh",
    ".aws",
    ".gnupg",
    ".netrc",
    ".git-credentials",
    ".config/gh",
    ".config/git/credentials",
    ".config/gcloud",
    ".azure",
    ".kube",
    ".docker/config.json",
    ".npmrc",
    ".pypirc",
    ".pgpass",
    ".my.cnf",
    ".cargo/credentials",
    ".cargo/credentials.toml",
    ".password-store",
    ".local/share/keyrings",
    ".mozilla",
    ".config/google-chrome",
    ".config/chromium",
    ".config/rclone",
    ".bash_history",
];

/// Names that hold secrets wherever they lie.
const SECRET_NAMES: [&str; 16] = [
    ".env",
    ".envrc",
    ".netrc",
    "_netrc",
    ".git-credentials",
    ".pgpass",
    ".pypirc",
    ".my.cnf",
    ".htpasswd",
    "id_rsa",
    "id_dsa",
    "id_ecdsa",
    "id_ed25519",
    ".dockercfg",
    ".ssh",
    ".gnupg",
];

/// True for a file below the home folder that holds secrets.
pub(super) fn is_secret_of_home(path: &Path, home: Option<&Path>) -> bool {
    home.and_then(|home| path.strip_prefix(home).ok()).is_some_and(|rest| {
        let rest = folded(rest).join("/");
        SECRET_IN_HOME
            .iter()
            .any(|secret| rest.strip_prefix(secret).is_some_and(|r| r.is_empty() || r.starts_with('/')))
    })
}

/// True when a component of the path is a name that holds secrets wherever it lies.
pub(super) fn has_secret_name(path: &Path) -> bool {
    folded(path).iter().any(|name| is_secret_name(name))
}

/// True for a (folded) name that holds secrets wherever it lies.
fn is_secret_name(name: &str) -> bool {
    if SECRET_NAMES.contains(&name) {
        return true;
    }
    name.strip_prefix(".env.").is_some_and(|rest| {
        !["example", "sample", "template", "dist", "defaults", "schema"].iter().any(|word| rest.contains(word))
    })
}

const STEERING_FOLDERS: [(&str, &str); 27] = [
    (".vscode", "the editor"),
    (".idea", "the editor"),
    (".zed", "the editor"),
    (".fleet", "the editor"),
    (".vs", "the editor"),
    (".devcontainer", "the editor"),
    (".cursor", "an agent"),
    (".claude", "an agent"),
    (".codex", "an agent"),
    (".gemini", "an agent"),
    (".windsurf", "an agent"),
    (".continue", "an agent"),
    (".agents", "an agent"),
    (".opencode", "an agent"),
    (".kiro", "an agent"),
    (".roo", "an agent"),
    (".cline", "an agent"),
    (".amazonq", "an agent"),
    (".junie", "an agent"),
    (".goose", "an agent"),
    (".hermes", "an agent"),
    (".github", "the build server or an agent"),
    (".gitlab", "the build server"),
    (".circleci", "the build server"),
    (".buildkite", "the build server"),
    (".husky", "git hooks"),
    (".cargo", "the build tool"),
];

const STEERING_FILES: [(&str, &str); 62] = [
    ("agents.md", "an agent"),
    ("agent.md", "an agent"),
    ("agents.override.md", "an agent"),
    ("claude.md", "an agent"),
    ("claude.local.md", "an agent"),
    ("gemini.md", "an agent"),
    ("codex.md", "an agent"),
    ("qwen.md", "an agent"),
    (".cursorrules", "an agent"),
    (".windsurfrules", "an agent"),
    (".clinerules", "an agent"),
    (".rules", "an agent"),
    (".roorules", "an agent"),
    (".goosehints", "an agent"),
    (".hermes.md", "an agent"),
    ("skill.md", "an agent"),
    ("copilot-instructions.md", "an agent"),
    (".mcp.json", "an agent"),
    ("mcp.json", "an agent"),
    (".aider.conf.yml", "an agent"),
    ("opencode.json", "an agent"),
    ("opencode.jsonc", "an agent"),
    (".gitlab-ci.yml", "the build server"),
    (".travis.yml", "the build server"),
    ("jenkinsfile", "the build server"),
    ("azure-pipelines.yml", "the build server"),
    ("appveyor.yml", "the build server"),
    (".drone.yml", "the build server"),
    ("bitbucket-pipelines.yml", "the build server"),
    (".woodpecker.yml", "the build server"),
    (".pre-commit-config.yaml", "git hooks"),
    ("lefthook.yml", "git hooks"),
    (".lefthook.yml", "git hooks"),
    (".gitmodules", "git"),
    (".gitattributes", "git"),
    (".gitconfig", "git"),
    (".ripgreprc", "a search tool"),
    (".npmrc", "a package manager"),
    (".yarnrc", "a package manager"),
    (".yarnrc.yml", "a package manager"),
    (".bashrc", "the shell"),
    (".bash_profile", "the shell"),
    (".bash_login", "the shell"),
    (".bash_logout", "the shell"),
    (".bash_aliases", "the shell"),
    (".profile", "the shell"),
    (".zshrc", "the shell"),
    (".zshenv", "the shell"),
    (".zprofile", "the shell"),
    (".zlogin", "the shell"),
    (".zlogout", "the shell"),
    ("config.fish", "the shell"),
    (".inputrc", "the shell"),
    (".vimrc", "the editor"),
    (".exrc", "the editor"),
    (".nvimrc", "the editor"),
    (".nvim.lua", "the editor"),
    (".emacs", "the editor"),
    (".dir-locals.el", "the editor"),
    (".tmux.conf", "the terminal"),
    (".mise.toml", "the shell"),
    ("mise.toml", "the shell"),
];

/// What a file steers, if it steers something.
pub(super) fn steering(path: &Path) -> Option<&'static str> {
    let names = folded(path);
    let last = names.last()?;
    let by_file = STEERING_FILES.iter().find(|(name, _)| name == last).map(|(_, what)| *what);
    by_file
        .or_else(|| STEERING_FOLDERS.iter().find(|(name, _)| names.iter().any(|n| n == name)).map(|(_, what)| *what))
        .or_else(|| names.iter().any(|name| is_git_dir(name)).then_some("git"))
}

/// Existing files that must not be reached under a second name.
pub(super) fn twins(roots: &[PathBuf], turnd_home: &Path, user_home: Option<&Path>) -> Vec<PathBuf> {
    let mut files: Vec<PathBuf> = roots
        .iter()
        .flat_map(|root| [".env", ".env.local", ".git/config", ".turnd/config.toml"].map(|name| root.join(name)))
        .collect();
    files.extend(["config.toml", "rules.toml", "sessions.db", "SOUL.md"].map(|name| turnd_home.join(name)));
    let folders = roots.iter().map(|root| root.join(".git/hooks")).chain(user_home.map(|home| home.join(".ssh")));
    for folder in folders {
        let entries = std::fs::read_dir(folder).into_iter().flatten().flatten();
        files.extend(entries.take(MAX_TWINS).map(|entry| entry.path()));
    }
    if let Some(home) = user_home {
        files.extend(SECRET_IN_HOME.map(|name| home.join(name)));
    }
    files
}
