//! Wrappers: programs whose arguments are another command.

use super::runner;
use super::word::{Command, Word, WordKind};

/// What a command runs in turn.
pub(super) enum Inner {
    /// A command of these words.
    Command(Command),
    /// Text for a shell.
    Text(String),
}

/// The last component of a program's path, in lower case, as deny and danger checks compare it.
pub(in crate::approval) fn program_name(program: &str) -> String {
    program.rsplit('/').next().unwrap_or(program).to_ascii_lowercase()
}

/// How a wrapper's own arguments end.
struct Wrapper {
    name: &'static str,
    /// Options that take the next word.
    with_value: &'static [&'static str],
    /// Words of its own before the command, after the options.
    own_words: usize,
}

const fn wrapper(name: &'static str, with_value: &'static [&'static str], own_words: usize) -> Wrapper {
    Wrapper { name, with_value, own_words }
}

const WRAPPERS: [Wrapper; 39] = [
    wrapper("env", &["-u", "--unset", "-C", "--chdir", "-S", "--split-string"], 0),
    wrapper("nice", &["-n", "--adjustment"], 0),
    wrapper("ionice", &["-c", "-n", "-t", "--class", "--classdata"], 0),
    wrapper("timeout", &["-s", "--signal", "-k", "--kill-after"], 1),
    wrapper("nohup", &[], 0),
    wrapper("setsid", &[], 0),
    wrapper("stdbuf", &["-i", "-o", "-e", "--input", "--output", "--error"], 0),
    wrapper("command", &[], 0),
    wrapper("builtin", &[], 0),
    wrapper("exec", &["-a"], 0),
    wrapper("time", &["-f", "-o", "--format", "--output"], 0),
    wrapper(
        "sudo",
        &["-u", "-g", "-h", "-p", "-C", "-r", "-t", "-T", "-U", "-D", "-R", "--user", "--group", "--chdir"],
        0,
    ),
    wrapper("doas", &["-u", "-C"], 0),
    wrapper("xargs", &["-I", "-n", "-P", "-d", "-a", "-E", "-L", "-s", "--max-args", "--max-procs", "--delimiter"], 0),
    wrapper("watch", &["-n", "--interval"], 0),
    wrapper("strace", &["-e", "-o", "-p", "-s", "-E", "-u"], 0),
    wrapper("ltrace", &["-e", "-o", "-p", "-s", "-u"], 0),
    wrapper("chroot", &["--userspec", "--groups"], 1),
    wrapper("unshare", &[], 0),
    wrapper("nsenter", &["-t", "--target"], 0),
    wrapper("flock", &["-w", "-E", "--timeout"], 1),
    wrapper("taskset", &[], 1),
    wrapper("numactl", &["-N", "-m", "-C"], 0),
    wrapper("chrt", &[], 1),
    wrapper("prlimit", &[], 0),
    wrapper("systemd-run", &["-p", "--unit", "-u", "-M", "--property"], 0),
    wrapper("setpriv", &["--reuid", "--regid"], 0),
    wrapper("busybox", &[], 0),
    wrapper("toybox", &[], 0),
    wrapper("caffeinate", &["-t", "-w"], 0),
    wrapper("unbuffer", &[], 0),
    wrapper("rlwrap", &[], 0),
    wrapper("xvfb-run", &["-n", "-s", "-e", "-f"], 0),
    wrapper("dbus-run-session", &[], 0),
    wrapper("parallel", &["-j", "--jobs"], 0),
    wrapper("runuser", &["-u"], 0),
    wrapper("pkexec", &["--user"], 0),
    wrapper("noglob", &[], 0),
    wrapper("coproc", &[], 0),
];

/// Programs that run shell text.
pub(in crate::approval) const SHELLS: [&str; 12] =
    ["sh", "bash", "dash", "zsh", "ksh", "mksh", "ash", "fish", "csh", "tcsh", "rbash", "posh"];

/// Programs that run code of another language, with the option that takes it.
const INTERPRETERS: [(&str, &[&str]); 11] = [
    ("python", &["-c"]),
    ("perl", &["-e", "-E"]),
    ("ruby", &["-e"]),
    ("node", &["-e", "-p", "--eval", "--print"]),
    ("nodejs", &["-e", "-p"]),
    ("php", &["-r"]),
    ("lua", &["-e"]),
    ("deno", &["eval"]),
    ("bun", &["-e"]),
    ("awk", &[]),
    ("osascript", &["-e"]),
];

/// The interpreter a (lower-case) program name stands for; versions such as `python3.12` count.
pub(in crate::approval) fn interpreter(name: &str) -> Option<&'static str> {
    let base = name.trim_end_matches(|c: char| c.is_ascii_digit() || c == '.');
    match base {
        "gawk" | "mawk" | "nawk" => Some("awk"),
        "pypy" => Some("python"),
        _ => INTERPRETERS.iter().map(|(name, _)| *name).find(|known| *known == base),
    }
}

/// True for a program that only runs another.
pub(in crate::approval) fn is_wrapper(name: &str) -> bool {
    WRAPPERS.iter().any(|wrapper| wrapper.name == name)
        || runner::is_bare(name)
        || matches!(name, "eval" | "ssh" | "su" | "trap" | "find")
}

/// The program that a wrapper runs, as its words name it.
pub(in crate::approval) fn wrapped_program(command: &Command) -> Option<String> {
    inner(command).into_iter().find_map(|inner| match inner {
        Inner::Command(command) => command.words.first().map(|word| word.text.clone()),
        Inner::Text(_) => None,
    })
}

/// Everything a command runs in turn, as far as its words tell.
pub(super) fn inner(command: &Command) -> Vec<Inner> {
    let Some(program) = command.words.first() else { return Vec::new() };
    let name = program_name(&program.text);
    let arguments = command.arguments();
    if SHELLS.contains(&name.as_str()) {
        return shell(command, arguments);
    }
    match name.as_str() {
        "eval" => return vec![Inner::Text(join(arguments))],
        "alias" => {
            let values = arguments.iter().filter_map(|word| word.text.split_once('='));
            return values.map(|(_, value)| Inner::Text(value.to_owned())).collect();
        }
        "trap" => return arguments.first().map(|word| Inner::Text(word.text.clone())).into_iter().collect(),
        "ssh" | "su" | "script" | "docker" | "podman" | "kubectl" | "tmux" | "screen" | "at" | "batch" | "entr"
        | "fd" => {
            return tails(&name, arguments);
        }
        "find" | "gfind" | "bfs" => return find(arguments),
        "git" => return git(arguments),
        _ => {}
    }
    if interpreter(&name).is_some() {
        return interpreted(command);
    }
    if let Some(inner) = runner::inner(&name, command) {
        return inner;
    }
    WRAPPERS.iter().find(|wrapper| wrapper.name == name).map(|wrapper| wrapped(command, wrapper)).unwrap_or_default()
}

/// The command within a wrapper whose options are all understood, for the strict reading.
pub(in crate::approval) fn plain_inner(command: &Command) -> Option<Command> {
    let name = command.words.first()?.as_literal()?;
    let arguments = command.arguments();
    let rest = match name {
        "nice" => match arguments {
            [flag, number, rest @ ..] if is(flag, "-n") && is_number(number) => rest,
            [number, rest @ ..] if number.as_literal().is_some_and(|n| n.starts_with('-')) && is_number(number) => rest,
            rest => rest,
        },
        "timeout" => match arguments {
            [flag, signal, time, rest @ ..]
                if (is(flag, "-s") || is(flag, "-k")) && signal.kind == WordKind::Literal =>
            {
                if !is_number(time) {
                    return None;
                }
                rest
            }
            [time, rest @ ..] if is_number(time) => rest,
            _ => return None,
        },
        "time" => match arguments {
            [flag, rest @ ..] if is(flag, "-p") => rest,
            rest => rest,
        },
        "stdbuf" => match arguments {
            [mode, rest @ ..]
                if mode.as_literal().is_some_and(|m| matches!(m, "-oL" | "-o0" | "-eL" | "-e0" | "-i0")) =>
            {
                rest
            }
            _ => return None,
        },
        "nohup" | "command" | "builtin" => arguments,
        "env" => return plain_env(command),
        _ => return None,
    };
    let first = rest.first()?.as_literal()?;
    if first.starts_with('-') || first.contains('=') {
        return None;
    }
    Some(Command { words: rest.to_vec(), wrappers: with_wrapper(command, name), ..command.clone() })
}

fn plain_env(command: &Command) -> Option<Command> {
    let mut assignments = command.assignments.clone();
    let mut rest = command.arguments();
    while let [word, more @ ..] = rest {
        let text = word.as_literal()?;
        let Some((name, value)) = text.split_once('=') else { break };
        assignments.push((name.to_owned(), Word::literal(value)));
        rest = more;
    }
    if rest.first()?.as_literal()?.starts_with('-') {
        return None;
    }
    Some(Command { words: rest.to_vec(), assignments, wrappers: with_wrapper(command, "env"), ..command.clone() })
}

fn with_wrapper(command: &Command, name: &str) -> Vec<String> {
    command.wrappers.iter().cloned().chain([name.to_owned()]).collect()
}

fn is(word: &Word, text: &str) -> bool {
    word.as_literal() == Some(text)
}

fn is_number(word: &Word) -> bool {
    word.as_literal().is_some_and(|text| {
        let digits = text.trim_start_matches('-').trim_end_matches(['s', 'm', 'h', 'd']);
        !digits.is_empty() && digits.chars().all(|c| c.is_ascii_digit() || c == '.')
    })
}

fn join(words: &[Word]) -> String {
    words.iter().map(|word| word.text.as_str()).collect::<Vec<_>>().join(" ")
}

fn part(command: &Command, words: &[Word]) -> Option<Inner> {
    if words.is_empty() {
        return None;
    }
    let name = command.words.first().map(|word| program_name(&word.text)).unwrap_or_default();
    Some(Inner::Command(Command {
        words: words.to_vec(),
        assignments: Vec::new(),
        redirects: command.redirects.clone(),
        wrappers: with_wrapper(command, &name),
        ..Command::default()
    }))
}

fn wrapped(command: &Command, wrapper: &Wrapper) -> Vec<Inner> {
    let mut rest = command.arguments();
    let mut out = Vec::new();
    while let [word, more @ ..] = rest {
        let text = word.text.as_str();
        if text == "--" {
            rest = more;
            break;
        }
        if wrapper.name == "env" && text.split_once('=').is_some_and(|(name, _)| !name.starts_with('-')) {
            rest = more;
            continue;
        }
        if !text.starts_with('-') || text == "-" && wrapper.name != "env" {
            break;
        }
        let (option, glued) = text.split_once('=').map_or((text, None), |(option, value)| (option, Some(value)));
        if wrapper.name == "env" && (option == "-S" || option == "--split-string" || text.starts_with("-S")) {
            let payload = glued.or_else(|| text.strip_prefix("-S").filter(|rest| !rest.is_empty()));
            let taken = payload.map_or_else(|| join(more), |payload| format!("{payload} {}", join(more)));
            out.push(Inner::Text(taken));
        }
        rest = if wrapper.with_value.contains(&option) && glued.is_none() {
            more.get(1..).unwrap_or_default()
        } else {
            more
        };
    }
    // `sudo X=1 cmd`, `time X=1 cmd`.
    while let [word, more @ ..] = rest {
        if wrapper.own_words > 0 || !word.text.split_once('=').is_some_and(|(name, _)| is_upper_name(name)) {
            break;
        }
        rest = more;
    }
    let rest = rest.get(wrapper.own_words..).unwrap_or_default();
    match rest {
        [flag, text, ..] if wrapper.name == "flock" && flag.text == "-c" => out.push(Inner::Text(text.text.clone())),
        _ if matches!(wrapper.name, "watch" | "parallel") => {
            out.push(Inner::Text(join(rest)));
        }
        _ => out.extend(part(command, rest)),
    }
    out
}

fn is_upper_name(name: &str) -> bool {
    !name.is_empty() && name.chars().all(|c| c.is_ascii_alphanumeric() || c == '_')
}

fn shell(command: &Command, arguments: &[Word]) -> Vec<Inner> {
    let mut out = Vec::new();
    for (at, word) in arguments.iter().enumerate() {
        let takes_text = word.text.starts_with('-') && !word.text.starts_with("--") && word.text.contains('c');
        if takes_text {
            let text = arguments.get(at + 1..).unwrap_or_default().iter().find(|word| !word.text.starts_with('-'));
            out.extend(text.map(|word| Inner::Text(word.text.clone())));
            break;
        }
    }
    // A here-document or here-string for the shell is a script, too.
    out.extend(fed_text(command).map(Inner::Text));
    out
}

/// Text that here-documents and here-strings feed to a command.
fn fed_text(command: &Command) -> Option<String> {
    let texts: Vec<&str> = command
        .redirects
        .iter()
        .filter(|redirect| redirect.kind == super::word::RedirectKind::Plain && !redirect.target.text.is_empty())
        .map(|redirect| redirect.target.text.as_str())
        .collect();
    (!texts.is_empty()).then(|| texts.join("\n"))
}

/// Programs that run the words after their target, or one word as shell text.
fn tails(name: &str, arguments: &[Word]) -> Vec<Inner> {
    let texts: Vec<&str> = arguments.iter().map(|word| word.text.as_str()).collect();
    let after = |flag: &[&str]| {
        texts.iter().position(|text| flag.contains(text)).map(|at| texts.get(at + 1..).unwrap_or_default().join(" "))
    };
    let tail = match name {
        "su" | "script" => after(&["-c", "--command"]),
        "kubectl" => after(&["--"]),
        "fd" => after(&["-x", "--exec", "-X", "--exec-batch"]),
        "docker" | "podman" => texts.iter().position(|t| matches!(*t, "exec" | "run")).map(|at| {
            let rest: Vec<&str> =
                texts.get(at + 1..).unwrap_or_default().iter().skip_while(|t| t.starts_with('-')).copied().collect();
            rest.get(1..).unwrap_or_default().join(" ")
        }),
        "ssh" => {
            let host = texts.iter().position(|text| !text.starts_with('-'));
            host.map(|at| texts.get(at + 1..).unwrap_or_default().join(" "))
        }
        _ => Some(texts.join(" ")),
    };
    tail.filter(|text| !text.trim().is_empty()).map(Inner::Text).into_iter().collect()
}

fn find(arguments: &[Word]) -> Vec<Inner> {
    let mut out = Vec::new();
    for (at, word) in arguments.iter().enumerate() {
        if matches!(word.text.as_str(), "-exec" | "-execdir" | "-ok" | "-okdir") {
            let words: Vec<Word> = arguments
                .get(at + 1..)
                .unwrap_or_default()
                .iter()
                .take_while(|word| !matches!(word.text.as_str(), ";" | "+"))
                .cloned()
                .collect();
            if !words.is_empty() {
                out.push(Inner::Command(Command { words, wrappers: vec!["find".into()], ..Command::default() }));
            }
        }
    }
    out
}

/// `git -c alias.x='!cmd'` and the settings whose value is a command.
fn git(arguments: &[Word]) -> Vec<Inner> {
    let setting = |text: &str| {
        let (_, value) = text.split_once('=')?;
        Some(Inner::Text(value.trim_start_matches('!').to_owned()))
    };
    arguments
        .windows(2)
        .filter(|pair| pair.first().is_some_and(|word| word.text == "-c"))
        .filter_map(|pair| setting(&pair.get(1)?.text))
        .collect()
}

/// String literals in code given to an interpreter, each as it might reach a shell.
fn interpreted(command: &Command) -> Vec<Inner> {
    let code: Vec<String> = command.arguments().iter().map(|word| word.text.clone()).chain(fed_text(command)).collect();
    code.iter().filter(|text| text.contains(['\'', '"'])).flat_map(|text| literals(text)).map(Inner::Text).collect()
}

fn literals(code: &str) -> Vec<String> {
    let mut out = Vec::new();
    let mut rest = code;
    while let Some(at) = rest.find(['\'', '"', '`']) {
        let (Some(quote), Some(after)) = (rest.get(at..=at), rest.get(at + 1..)) else { break };
        let Some(end) = after.find(quote) else { break };
        out.push(after.get(..end).unwrap_or_default().to_owned());
        rest = after.get(end + 1..).unwrap_or_default();
        if out.len() >= 64 {
            break;
        }
    }
    // A list of words, such as the arguments of `subprocess.run([...])`.
    if out.len() > 1 {
        out.push(out.join(" "));
    }
    out.retain(|text| !text.trim().is_empty());
    out
}

/// True when a command runs code that it reads from its input.
pub(super) fn reads_code_from_input(command: &Command) -> bool {
    let mut names = vec![command.clone()];
    for _ in 0..8 {
        let Some(current) = names.pop() else { return false };
        let Some(program) = current.words.first() else { return false };
        let name = program_name(&program.text);
        let arguments = current.arguments();
        let is_shell = SHELLS.contains(&name.as_str()) || interpreter(&name).is_some_and(|i| i != "awk");
        let from_input = arguments
            .iter()
            .all(|word| word.text.starts_with('-') && !word.text.starts_with("--version") && !word.text.contains('c'))
            || arguments.iter().any(|word| matches!(word.text.as_str(), "-" | "-s" | "/dev/stdin"));
        if is_shell {
            return from_input;
        }
        if matches!(name.as_str(), "source" | ".") {
            return arguments.first().is_some_and(|word| word.text.starts_with("/dev/"));
        }
        names.extend(inner(&current).into_iter().filter_map(|inner| match inner {
            Inner::Command(command) => Some(command),
            Inner::Text(_) => None,
        }));
    }
    false
}

/// What `echo`, `printf` or `cat` would print, when its words or its here-document say so.
pub(super) fn printed_text(command: &Command) -> Option<String> {
    let program = program_name(&command.words.first()?.text);
    if program == "cat" {
        return fed_text(command);
    }
    matches!(program.as_str(), "echo" | "printf").then(|| {
        let words: Vec<&str> = command.arguments().iter().map(|word| word.text.as_str()).collect();
        words
            .iter()
            .skip_while(|word| word.starts_with('-'))
            .copied()
            .collect::<Vec<_>>()
            .join(" ")
            .replace("\\n", "\n")
    })
}
