//! The table of programs that only read.
//!
//! Lists are words in one text. An option stands among `text_options` only where it takes a value in
//! every program of its row, since the word after it is then not looked at as a path.

use super::{Operands, Reader, Sees};

const fn content(names: &'static str, operands: Operands, text_options: &'static str, refused: &'static str) -> Reader {
    Reader { names, operands, sees: Sees::Content, text_options, pattern_options: "", refused }
}

const fn names(names: &'static str, operands: Operands, text_options: &'static str, refused: &'static str) -> Reader {
    Reader { names, operands, sees: Sees::Names, text_options, pattern_options: "", refused }
}

/// Programs that only read, grouped by how their words are read.
pub(super) static READERS: [Reader; 60] = [
    content(
        "cat rev zcat zipinfo sum cksum md5sum sha1sum sha224sum sha256sum sha384sum sha512sum b2sum",
        Operands::Paths,
        "",
        "",
    ),
    content("wc", Operands::Paths, "", "--files0-from"),
    content("tac", Operands::Paths, "-s --separator", ""),
    content("nl", Operands::Paths, "-b -d -f -h -i -l -n -s -v -w", ""),
    content("head", Operands::Paths, "-n -c --lines --bytes", ""),
    content("tail", Operands::Paths, "-n -c --lines --bytes -s --sleep-interval --pid --max-unchanged-stats", ""),
    content("cut", Operands::Paths, "-d -f -c -b --delimiter --fields --characters --bytes --output-delimiter", ""),
    content("paste", Operands::Paths, "-d --delimiters", ""),
    content("comm tsort", Operands::Paths, "", ""),
    content("cmp", Operands::Paths, "-i -n --ignore-initial --bytes", ""),
    content("column", Operands::Paths, "-s -o -c -N -R -E -H -O -W -l", ""),
    content("fold", Operands::Paths, "-w --width", ""),
    content("fmt", Operands::Paths, "-w -p -g --width --prefix --goal", ""),
    content("expand unexpand", Operands::Paths, "-t --tabs", ""),
    content("od", Operands::Paths, "-A -t -j -N -S --address-radix --format --skip-bytes --read-bytes", ""),
    content("hexdump hd", Operands::Paths, "-n -s -e", "-f"),
    content("strings", Operands::Paths, "-n -t -e --bytes --radix --encoding", ""),
    content("nm size readelf", Operands::Paths, "", "--plugin"),
    content("objdump", Operands::Paths, "-j -M --section --start-address --stop-address", "--plugin -P"),
    content("base64 base32", Operands::Paths, "-w --wrap", ""),
    content("join look", Operands::Paths, "", ""),
    content("uniq", Operands::OnePath, "-f -s -w --skip-fields --skip-chars --check-chars", ""),
    content("xxd", Operands::OnePath, "-l -s -c -g -o", "-r -revert"),
    content("diff", Operands::Paths, "-U -I -x -W --label --exclude --ignore-matching-lines --width --tabsize", ""),
    content(
        "sort",
        Operands::Paths,
        "-k -t --key --field-separator -S --buffer-size --sort --parallel",
        "-o --output --compress-program -T --temporary-directory --files0-from",
    ),
    content("tr seq expr numfmt factor", Operands::Text, "", ""),
    names("stat", Operands::Paths, "-c --format --printf", ""),
    names(
        "file",
        Operands::Paths,
        "-F -P -e --separator --exclude",
        "-C --compile -m --magic-file -f --files-from -z -Z -S",
    ),
    names("ls dir vdir", Operands::Paths, "-I -w -T --ignore --hide --width --tabsize", ""),
    names(
        "du",
        Operands::Paths,
        "-d -B -t --max-depth --block-size --threshold --exclude",
        "-X --exclude-from --files0-from",
    ),
    names("df", Operands::Paths, "-B -t -x --block-size --type --exclude-type", ""),
    names("readlink realpath cd", Operands::Paths, "", ""),
    names("tree", Operands::Paths, "-L -I -P --filelimit --charset --sort --timefmt", "-o --output -R -l --fromfile"),
    Reader {
        names: "grep egrep fgrep zgrep",
        operands: Operands::PatternThenPaths,
        sees: Sees::Content,
        text_options: "-e -A -B -C -m -d -D --regexp --include --exclude --exclude-dir --max-count --after-context --before-context \
            --context --label --binary-files --devices --directories",
        pattern_options: "-e --regexp -f --file",
        refused: "-R --dereference-recursive",
    },
    Reader {
        names: "rg",
        operands: Operands::PatternThenPaths,
        sees: Sees::Content,
        text_options: "-e -A -B -C -m -g -t -T -r -j -M -d -E --regexp --glob --iglob --type --type-not --replace --max-count \
            --after-context --before-context --context --sort --sortr --color --colors --max-depth --maxdepth --max-filesize \
            --max-columns --threads --encoding --engine --field-match-separator",
        pattern_options: "-e --regexp -f --file --files --type-list",
        refused: "--pre --pre-glob -z --search-zip --hostname-bin -L --follow --hyperlink-format",
    },
    Reader {
        names: "ag ack",
        operands: Operands::PatternThenPaths,
        sees: Sees::Content,
        text_options: "-A -B -C -m -G --ignore --depth",
        pattern_options: "-g -f",
        refused: "--pager -z --search-zip -f --follow --ackrc --output",
    },
    Reader {
        names: "fd fdfind",
        operands: Operands::PatternThenPaths,
        sees: Sees::Names,
        text_options: "-t -e -d -E -S -c --type --extension --max-depth --exclude --size --color --min-depth",
        pattern_options: "",
        refused: "-x --exec -X --exec-batch -L --follow -l --list-details --search-path --base-directory",
    },
    Reader {
        names: "jq",
        operands: Operands::PatternThenPaths,
        sees: Sees::Content,
        text_options: "--indent --arg --argjson",
        pattern_options: "",
        refused: "-L --library-path -i --in-place --args --jsonargs -f --from-file",
    },
    names("echo yes : true false sleep basename dirname exit return break continue", Operands::Text, "", ""),
    names("which type whereis", Operands::Text, "", ""),
    names("hash", Operands::Text, "", "-r -p -d"),
    names("pwd", Operands::Nothing, "", ""),
    names(
        "whoami arch nproc tty logname uptime lscpu lsblk lsb_release locale dnsdomainname sw_vers w who users jobs times",
        Operands::Nothing,
        "",
        "",
    ),
    names("uname", Operands::Nothing, "", ""),
    names("free vmstat", Operands::Nothing, "", ""),
    names("hostname", Operands::Nothing, "", "-F --file -b --boot"),
    names("id groups getconf pgrep pidof cal pathchk", Operands::Text, "", ""),
    names("lsof", Operands::Text, "-i -p -u -c", "-D"),
    names("tput", Operands::Text, "", "init reset"),
    names("date", Operands::Text, "-d --date", "-s --set -f --file"),
    names("rustc", Operands::Nothing, "--explain --print", "-o -C -Z"),
    names("nvidia-smi", Operands::Nothing, "", ""),
    names("sensors lspci lsusb", Operands::Nothing, "", "-f -s --set -q -Q"),
    names("top", Operands::Nothing, "-n -d -p -u -U -o -w -e -E", ""),
    names("ulimit umask dirs", Operands::Nothing, "", ""),
    names("history alias", Operands::Nothing, "", "-a -w -c -d -n -r -s"),
    content("bc", Operands::Paths, "", ""),
    names("netstat", Operands::Nothing, "", "-c --continuous"),
    names("ss", Operands::Text, "", "-K --kill -D --diag -F --filter -E --events -N --net -r --resolve"),
    names("pstree", Operands::Text, "", ""),
];

/// Programs whose version query and short help do nothing else, with the forms of the first.
pub(super) static VERSIONED: [(&str, &str); 7] = [
    (
        "cargo rustc rustup rustfmt clippy-driver deno python python3 python2 pip pip3 uv poetry pytest ruff mypy rg jq curl wget psql",
        "--version -V",
    ),
    (
        "node npm npx pnpm yarn bun ruby gem bundle perl php gradle mvn ld make docker git tsc eslint prettier lua vite jest",
        "--version -v",
    ),
    (
        "black gcc g++ cc c++ clang clang++ cmake ninja meson gh tar bash zsh swift dotnet kubectl just nvim vim emacs",
        "--version",
    ),
    ("java javac", "--version -version"),
    ("go helm zig terraform hugo", "version"),
    ("git terraform", "--version -v version"),
    ("sqlite3 ffmpeg", "--version -version"),
];
