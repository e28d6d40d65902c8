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
const SECRET_IN_HOME: &str = ".ssh .aws .gnupg .netrc .git-credentials .config/gh .config/git/credentials .config/gcloud .azure .kube \
    .docker/config.json .npmrc .pypirc .pgpass .my.cnf .cargo/credentials .cargo/credentials.toml .password-store \
    .local/share/keyrings .mozilla .thunderbird .config/google-chrome .config/chromium .config/BraveSoftware .config/microsoft-edge \
    .config/rclone .config/op .config/hub .config/glab-cli .config/doctl .config/containers/auth.json .config/github-copilot \
    .vault-token .terraform.d/credentials.tfrc.json .oci .fly .gem/credentials .composer/auth.json .config/composer/auth.json \
    .claude.json .claude/.credentials.json .codex/auth.json .gemini/oauth_creds.json .local/share/opencode/auth.json \
    .bash_history .zsh_history .local/share/fish/fish_history .python_history .node_repl_history .psql_history .mysql_history \
    .sqlite_history";

/// Files and folders of the system that hold secrets. A daemon of root can read them.
const SECRET_OF_SYSTEM: &str =
    "/etc/shadow /etc/shadow- /etc/gshadow /etc/gshadow- /etc/sudoers /etc/sudoers.d /etc/ssl/private";

/// Names that hold secrets wherever they lie.
const SECRET_NAMES: &str = ".env .envrc .netrc _netrc .git-credentials .pgpass .pypirc .my.cnf .htpasswd id_rsa id_dsa id_ecdsa id_ed25519 \
    .dockercfg .ssh .gnupg";

/// The files and folders of a home folder that hold secrets.
#[must_use]
pub fn secrets_of_home(home: &Path) -> Vec<PathBuf> {
    SECRET_IN_HOME.split_ascii_whitespace().map(|name| home.join(name)).collect()
}

/// The files and folders of the system that hold secrets.
#[must_use]
pub fn secrets_of_system() -> Vec<PathBuf> {
    SECRET_OF_SYSTEM.split_ascii_whitespace().map(PathBuf::from).collect()
}

/// True for a file of the system that holds secrets.
pub(super) fn is_secret_of_system(path: &Path) -> bool {
    SECRET_OF_SYSTEM.split_ascii_whitespace().any(|secret| path.starts_with(secret))
}

/// True for a file below the home folder that holds secrets.
pub(super) fn is_secret_of_home(path: &Path, home: Option<&Path>) -> bool {
    home.and_then(|home| path.strip_prefix(home).ok()).is_some_and(|rest| {
        let rest = folded(rest).join("/");
        SECRET_IN_HOME
            .split_ascii_whitespace()
            .map(str::to_ascii_lowercase)
            .any(|secret| rest.strip_prefix(secret.as_str()).is_some_and(|r| r.is_empty() || r.starts_with('/')))
    })
}

/// True when a component of the path is a name that holds secrets wherever it lies.
pub(super) fn has_secret_name(path: &Path) -> bool {
    folded(path).iter().any(|name| is_secret_name(name))
}

/// True for a (folded) name that holds secrets wherever it lies.
fn is_secret_name(name: &str) -> bool {
    if SECRET_NAMES.split_ascii_whitespace().any(|secret| secret == name) {
        return true;
    }
    if name.starts_with("ssh_host_") && name.ends_with("_key") {
        return true;
    }
    name.strip_prefix(".env.").is_some_and(|rest| {
        !["example", "sample", "template", "dist", "defaults", "schema"].iter().any(|word| rest.contains(word))
    })
}

const STEERING_FOLDERS: [(&str, &str); 9] = [
    ("the editor", ".vscode .idea .zed .fleet .vs .devcontainer .vim .emacs.d"),
    (
        "an agent",
        ".cursor .claude .codex .gemini .windsurf .continue .agents .opencode .kiro .roo .cline .amazonq \
            .junie .goose .hermes .qwen .trae .augment .openhands .factory .warp .crush .pi .lingma .aider .codeium \
            .tabnine .rovodev .vibe .kilocode .plandex .void .github-copilot .copilot",
    ),
    ("the build server or an agent", ".github"),
    ("the build server", ".gitlab .circleci .buildkite"),
    ("git hooks", ".husky .githooks"),
    ("the build tool", ".cargo .mvn"),
    ("a package manager", ".yarn .bundle"),
    ("the version control", ".hg .jj .svn"),
    ("the shell", ".direnv"),
];

const STEERING_FILES: [(&str, &str); 10] = [
    (
        "an agent",
        "agents.md agent.md agents.override.md claude.md claude.local.md gemini.md codex.md qwen.md \
            .cursorrules .windsurfrules .clinerules .rules .roorules .goosehints .hermes.md skill.md \
            copilot-instructions.md .mcp.json mcp.json .aider.conf.yml opencode.json opencode.jsonc warp.md crush.md \
            crush.json .crush.json replit.md .replit",
    ),
    (
        "the build server",
        ".gitlab-ci.yml .travis.yml jenkinsfile azure-pipelines.yml appveyor.yml .drone.yml \
            bitbucket-pipelines.yml .woodpecker.yml",
    ),
    ("git hooks", ".pre-commit-config.yaml lefthook.yml .lefthook.yml"),
    ("git", ".gitmodules .gitattributes .gitconfig"),
    ("a search tool", ".ripgreprc"),
    ("a package manager", ".npmrc .yarnrc .yarnrc.yml .pnpmfile.cjs .pnpmfile.mjs .bazelrc"),
    (
        "the shell",
        ".bashrc .bash_profile .bash_login .bash_logout .bash_aliases .profile .zshrc .zshenv .zprofile \
            .zlogin .zlogout config.fish .inputrc .mise.toml mise.toml .tool-versions",
    ),
    ("the editor", ".vimrc .exrc .nvimrc .nvim.lua .ideavimrc .emacs .dir-locals.el .lvimrc"),
    ("the terminal", ".tmux.conf .screenrc"),
    ("the debugger", ".gdbinit .lldbinit .pdbrc"),
];

/// What a file steers, if it steers something.
pub(super) fn steering(path: &Path) -> Option<&'static str> {
    let names = folded(path);
    let listed = |table: &[(&'static str, &str)], name: &str| {
        table.iter().find(|(_, listed)| listed.split_ascii_whitespace().any(|n| n == name)).map(|(what, _)| *what)
    };
    let last = names.last()?;
    let is_project = last.ends_with(".code-workspace") || last.ends_with(".sublime-project");
    listed(&STEERING_FILES, last)
        .or_else(|| is_project.then_some("the editor"))
        .or_else(|| names.iter().find_map(|name| listed(&STEERING_FOLDERS, name)))
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
        files.extend(secrets_of_home(home));
    }
    files
}
