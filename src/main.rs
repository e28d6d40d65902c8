//! The `turnd` program: flags in, exit code out.

use std::process::ExitCode;

fn main() -> ExitCode {
    ExitCode::from(turnd::cli::main())
}
