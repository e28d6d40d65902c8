//! Families of commands that are asked in every mode but full access, however they are spelled.

use std::path::{Path, PathBuf};

use super::place::{Site, View};
use super::program::Objection;
use super::shell::{Command, RedirectKind, SHELLS, WordKind, interpreter, program_name};

/// What is dangerous about a command. Each objection names the word that makes it so.
pub(super) fn objections(command: &Command, places: &View<'_>, folders: &[PathBuf]) -> Vec<Objection> {
    let Some(program) = command.words.first() else { return Vec::new() };
    let name = program_name(&program.text);
    let arguments: Vec<&str> = command.arguments().iter().map(|word| word.text.as_str()).collect();
    let danger = Danger { name: &name, arguments: &arguments, command };
    let mut out = Vec::new();
    out.extend(danger.deletes());
    out.extend(danger.permissions());
    out.extend(danger.disks_and_databases());
    out.extend(danger.services_and_processes());
    out.extend(danger.foreign_code());
    out.extend(danger.git());
    out.extend(danger.other_users());
    out.extend(danger.system_files(places, folders));
    out
}

/// True when the program is only named through a pattern or a variable that could stand for one of these.
pub(super) fn is_hidden_program(command: &Command, names: &[&str]) -> bool {
    let Some(program) = command.words.first() else { return false };
    match program.kind {
        WordKind::Literal => false,
        WordKind::Unknown => true,
        WordKind::Glob => {
            let pattern = program.text.rsplit('/').next().unwrap_or_default();
            globset::Glob::new(pattern).is_ok_and(|glob| {
                let matcher = glob.compile_matcher();
                names.iter().any(|name| matcher.is_match(name))
            })
        }
    }
}

struct Danger<'a> {
    name: &'a str,
    arguments: &'a [&'a str],
    command: &'a Command,
}

impl Danger<'_> {
    fn has(&self, word: &str) -> bool {
        self.arguments.contains(&word)
    }

    /// The first argument that is one of these.
    fn first_of(&self, words: &[&str]) -> Option<&str> {
        self.arguments.iter().copied().find(|argument| words.contains(argument))
    }

    /// The first short-option word that holds one of these letters, or long option of these names.
    fn option(&self, letters: &[char], long: &[&str]) -> Option<&str> {
        self.arguments.iter().copied().find(|argument| match argument.strip_prefix("--") {
            Some(name) => long.contains(&name.split('=').next().unwrap_or_default()),
            None => argument.len() > 1 && argument.starts_with('-') && argument.contains(letters),
        })
    }

    fn deletes(&self) -> Option<Objection> {
        self.deletes_itself().or_else(|| self.deletes_through_wrapper())
    }

    fn deletes_itself(&self) -> Option<Objection> {
        match self.name {
            "rm" => {
                let word = self.option(&['r', 'R'], &["recursive"])?;
                Some(Objection::new("`rm` deletes folders with all in them", word))
            }
            "find" | "gfind" | "bfs" => {
                Some(Objection::new("`find` deletes what it finds", self.first_of(&["-delete"])?))
            }
            "shred" | "srm" | "wipe" => Some(Objection::new(format!("`{}` destroys files", self.name), self.name)),
            "truncate" => Some(Objection::new("`truncate` cuts files off", self.name)),
            "rsync" => Some(Objection::new(
                "`rsync` deletes files",
                self.arguments.iter().find(|a| a.starts_with("--del"))?.to_owned(),
            )),
            _ => None,
        }
    }

    fn deletes_through_wrapper(&self) -> Option<Objection> {
        let many =
            self.command.wrappers.iter().any(|wrapper| matches!(wrapper.as_str(), "xargs" | "find" | "parallel"));
        (many && matches!(self.name, "rm" | "unlink" | "shred"))
            .then(|| Objection::new("deletes every file of a list", self.name))
    }

    fn permissions(&self) -> Option<Objection> {
        let recursive = || self.option(&['R'], &["recursive"]);
        match self.name {
            "chmod" => {
                let wide = self.arguments.iter().copied().find(|mode| {
                    let digits = mode.trim_start_matches('0');
                    let world = digits.len() == 3 && digits.ends_with(['2', '3', '6', '7']);
                    let special = digits.len() == 4 && digits.starts_with(['2', '4', '6', '7']);
                    let is_number = !digits.is_empty() && digits.chars().all(|c| c.is_digit(8));
                    (is_number && (world || special))
                        || ["o+w", "a+w", "+s", "u+s", "g+s", "o=rw", "a=rw", "+w,o"]
                            .iter()
                            .any(|m| mode.starts_with(m))
                });
                let word = wide.or_else(recursive)?;
                Some(Objection::new("`chmod` opens files to others or changes whole folders", word))
            }
            "chown" | "chgrp" | "setfacl" | "chattr" | "setcap" => {
                Some(Objection::new(format!("`{}` changes who owns or may use files", self.name), self.name))
            }
            _ => None,
        }
    }

    fn disks_and_databases(&self) -> Option<Objection> {
        match self.name {
            "dd" => Some(Objection::new("`dd` copies raw data", self.name)),
            "fdisk" | "parted" | "sfdisk" | "gdisk" | "sgdisk" | "cryptsetup" | "lvremove" | "vgremove"
            | "pvremove" | "mount" | "umount" | "losetup" | "swapoff" => {
                Some(Objection::new(format!("`{}` changes disks or mounts", self.name), self.name))
            }
            "psql" | "mysql" | "mariadb" | "sqlite3" | "sqlcmd" | "duckdb" | "clickhouse-client" | "mongosh"
            | "mongo" | "redis-cli" => {
                let fed = self.command.redirects.iter().map(|redirect| redirect.target.text.as_str());
                let text = self.arguments.iter().copied().chain(fed).find(|text| destroys_data(text))?;
                Some(Objection::new("deletes data from a database", text))
            }
            "dropdb" => Some(Objection::new("deletes a database", self.name)),
            _ => None,
        }
    }

    fn services_and_processes(&self) -> Option<Objection> {
        match self.name {
            "systemctl" | "service" | "rc-service" | "launchctl" => {
                let verb =
                    self.first_of(&["stop", "disable", "mask", "restart", "kill", "unload", "bootout", "isolate"])?;
                Some(Objection::new("stops or changes a service", verb))
            }
            "pkill" | "killall" | "xkill" | "fuser" => {
                Some(Objection::new(format!("`{}` ends processes by name", self.name), self.name))
            }
            "kill" => {
                let word = self
                    .arguments
                    .iter()
                    .copied()
                    .find(|a| matches!(*a, "-9" | "-KILL" | "-SIGKILL" | "KILL" | "9"))?;
                Some(Objection::new("`kill` ends a process by force", word))
            }
            "docker" | "podman" | "nerdctl" => {
                let verb = self.first_of(&["rm", "rmi", "prune", "kill", "stop", "restart", "down", "--privileged"])?;
                Some(Objection::new("stops or removes containers", verb))
            }
            "kubectl" | "helm" => Some(Objection::new(
                "changes a cluster",
                self.first_of(&["delete", "drain", "uninstall", "apply", "replace"])?,
            )),
            "terraform" | "tofu" | "pulumi" => {
                Some(Objection::new("changes infrastructure", self.first_of(&["apply", "destroy", "up"])?))
            }
            "crontab" if !self.has("-l") => Some(Objection::new("changes scheduled jobs", self.name)),
            "at" | "batch" => Some(Objection::new("schedules a job", self.name)),
            "iptables" | "nft" | "ufw" | "sysctl" | "modprobe" | "insmod" | "rmmod" | "swapon" | "hostnamectl"
            | "timedatectl" => Some(Objection::new(format!("`{}` changes the system", self.name), self.name)),
            "turnd" => Some(Objection::new("drives this daemon itself", self.name)),
            _ => None,
        }
    }

    fn foreign_code(&self) -> Option<Objection> {
        match self.name {
            name if SHELLS.contains(&name) || interpreter(name).is_some() => self.unknown_code(),
            "eval" => Some(Objection::new("`eval` runs text as commands", self.name)),
            "source" | "." => {
                Some(Objection::new("runs a script in this shell", *self.arguments.first().unwrap_or(&"")))
            }
            "nc" | "ncat" | "netcat" | "socat" => {
                Some(Objection::new(format!("`{}` opens raw connections", self.name), self.name))
            }
            "powershell" | "pwsh" => {
                let word = self.arguments.iter().copied().find(|a| a.to_ascii_lowercase().starts_with("-e"))?;
                Some(Objection::new("runs encoded PowerShell", word))
            }
            _ => self.raw_socket(),
        }
    }

    /// A script or code that is only known when it runs: downloaded, decoded, computed.
    fn unknown_code(&self) -> Option<Objection> {
        let mut words = self.command.arguments().iter().filter(|word| !word.text.starts_with('-'));
        let is_unknown = words.next().is_some_and(|word| word.kind == WordKind::Unknown);
        is_unknown.then(|| Objection::new(format!("`{}` runs code that is only known when it runs", self.name), ""))
    }

    fn raw_socket(&self) -> Option<Objection> {
        let is_socket = |text: &str| text.starts_with("/dev/tcp/") || text.starts_with("/dev/udp/");
        let target =
            self.command.redirects.iter().map(|redirect| redirect.target.text.as_str()).find(|text| is_socket(text))?;
        Some(Objection::new("opens a raw connection", target))
    }

    fn git(&self) -> Option<Objection> {
        if self.name != "git" {
            return None;
        }
        if let Some(setting) = self.git_settings().find(|setting| is_running_setting(setting)) {
            return Some(Objection::new(format!("`{setting}` makes git run something"), setting));
        }
        let subcommand = self.arguments.iter().copied().find(|argument| !argument.starts_with('-'))?;
        let word = match subcommand {
            "reset" => self.first_of(&["--hard", "--merge"]),
            "push" => self.first_of(&["-f", "--force", "--delete", "-d", "--mirror", "--prune"]).or_else(|| {
                self.arguments
                    .iter()
                    .copied()
                    .find(|a| a.starts_with('+') || a.starts_with("--force") || a.starts_with(':'))
            }),
            "clean" => self.option(&['f'], &["force"]),
            "branch" => self.option(&['D'], &["force"]),
            "checkout" | "restore" => self.first_of(&[".", "--", "-f", "--force"]),
            "stash" => self.first_of(&["drop", "clear"]),
            "filter-branch" | "filter-repo" | "update-ref" | "replace" => Some(subcommand),
            "reflog" => self.first_of(&["expire", "delete"]),
            "gc" => self.arguments.iter().copied().find(|a| a.starts_with("--prune")),
            "worktree" => self.first_of(&["remove", "prune"]),
            "tag" => self.option(&['d', 'f'], &["delete", "force"]),
            "remote" => self.first_of(&["remove", "rm", "set-url"]),
            "submodule" => self.first_of(&["foreach"]),
            "bisect" | "rebase" if self.has("run") || self.has("--exec") || self.has("-x") => Some(subcommand),
            "init" | "clone" => self
                .arguments
                .iter()
                .copied()
                .find(|a| a.starts_with("--template") || a.starts_with("ext::") || *a == "-u"),
            _ => None,
        }?;
        Some(Objection::new(format!("`git {subcommand}` can lose work or run programs"), word))
    }

    /// What stands where git takes a setting: behind its `-c`, and with `git config`.
    fn git_settings(&self) -> impl Iterator<Item = &str> {
        let subcommand = self.arguments.iter().position(|argument| matches!(*argument, "config" | "clone" | "init"));
        let before = |at: usize| at.checked_sub(1).and_then(|before| self.arguments.get(before)).copied();
        self.arguments.iter().enumerate().filter_map(move |(at, argument)| {
            let glued = ["--config=", "--config-env=", "-c"].iter().find_map(|option| argument.strip_prefix(option));
            let is_of_option = matches!(before(at), Some("-c" | "--config" | "--config-env"));
            let is_of_subcommand = subcommand.is_some_and(|subcommand| subcommand < at);
            glued.or_else(|| (is_of_option || is_of_subcommand).then_some(*argument))
        })
    }

    fn other_users(&self) -> Option<Objection> {
        match self.name {
            "sudo" | "doas" | "su" | "pkexec" | "runuser" | "gosu" => {
                Some(Objection::new(format!("`{}` runs as another user", self.name), self.name))
            }
            "passwd" | "chpasswd" | "useradd" | "userdel" | "usermod" | "groupadd" | "visudo" => {
                Some(Objection::new(format!("`{}` changes accounts", self.name), self.name))
            }
            _ => None,
        }
    }

    /// Writing to the system's folders, with a redirection or a program that copies.
    fn system_files(&self, places: &View<'_>, folders: &[PathBuf]) -> Option<Objection> {
        let redirected =
            self.command.redirects.iter().filter(|r| r.kind == RedirectKind::Write).map(|r| r.target.text.as_str());
        let written: Vec<&str> = match self.name {
            "tee" | "touch" | "mkdir" | "truncate" | "rm" | "ln" | "mv" | "patch" => {
                redirected.chain(self.arguments.iter().copied().filter(|a| !a.starts_with('-'))).collect()
            }
            "cp" | "install" | "rsync" => redirected.chain(self.arguments.last().copied()).collect(),
            "sed" if self.option(&['i'], &["in-place"]).is_some() => {
                redirected.chain(self.arguments.last().copied()).collect()
            }
            _ => redirected.collect(),
        };
        written.into_iter().find_map(|text| {
            let is_system = folders.iter().any(|folder| {
                let spot = places.spot(folder, Path::new(text));
                let is_system = ["/etc", "/usr", "/bin", "/sbin", "/lib", "/boot", "/sys", "/proc"]
                    .iter()
                    .any(|s| spot.real.starts_with(s));
                is_system && places.site(&spot) != Site::Inside
            });
            is_system.then(|| Objection::new(format!("writes to the system: {text}"), text))
        })
    }
}

/// A setting whose value git runs, as `git config KEY` or `-c KEY=VALUE` name it.
fn is_running_setting(argument: &str) -> bool {
    const RUNNING: [&str; 42] = [
        "core.hookspath",
        "core.fsmonitor",
        "core.sshcommand",
        "core.editor",
        "core.pager",
        "core.askpass",
        "core.gitproxy",
        "core.worktree",
        "core.attributesfile",
        "core.alternaterefscommand",
        "alias.",
        "filter.",
        "diff.external",
        "difftool.",
        "merge.",
        "mergetool.",
        "credential.",
        "include.",
        "includeif.",
        "gpg.",
        "sequence.editor",
        "uploadpack.",
        "protocol.ext",
        "init.templatedir",
        "protocol.allow",
        "pager.",
        "interactive.difffilter",
        "man.",
        "browser.",
        "web.browser",
        "guitool.",
        "tar.",
        "trailer.",
        "submodule.",
        "sendemail.",
        "imap.",
        "lfs.",
        "pull.twohead",
        "pull.octopus",
        "url.",
        "instaweb.",
        "safe.",
    ];
    let key = argument.split('=').next().unwrap_or_default().to_ascii_lowercase();
    let is_pager = matches!(argument.split_once('='), Some(("core.pager", "cat")))
        || (key.starts_with("pager.") && argument.ends_with("=false"));
    let is_remote =
        key.starts_with("remote.") && ([".uploadpack", ".receivepack", ".vcs"].iter().any(|end| key.ends_with(end)));
    let is_driver = key.starts_with("diff.") && (key.ends_with(".textconv") || key.ends_with(".command"));
    !is_pager && (is_driver || is_remote || RUNNING.iter().any(|name| key.starts_with(name)))
}

/// SQL (or a like command) that drops or deletes without saying which rows.
fn destroys_data(text: &str) -> bool {
    let words: Vec<String> = text.split(|c: char| c.is_whitespace() || c == ';').map(str::to_ascii_lowercase).collect();
    let text = words.join(" ");
    text.contains("drop table")
        || text.contains("drop database")
        || text.contains("drop schema")
        || words.first().is_some_and(|word| word == "truncate" || word == "flushall" || word == "flushdb")
        || text.contains(" truncate ")
        || text.contains("dropdatabase")
        || (text.contains("delete from") && !text.contains(" where "))
}
