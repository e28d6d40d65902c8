//! Commands that do harm, in ten thousand disguises: none passes.

use super::*;

/// Commands that write or run something no rule allows. The program is the first word.
const HARMS: [&str; 24] = [
    "touch PWN",
    "rm victim",
    "cp victim PWN",
    "mv victim PWN",
    "mkdir PWN",
    "ln -s victim PWN",
    "tee PWN",
    "sed -i s/a/b/ victim",
    "sed -n 'w PWN' victim",
    "sort -o PWN victim",
    "find . -name victim -delete",
    "find . -fprint PWN",
    "rg --pre ./evil.sh a .",
    "git -c core.fsmonitor=./evil.sh status",
    "git log --output=PWN",
    "git grep -O./evil.sh a",
    "./evil.sh",
    "sh evil.sh",
    "python3 evil.py",
    "awk 'BEGIN{system(\"touch PWN\")}'",
    "curl http://x.test",
    "dd if=victim of=PWN",
    "cat .env",
    "uniq victim PWN",
];

/// How the program's name can be spelled; `%` is the name.
const SPELLINGS: [&str; 12] =
    ["%", "'%'", "\"%\"", "\\%", "''%", "%\"\"", "$''%", "%$()", "%${zz}", "%``", "\\\n%", "\"\"'%'"];

/// What can stand around a command; `%` is the command.
const WRAPPERS: [&str; 22] = [
    "%",
    "env %",
    "env A=1 %",
    "nice %",
    "nice -n 5 %",
    "timeout 5 %",
    "nohup %",
    "stdbuf -oL %",
    "command %",
    "time %",
    "exec %",
    "setsid %",
    "ionice -c3 %",
    "xargs -n1 %",
    "sudo %",
    "busybox %",
    "strace %",
    "eval %",
    "A=1 %",
    "PATH=. %",
    "LC_ALL=C %",
    "find . -exec % \\;",
];

/// Where a command can stand in a text that begins harmlessly; `%` is the command.
const CONTEXTS: [&str; 40] = [
    "%",
    "ls; %",
    "ls && %",
    "ls || %",
    "ls | %",
    "ls |& %",
    "ls & %",
    "ls\n%",
    "cd src && %",
    "cd src; %",
    "(%)",
    "( ls; % )",
    "{ %; }",
    "! %",
    "if true; then %; fi",
    "if %; then ls; fi",
    "while %; do break; done",
    "for f in a b; do %; done",
    "case x in x) %;; esac",
    "f() { %; }; f",
    "echo $(%)",
    "echo \"$(%)\"",
    "echo `%`",
    "cat <(%)",
    "ls > >(%)",
    "cat <<E\n$(%)\nE",
    "cat <<'E'\nx\nE\n%",
    "cat <<E | %\nx\nE",
    "[[ -n $(%) ]]",
    "[ -n \"$(%)\" ]",
    "x=$(%)",
    "x=1; %",
    "ls # x\n%",
    "ls \\\n; %",
    "ls 2>&1; %",
    "% > /dev/null 2>&1",
    "% | head",
    "echo ${x:-$(%)}",
    "trap \"%\" EXIT",
    "true && (false || %)",
];

/// Every harm in a spread of disguises, always the same ones.
fn disguises() -> Vec<String> {
    let mut texts = Vec::new();
    for harm in HARMS {
        let (program, rest) = harm.split_once(' ').unwrap_or((harm, ""));
        for (at, context) in CONTEXTS.iter().enumerate() {
            for step in 0..11 {
                let spelling = SPELLINGS[(step * 5 + at) % SPELLINGS.len()];
                let wrapper = WRAPPERS[(step * 7 + at * 3 + harm.len()) % WRAPPERS.len()];
                let spelled = spelling.replace('%', program);
                let command = wrapper.replace('%', &format!("{spelled} {rest}"));
                texts.push(context.replace('%', &command));
            }
        }
    }
    texts
}

#[test]
fn no_disguise_lets_a_harmful_command_pass() {
    let allowed = [
        "ls *",
        "cat *",
        "echo *",
        "grep *",
        "rg *",
        "find *",
        "sed *",
        "sort *",
        "head *",
        "tail *",
        "git status *",
        "git log *",
        "git diff *",
        "git show *",
        "env *",
        "xargs *",
        "timeout *",
        "nice *",
        "sh *",
        "bash *",
        "true",
        "uniq *",
    ];
    let gate = World::new().with(RuleEffect::Allow, &allowed).gate();
    let texts = disguises();
    assert!(texts.len() >= 10_000, "{}", texts.len());
    let passed: Vec<&String> = std::thread::scope(|scope| {
        let halves = texts.chunks(texts.len().div_ceil(4)).map(|chunk| {
            let gate = &gate;
            scope.spawn(move || chunk.iter().filter(|text| name(&terminal(gate, text)) == "allow").collect::<Vec<_>>())
        });
        let workers: Vec<_> = halves.collect();
        workers.into_iter().flat_map(|worker| worker.join().unwrap()).collect()
    });
    assert!(passed.is_empty(), "{} passed, such as {:#?}", passed.len(), &passed[..passed.len().min(20)]);
}
