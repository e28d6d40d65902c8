//! Standard output of the commands that print and end.

use std::io::{self, ErrorKind, Write};

/// Standard output. A reader that has gone away (`| head`) is no failure: it has what it wanted.
#[derive(Debug)]
pub(super) struct Output;

impl Write for Output {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        unless_gone(io::stdout().write(bytes), bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        unless_gone(io::stdout().flush(), ())
    }
}

fn unless_gone<T>(result: io::Result<T>, otherwise: T) -> io::Result<T> {
    match result {
        Err(error) if error.kind() == ErrorKind::BrokenPipe => Ok(otherwise),
        result => result,
    }
}
