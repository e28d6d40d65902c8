//! The floor: what no mode and no answer lets a command do.
//!
//! Twelve families of wrecking a machine (removing the root, system or home folders, making file
//! systems, writing raw devices, fork bombs, killing everything, halting the machine in its several
//! ways), and writing to the daemon's own folders and to what makes git run things.

use std::path::{Path, PathBuf};

use super::danger;
use super::place::{Spot, View, expand};
use super::program;
use super::shell::{Analysis, Command, RedirectKind, Word, WordKind, program_name};

/// Folders whose removal ends the system.
const SYSTEM_FOLDERS: [&str; 18] = [
    "/", "/bin", "/boot", "/dev", "/etc", "/home", "/lib", "/lib32", "/lib64", "/opt", "/proc", "/root", "/run",
    "/sbin", "/srv", "/sys", "/usr", "/var",
];

/// Why a command never runs, if so. `folders` are those it may be in.
pub(super) fn reason(analysis: &Analysis, places: &View<'_>, folders: &[PathBuf]) -> Option<String> {
    if analysis.is_fork_bomb {
        return Some("a function that starts itself twice without end".to_owned());
    }
    analysis.found.iter().find_map(|command| {
        let machine = Machine { command, places, folders };
        machine.wrecks().map(str::to_owned).or_else(|| machine.touches_protected())
    })
}

struct Machine<'a> {
    command: &'a Command,
    places: &'a View<'a>,
    folders: &'a [PathBuf],
}

impl Machine<'_> {
    fn name(&self) -> String {
        self.command.words.first().map(|word| program_name(&word.text)).unwrap_or_default()
    }

    fn texts(&self) -> Vec<&str> {
        self.command.arguments().iter().map(|word| word.text.as_str()).collect()
    }

    /// The families of wrecking the machine.
    fn wrecks(&self) -> Option<&'static str> {
        let name = self.name();
        let texts = self.texts();
        let has = |text: &str| texts.contains(&text);
        if self.command.redirects.iter().any(|r| r.kind == RedirectKind::Write && is_raw_device(&r.target.text)) {
            return Some("writes to a raw device");
        }
        match name.as_str() {
            "rm" | "unlink" | "shred" | "srm" => self.removes_system(),
            "find" | "gfind" if texts.iter().any(|t| *t == "-delete" || t.ends_with("rm")) => self.removes_system(),
            _ if name.starts_with("mkfs") || matches!(name.as_str(), "mke2fs" | "wipefs" | "blkdiscard" | "mkswap") => {
                Some("makes or wipes a file system")
            }
            "dd" if texts.iter().any(|t| t.strip_prefix("of=").is_some_and(is_raw_device)) => {
                Some("writes to a raw device")
            }
            "tee" | "cp" | "mv" | "install" | "cat" | "truncate"
                if texts.iter().any(|t| is_raw_device(t)) && name != "cat" =>
            {
                Some("writes to a raw device")
            }
            "kill" if kills_everything(&texts) => Some("kills every process"),
            "killall5" => Some("kills every process"),
            "pkill" | "killall" if has("-1") || texts.iter().any(|t| matches!(*t, "." | ".*" | "")) => {
                Some("kills every process")
            }
            "shutdown" | "reboot" | "halt" | "poweroff" => Some("halts the machine"),
            "init" | "telinit" if has("0") || has("6") => Some("halts the machine"),
            "systemctl" | "loginctl"
                if ["poweroff", "reboot", "halt", "kexec", "emergency", "rescue"].iter().any(|verb| has(verb)) =>
            {
                Some("halts the machine")
            }
            _ if danger::is_hidden_program(self.command, &["rm", "mkfs", "dd", "shutdown", "reboot"])
                && self.removes_system().is_some() =>
            {
                Some("may remove the root, a system folder or the home folder")
            }
            _ => None,
        }
    }

    fn removes_system(&self) -> Option<&'static str> {
        if self.texts().contains(&"--no-preserve-root") {
            return Some("removes the root folder");
        }
        let is_recursive = self.name() == "find"
            || self.texts().iter().any(|text| {
                *text == "--recursive"
                    || (text.starts_with('-') && !text.starts_with("--") && text.contains(['r', 'R']))
            });
        let hits =
            self.command.arguments().iter().filter(|word| !word.text.starts_with('-')).any(|word| self.is_system(word));
        (is_recursive && hits).then_some("removes the root, a system folder or the home folder")
    }

    /// True for the root, a system folder, the home folder, one above the session's folder, or all in one.
    fn is_system(&self, word: &Word) -> bool {
        let text = word.text.trim_end_matches('*');
        let is_everything = text.len() < word.text.len() && (text.is_empty() || text.ends_with('/'));
        if !is_everything && text.len() < word.text.len() {
            return false;
        }
        let text = if text.is_empty() { "." } else { text };
        self.folders.iter().any(|folder| {
            let spot = self.places.spot(folder, Path::new(text));
            [&spot.spelled, &spot.real].into_iter().any(|path| {
                let is_home = self.places.user_home().is_some_and(|home| home.starts_with(path));
                SYSTEM_FOLDERS.iter().any(|system| path == Path::new(system)) || is_home
            })
        })
    }

    /// Writing to the daemon's own folders or to what controls git.
    fn touches_protected(&self) -> Option<String> {
        let of = |what: &str, word: &str| {
            format!("`{}` belongs to {what}, which no tool may change", super::display::escape(word))
        };
        for redirect in self.command.redirects.iter().filter(|redirect| redirect.kind == RedirectKind::Write) {
            if let Some(what) = self.protects(&redirect.target) {
                return Some(of(what, &redirect.target.text));
            }
        }
        if program::assess(self.command).is_read_only {
            return None;
        }
        let name = self.name();
        for word in written_words(&name, self.command.arguments()) {
            if let Some(what) = self.protects(word).or_else(|| self.protects_within(&name, word)) {
                return Some(of(what, &word.text));
            }
            if matches!(name.as_str(), "rm" | "mv" | "rmdir" | "rename" | "shred") && self.holds_protected(word) {
                return Some(format!("`{}` holds files that no tool may change", super::display::escape(&word.text)));
            }
        }
        None
    }

    fn spots(&self, word: &Word, text: &str) -> Vec<Spot> {
        let mut spots = Vec::new();
        for folder in self.folders {
            let spot = self.places.spot(folder, Path::new(text));
            if word.kind == WordKind::Glob {
                let matches = expand(&spot.spelled).unwrap_or_default();
                spots.extend(matches.iter().map(|path| self.places.spot(folder, path)));
            }
            spots.push(spot);
        }
        spots
    }

    fn protects(&self, word: &Word) -> Option<&'static str> {
        let value = word.text.split_once('=').map_or(word.text.as_str(), |(_, value)| value);
        let value = value.strip_prefix('@').unwrap_or(value);
        if value.len() > 4096 || (value.starts_with('-') && !value.contains('/')) {
            return None;
        }
        self.spots(word, value).iter().find_map(|spot| self.places.protection(spot))
    }

    /// Protected names within code or a longer text.
    fn protects_within(&self, name: &str, word: &Word) -> Option<&'static str> {
        let folded = word.text.to_ascii_lowercase();
        let is_message = name == "git" || name == "gh";
        if is_message || !(folded.contains(".turnd") || folded.contains(".git")) {
            return None;
        }
        let pieces = word.text.split(|c: char| c.is_whitespace() || "'\"`(){}[]<>,;:=|&+".contains(c));
        pieces.filter(|piece| piece.contains('.')).take(256).find_map(|piece| {
            let piece = Word::literal(piece);
            if piece.text == word.text { None } else { self.protects(&piece) }
        })
    }

    fn holds_protected(&self, word: &Word) -> bool {
        !word.text.starts_with('-') && self.spots(word, &word.text).iter().any(|spot| self.places.holds_protected(spot))
    }
}

/// The words of a command that it may write to.
fn written_words<'a>(name: &str, arguments: &'a [Word]) -> Vec<&'a Word> {
    let subcommand = arguments.iter().map(|word| word.text.as_str()).find(|text| !text.starts_with('-'));
    match name {
        // These read all operands but the last.
        "cp" | "install" | "ln" | "rsync" | "scp"
            if !arguments.iter().any(|w| w.text.starts_with("-t") || w.text.starts_with("--target")) =>
        {
            arguments.last().into_iter().collect()
        }
        "git" if matches!(subcommand, Some("add" | "commit" | "tag" | "push" | "fetch" | "check-ignore")) => Vec::new(),
        "echo" | "printf" | "cd" | "pushd" => Vec::new(),
        _ => arguments.iter().collect(),
    }
}

fn is_raw_device(path: &str) -> bool {
    let Some(device) = path.strip_prefix("/dev/") else { return false };
    ["sd", "hd", "vd", "xvd", "nvme", "mmcblk", "disk", "rdisk", "dm-", "md", "loop", "mapper/", "mem", "kmem", "port"]
        .iter()
        .any(|kind| device.starts_with(kind))
}

/// `kill` of process -1, which is every one.
fn kills_everything(texts: &[&str]) -> bool {
    let mut rest = texts.iter().copied().peekable();
    let mut has_signal = false;
    while let Some(text) = rest.next() {
        match text {
            "-s" | "--signal" | "-n" => {
                rest.next();
                has_signal = true;
            }
            "--" => {}
            "-1" if has_signal || rest.peek().is_none() && texts.len() > 1 => return true,
            "-1" if texts.len() == 1 => return true,
            text if text.starts_with('-') => has_signal = true,
            _ => has_signal = true,
        }
    }
    false
}
