//! Environment variables that would make a server's program be another one than its command says.

/// Names that load code into, or change what is run by, any program or a common interpreter.
const REFUSED: &[&str] = &[
    "PATH",
    "IFS",
    "ENV",
    "SHELLOPTS",
    "BASHOPTS",
    "PS4",
    "PROMPT_COMMAND",
    "NODE_OPTIONS",
    "NODE_PATH",
    "NODE_REPL_EXTERNAL_MODULE",
    "PERL5OPT",
    "PERL5LIB",
    "PERL5DB",
    "PERLLIB",
    "RUBYOPT",
    "RUBYLIB",
    "JAVA_TOOL_OPTIONS",
    "_JAVA_OPTIONS",
    "JDK_JAVA_OPTIONS",
    "CLASSPATH",
    "PHPRC",
    "PHP_INI_SCAN_DIR",
    "DOTNET_STARTUP_HOOKS",
    "OPENSSL_CONF",
    "OPENSSL_ENGINES",
    "OPENSSL_MODULES",
    "GLIBC_TUNABLES",
    "GCONV_PATH",
    "HOSTALIASES",
    "LOCPATH",
    "EDITOR",
    "VISUAL",
    "PAGER",
    "BROWSER",
    "GIT_SSH",
    "GIT_SSH_COMMAND",
    "GIT_EXTERNAL_DIFF",
    "GIT_EXEC_PATH",
    "GIT_ASKPASS",
    "GIT_PAGER",
    "GIT_EDITOR",
    "GIT_PROXY_COMMAND",
    "GIT_TEMPLATE_DIR",
    "SSH_ASKPASS",
    "ZDOTDIR",
    "LESSOPEN",
    "LESSCLOSE",
    "MAKEFLAGS",
    "RUSTC_WRAPPER",
    "RUSTC_WORKSPACE_WRAPPER",
    "ELECTRON_RUN_AS_NODE",
    "BUN_OPTIONS",
    "PIP_INDEX_URL",
    "PIP_EXTRA_INDEX_URL",
];

/// Beginnings of such names.
const REFUSED_STARTS: &[&str] = &[
    "LD_",
    "DYLD_",
    "BASH_",
    "PYTHON",
    "LUA_INIT",
    "GIT_CONFIG",
    "COR_",
    "CORECLR_",
    "NPM_CONFIG_",
    "UV_INDEX",
    "UV_DEFAULT_INDEX",
    "UV_EXTRA_INDEX",
    "TURND_",
];

/// The first variable that may not be set for a server by whoever is not the user.
pub(super) fn refused<'a>(mut names: impl Iterator<Item = &'a str>) -> Option<&'a str> {
    names.find(|name| is_refused(name))
}

/// Case does not count: some programs read their variables in either.
fn is_refused(name: &str) -> bool {
    let upper = name.to_ascii_uppercase();
    REFUSED.contains(&upper.as_str()) || REFUSED_STARTS.iter().any(|start| upper.starts_with(start))
}

/// Whether a name can be in an environment at all.
pub(super) fn is_name(name: &str) -> bool {
    !name.is_empty() && !name.contains(['=', '\0'])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_changes_the_program_is_refused_and_settings_are_not() {
        for name in [
            "LD_PRELOAD",
            "LD_LIBRARY_PATH",
            "LD_AUDIT",
            "DYLD_INSERT_LIBRARIES",
            "BASH_ENV",
            "BASH_FUNC_ls%%",
            "ENV",
            "NODE_OPTIONS",
            "PYTHONSTARTUP",
            "PYTHONPATH",
            "PATH",
            "Path",
            "ld_preload",
            "PERL5OPT",
            "RUBYOPT",
            "JAVA_TOOL_OPTIONS",
            "GIT_SSH_COMMAND",
            "GIT_CONFIG_COUNT",
            "npm_config_script_shell",
            "UV_INDEX_URL",
            "ZDOTDIR",
            "TURND_HOME",
        ] {
            assert_eq!(refused(["A", name].into_iter()), Some(name), "{name}");
        }
        for name in ["GITHUB_TOKEN", "API_KEY", "HOME", "LANG", "DATABASE_URL", "DEBUG", "GIT_AUTHOR_NAME", "PATHS"] {
            assert_eq!(refused([name].into_iter()), None, "{name}");
        }
    }
}
