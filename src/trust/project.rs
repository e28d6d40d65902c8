//! A workspace's own configuration, read and described; reading it makes nothing take effect.

use std::fs;
use std::path::{Path, PathBuf};

use rustix::fs::OFlags;

use crate::approval::display::escape;
use crate::config::{McpServerConfig, ProjectConfig};

use super::covered::{Covered, CoveredFile, Fingerprint, read_plain};

/// The folder and the file in it.
const FOLDER: &str = ".turnd";
const FILE: &str = "config.toml";

/// Bytes of the file that are read.
const MAX_CONFIG_BYTES: u64 = 256 << 10;

/// Words of commands that are looked up as files; a configuration with more is not read.
const MAX_WORDS: usize = 2_000;

/// Programs that run what a file of a fixed name says, and the names.
const IMPLIED: [(&str, &str); 5] = [
    ("make", "GNUmakefile makefile Makefile"),
    ("npm npx pnpm yarn bun", "package.json"),
    ("just", "justfile Justfile .justfile"),
    ("cargo", "Cargo.toml build.rs .cargo/config.toml"),
    ("rake", "Rakefile"),
];

/// Why a workspace's own configuration cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum ProjectError {
    /// It is a link, a pipe or the like.
    #[error("{} is not a plain file in a plain folder, so it is not used", .0.display())]
    NotPlain(PathBuf),
    /// Something could not be read.
    #[error("cannot read {}: {source}", path.display())]
    Io {
        /// The file.
        path: PathBuf,
        /// What went wrong.
        source: std::io::Error,
    },
    /// The text is wrong.
    #[error("cannot use {}: {problem}", path.display())]
    Content {
        /// The file.
        path: PathBuf,
        /// What is wrong, with line and column.
        problem: String,
    },
    /// More than anybody can vouch for.
    #[error("the workspace's own configuration is about more than {files} files or {bytes} bytes")]
    TooMuch {
        /// The most files.
        files: usize,
        /// The most bytes.
        bytes: u64,
    },
}

/// What a workspace would have take effect.
#[derive(Clone, Debug)]
pub struct Project {
    /// The workspace's real path.
    pub workspace: PathBuf,
    /// What is in the file.
    pub config: ProjectConfig,
    /// Keys of the file that a workspace may not set.
    pub ignored: Vec<String>,
    /// The files that the fingerprint covers.
    pub files: Vec<CoveredFile>,
    /// The hash over them.
    pub fingerprint: Fingerprint,
}

impl Project {
    /// Reads the configuration of the workspace at this folder. `None`: it has none. The user's own home
    /// folder of turnd is no workspace's configuration.
    ///
    /// # Errors
    /// [`ProjectError`]; nothing of the workspace counts then.
    pub fn read(workspace: &Path, turnd_home: &Path) -> Result<Option<Self>, ProjectError> {
        let failed = |path: &Path, source| ProjectError::Io { path: path.to_path_buf(), source };
        let workspace = fs::canonicalize(workspace).map_err(|source| failed(workspace, source))?;
        let folder = workspace.join(FOLDER);
        match fs::symlink_metadata(&folder) {
            Ok(metadata) if metadata.is_dir() => {}
            Ok(_) => return Err(ProjectError::NotPlain(folder)),
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(None),
            Err(source) => return Err(failed(&folder, source)),
        }
        if fs::canonicalize(turnd_home).is_ok_and(|home| home.starts_with(&folder) || folder.starts_with(home)) {
            return Ok(None);
        }
        let path = folder.join(FILE);
        let content = match read_plain(&path, MAX_CONFIG_BYTES, OFlags::NOFOLLOW) {
            Ok(Some(content)) => content,
            Ok(None) if fs::symlink_metadata(&path).is_err() => return Ok(None),
            Ok(None) => return Err(ProjectError::NotPlain(path)),
            Err(_) if fs::symlink_metadata(&path).is_ok_and(|metadata| metadata.is_symlink()) => {
                return Err(ProjectError::NotPlain(path));
            }
            Err(source) => return Err(failed(&path, source)),
        };
        let wrong = |problem: String| ProjectError::Content { path: path.clone(), problem };
        let text = std::str::from_utf8(&content).map_err(|error| wrong(error.to_string()))?;
        let (config, ignored) = ProjectConfig::parse(text).map_err(wrong)?;
        let mut covered = Covered::new(&workspace);
        covered.add_read(&path, &content)?;
        covered.add_folder(&folder)?;
        for path in named_files(&config, &workspace)? {
            covered.add(&path)?;
        }
        let (files, fingerprint) = covered.finish();
        Ok(Some(Self { workspace, config, ignored, files, fingerprint }))
    }

    /// Everything that would take effect, one line each, with nothing invisible left in it.
    #[must_use]
    pub fn description(&self) -> Vec<String> {
        let mut lines = Vec::new();
        for hook in &self.config.hooks {
            lines.push(format!("hook on {}: {}", hook.on.as_str(), command(&hook.command)));
        }
        for (name, server) in &self.config.mcp_servers {
            lines.push(format!("MCP server {}: {}", escape(name), server_line(server)));
        }
        for rule in &self.config.rules {
            lines.push(format!("rule: {}", escape(&rule.to_string())));
        }
        for file in &self.files {
            lines.push(format!("file: {} ({} bytes)", escape(&file.name.to_string_lossy()), file.bytes));
        }
        if !self.ignored.is_empty() {
            lines.push(format!("ignored, because a workspace may not set it: {}", escape(&self.ignored.join(", "))));
        }
        lines
    }

    /// What would take effect, counted.
    #[must_use]
    pub fn summary(&self) -> String {
        let count = |count: usize, one: &str| match count {
            0 => None,
            1 => Some(format!("1 {one}")),
            count => Some(format!("{count} {one}s")),
        };
        let config = &self.config;
        let counts = [
            count(config.hooks.len(), "hook"),
            count(config.mcp_servers.len(), "MCP server"),
            count(config.rules.len(), "rule"),
        ];
        counts.into_iter().flatten().collect::<Vec<_>>().join(", ")
    }
}

fn command(words: &[String]) -> String {
    words.iter().map(|word| escape(word)).collect::<Vec<_>>().join(" ")
}

fn server_line(server: &McpServerConfig) -> String {
    let mut words: Vec<String> = server.env.iter().map(|(name, value)| format!("{name}={value}")).collect();
    words.extend(server.command.clone());
    words.extend(server.args.iter().cloned());
    words.extend(server.url.clone());
    words.extend(server.headers.iter().map(|(name, value)| format!("{name}: {value}")));
    command(&words)
}

/// The workspace's files that its commands name: whole words, the pieces of words that a shell or an option would
/// take apart, and what a program looks up by itself.
fn named_files(config: &ProjectConfig, workspace: &Path) -> Result<Vec<PathBuf>, ProjectError> {
    let hooks = config.hooks.iter().flat_map(|hook| &hook.command);
    let servers = config.mcp_servers.values();
    let servers = servers.flat_map(|server| server.command.iter().chain(&server.args).chain(server.env.values()));
    let mut found = Vec::new();
    let mut looked_at = 0;
    for word in hooks.chain(servers) {
        let pieces = word.split(|c: char| c.is_whitespace() || ";|&()<>\"'`=,:{}$".contains(c));
        for piece in std::iter::once(word.as_str()).chain(pieces).filter(|piece| !piece.is_empty()) {
            looked_at += 1;
            if looked_at > MAX_WORDS {
                return Err(ProjectError::TooMuch { files: MAX_WORDS, bytes: MAX_CONFIG_BYTES });
            }
            for name in std::iter::once(piece).chain(implied(piece)) {
                let path = workspace.join(name);
                let Ok(real) = fs::canonicalize(&path) else { continue };
                if real.is_file() && (path.starts_with(workspace) || real.starts_with(workspace)) {
                    found.push(path);
                }
            }
        }
    }
    Ok(found)
}

fn implied(program: &str) -> impl Iterator<Item = &str> {
    let listed = IMPLIED.iter().filter(move |(programs, _)| programs.split(' ').any(|known| known == program));
    listed.flat_map(|(_, names)| names.split(' '))
}

#[cfg(test)]
mod tests {
    use super::*;

    struct World(tempfile::TempDir);

    impl World {
        fn new(config: &str) -> Self {
            let world = Self(tempfile::tempdir().unwrap());
            world.write("w/.turnd/config.toml", config);
            world.write("home/rules.toml", "");
            world
        }

        fn path(&self, name: &str) -> PathBuf {
            self.0.path().join(name)
        }

        fn write(&self, name: &str, content: &str) {
            fs::create_dir_all(self.path(name).parent().unwrap()).unwrap();
            fs::write(self.path(name), content).unwrap();
        }

        fn read(&self) -> Result<Option<Project>, ProjectError> {
            Project::read(&self.path("w"), &self.path("home"))
        }

        fn fingerprint(&self) -> Fingerprint {
            self.read().unwrap().unwrap().fingerprint
        }

        fn names(&self) -> Vec<String> {
            self.read().unwrap().unwrap().files.iter().map(|file| file.name.display().to_string()).collect()
        }
    }

    const HOOK: &str =
        "[[hooks]]\non = \"pre_tool_call\"\ncommand = [\"sh\", \"-c\", \"exec ./check.py --x=lib/a.py\"]\n";

    #[test]
    fn every_byte_that_would_take_effect_is_covered() {
        let world = World::new(HOOK);
        world.write("w/check.py", "a");
        world.write("w/lib/a.py", "a");
        world.write("w/.turnd/more/b.py", "a");
        world.write("w/other.py", "a");
        assert_eq!(world.names(), [".turnd/config.toml", ".turnd/more/b.py", "check.py", "lib/a.py"]);
        let before = world.fingerprint();
        assert_eq!(world.fingerprint(), before);
        world.write("w/other.py", "b");
        assert_eq!(world.fingerprint(), before);
        for name in ["w/check.py", "w/lib/a.py", "w/.turnd/more/b.py", "w/.turnd/config.toml"] {
            let kept = fs::read_to_string(world.path(name)).unwrap();
            world.write(name, &format!("{kept} "));
            assert_ne!(world.fingerprint(), before, "{name}");
            world.write(name, &kept);
        }
        fs::rename(world.path("w/.turnd/more/b.py"), world.path("w/.turnd/more/c.py")).unwrap();
        assert_ne!(world.fingerprint(), before);
    }

    #[test]
    fn a_file_that_a_program_looks_up_by_itself_is_covered() {
        let world = World::new("[[hooks]]\non = \"pre_verify\"\ncommand = [\"sh\", \"-c\", \"npm test && make\"]\n");
        world.write("w/package.json", "{}");
        world.write("w/Makefile", "all:");
        world.write("w/Cargo.toml", "");
        assert_eq!(world.names(), [".turnd/config.toml", "Makefile", "package.json"]);
    }

    #[test]
    fn a_script_that_appears_later_changes_the_fingerprint() {
        let world = World::new("[[hooks]]\non = \"pre_tool_call\"\ncommand = [\"check.py\"]\n");
        let before = world.fingerprint();
        world.write("w/check.py", "a");
        assert_ne!(world.fingerprint(), before);
    }

    #[test]
    fn links_are_followed_for_scripts_and_refused_for_the_configuration() {
        let world = World::new(HOOK);
        world.write("out/real.py", "a");
        std::os::unix::fs::symlink(world.path("out/real.py"), world.path("w/check.py")).unwrap();
        let before = world.fingerprint();
        world.write("out/real.py", "b");
        assert_ne!(world.fingerprint(), before);
        world.write("out/config.toml", HOOK);
        fs::remove_file(world.path("w/.turnd/config.toml")).unwrap();
        std::os::unix::fs::symlink(world.path("out/config.toml"), world.path("w/.turnd/config.toml")).unwrap();
        assert!(matches!(world.read(), Err(ProjectError::NotPlain(_))));
        fs::remove_dir_all(world.path("w/.turnd")).unwrap();
        std::os::unix::fs::symlink(world.path("out"), world.path("w/.turnd")).unwrap();
        assert!(matches!(world.read(), Err(ProjectError::NotPlain(_))));
    }

    #[test]
    fn what_is_no_configuration_is_none_and_what_cannot_be_read_is_an_error() {
        let world = World::new("");
        fs::remove_file(world.path("w/.turnd/config.toml")).unwrap();
        assert!(world.read().unwrap().is_none());
        fs::remove_dir(world.path("w/.turnd")).unwrap();
        assert!(world.read().unwrap().is_none());
        world.write("w/.turnd/config.toml", "rules = 5");
        assert!(matches!(world.read(), Err(ProjectError::Content { .. })));
        world.write("w/.turnd/config.toml", &"# filler\n".repeat(40_000));
        assert!(matches!(world.read(), Err(ProjectError::Io { .. })));
        fs::remove_file(world.path("w/.turnd/config.toml")).unwrap();
        rustix::fs::mkfifoat(rustix::fs::CWD, world.path("w/.turnd/config.toml"), 0o600.into()).unwrap();
        assert!(matches!(world.read(), Err(ProjectError::NotPlain(_))));
    }

    #[test]
    fn the_users_own_home_is_no_workspace() {
        let world = World::new(HOOK);
        assert!(Project::read(&world.path("w"), &world.path("w/.turnd")).unwrap().is_none());
    }

    #[test]
    fn the_description_names_everything_and_hides_nothing() {
        let world = World::new(
            "mode = \"full_access\"\n[[hooks]]\non = \"pre_tool_call\"\ncommand = [\"./a\\u202eb\"]\n\
             [mcp_servers.git]\ncommand = \"uvx\"\nargs = [\"x\"]\nenv = { NODE_OPTIONS = \"-r ./evil.js\" }\n\
             [[rules]]\neffect = \"allow\"\ntool = \"terminal\"\ncommand = \"make *\"\n",
        );
        let project = world.read().unwrap().unwrap();
        let lines = project.description();
        assert_eq!(
            lines[..3],
            [
                "hook on pre_tool_call: ./a\\u{202e}b",
                "MCP server git: NODE_OPTIONS=-r ./evil.js uvx x",
                "rule: allow terminal make *",
            ]
        );
        assert!(lines.last().unwrap().ends_with("mode"), "{lines:?}");
        assert_eq!(project.summary(), "1 hook, 1 MCP server, 1 rule");
    }
}
