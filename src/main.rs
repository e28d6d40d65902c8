//! The `turnd` program: flags in, exit code out.

use std::process::ExitCode;

fn main() -> ExitCode {
    if let Some(code) = turnd::tool::process::enter(std::env::args_os()) {
        return code;
    }
    ExitCode::from(turnd::cli::main())
}
