//! Standard input and output as asynchronous streams, and a standard output that stays pure.
//!
//! A pipe is reopened through `/proc/self/fd`, which gives a description of its own: setting the
//! inherited one non-blocking would change it for whoever else holds it. A socket, which Node gives
//! its children, cannot be reopened and is used as it is. Anything else goes through tokio's threads.

use std::fs::{File, OpenOptions};
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::{FileTypeExt, OpenOptionsExt};
use std::os::unix::net::UnixStream;

use rustix::fs::OFlags;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::unix::pipe;

/// The protocol's way in.
pub type Input = Box<dyn AsyncRead + Unpin + Send>;
/// The protocol's way out.
pub type Output = Box<dyn AsyncWrite + Unpin + Send>;

/// Takes standard input and output for the protocol. From here on descriptor 1 is standard error, so
/// that a stray print, ours or a child's, cannot reach the client as protocol.
///
/// # Errors
/// When a descriptor cannot be duplicated.
pub fn take() -> io::Result<(Input, Output)> {
    let input = rustix::io::fcntl_dupfd_cloexec(rustix::stdio::stdin(), 3)?;
    let output = rustix::io::fcntl_dupfd_cloexec(rustix::stdio::stdout(), 3)?;
    rustix::stdio::dup2_stdout(rustix::stdio::stderr())?;
    let input_stream = open_input(&input);
    let output_stream = open_output(&output);
    Ok((
        input_stream.unwrap_or_else(|| Box::new(tokio::fs::File::from_std(File::from(input)))),
        output_stream.unwrap_or_else(|| Box::new(tokio::fs::File::from_std(File::from(output)))),
    ))
}

fn open_input(fd: &OwnedFd) -> Option<Input> {
    match kind(fd)? {
        Kind::Pipe => {
            let file = reopen(fd, OpenOptions::new().read(true))?;
            Some(Box::new(pipe::Receiver::from_file(file).ok()?))
        }
        Kind::Socket => Some(Box::new(socket(fd)?)),
    }
}

fn open_output(fd: &OwnedFd) -> Option<Output> {
    match kind(fd)? {
        Kind::Pipe => {
            let file = reopen(fd, OpenOptions::new().write(true))?;
            Some(Box::new(pipe::Sender::from_file(file).ok()?))
        }
        Kind::Socket => Some(Box::new(socket(fd)?)),
    }
}

enum Kind {
    Pipe,
    Socket,
}

fn kind(fd: &OwnedFd) -> Option<Kind> {
    let kind = File::from(fd.try_clone().ok()?).metadata().ok()?.file_type();
    if kind.is_fifo() {
        Some(Kind::Pipe)
    } else if kind.is_socket() {
        Some(Kind::Socket)
    } else {
        None
    }
}

fn reopen(fd: &OwnedFd, options: &mut OpenOptions) -> Option<File> {
    use std::os::fd::AsRawFd;
    let flags = i32::try_from(OFlags::NONBLOCK.bits()).ok()?;
    options.custom_flags(flags).open(format!("/proc/self/fd/{}", fd.as_raw_fd())).ok()
}

fn socket(fd: &OwnedFd) -> Option<tokio::net::UnixStream> {
    let stream = UnixStream::from(fd.as_fd().try_clone_to_owned().ok()?);
    stream.set_nonblocking(true).ok()?;
    tokio::net::UnixStream::from_std(stream).ok()
}
