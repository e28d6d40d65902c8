//! The command behind `/bin/bash -lc '...'`, which is how the runtime words every command.
//!
//! Gate and user judge the text that the shell gets. Whatever is not exactly this shape is left as it stands.

/// The script of a shell call, or the whole text when it is something else.
pub(super) fn of(command: &str) -> String {
    let Some(words) = words(command) else { return command.to_owned() };
    match words.as_slice() {
        [shell, flag, script] if is_shell(shell) && matches!(flag.as_str(), "-c" | "-lc") => script.clone(),
        _ => command.to_owned(),
    }
}

fn is_shell(path: &str) -> bool {
    let name = path.strip_prefix("/usr").unwrap_or(path);
    let name = name.strip_prefix("/bin/").unwrap_or(name);
    matches!(name, "bash" | "sh" | "zsh" | "dash")
}

/// The words of a quoted command line; `None` for anything that a shell would do more with than to unquote it.
fn words(text: &str) -> Option<Vec<String>> {
    let mut words = Vec::new();
    let mut word: Option<String> = None;
    let mut chars = text.chars();
    while let Some(character) = chars.next() {
        match character {
            ' ' => words.extend(word.take()),
            '\'' => {
                let word = word.get_or_insert_default();
                loop {
                    match chars.next()? {
                        '\'' => break,
                        other => word.push(other),
                    }
                }
            }
            '"' => double_quoted(&mut chars, word.get_or_insert_default())?,
            '\\' => match chars.next()? {
                '\n' => return None,
                other => word.get_or_insert_default().push(other),
            },
            plain if plain.is_ascii_alphanumeric() || "_-+./:=@%,^!".contains(plain) => {
                word.get_or_insert_default().push(plain);
            }
            _ => return None,
        }
    }
    words.extend(word);
    Some(words)
}

fn double_quoted(chars: &mut std::str::Chars<'_>, word: &mut String) -> Option<()> {
    loop {
        match chars.next()? {
            '"' => return Some(()),
            '\\' => match chars.next()? {
                escaped @ ('"' | '\\' | '$' | '`') => word.push(escaped),
                '\n' => return None,
                other => word.extend(['\\', other]),
            },
            '$' | '`' => return None,
            other => word.push(other),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_script_of_a_shell_call_is_what_is_judged() {
        for (command, expected) in [
            ("/bin/bash -lc ls", "ls"),
            ("/bin/bash -lc 'echo hi > x && cat x'", "echo hi > x && cat x"),
            (r#"bash -c "echo 'a'""#, "echo 'a'"),
            (r#"/usr/bin/zsh -lc "echo \$HOME""#, "echo $HOME"),
            (r"sh -c 'it'\''s'", "it's"),
        ] {
            assert_eq!(of(command), expected, "{command}");
        }
    }

    #[test]
    fn what_a_shell_would_read_differently_is_left_whole() {
        for command in [
            "ls -l",
            "/bin/bash -lc ls extra",
            "/bin/bash -lc $(id)",
            "/bin/bash -lc \"echo $HOME\"",
            "/bin/bash -lc ls; rm -rf x",
            "/bin/bash -lc 'unfinished",
            "/bin/bash -x ls",
            "/opt/evil/bash -lc ls",
            "BASH_ENV=x /bin/bash -lc ls",
            "",
        ] {
            assert_eq!(of(command), command);
        }
    }
}
