//! Sockets as the data plane reads and writes them: no system call that must fail, and a bound on each.

// An error that was dropped here let requests be smuggled: none is dropped without a word.
#![warn(clippy::let_underscore_must_use)]

mod ack_timeout;
mod detached;
#[cfg(test)]
mod pipe;
mod stream;
mod tls;
mod tls_client;

use std::io::{self, IoSlice};
use std::mem::MaybeUninit;
use std::task::{Context, Poll, Waker, ready};
use std::time::Duration;

use bytes::{BufMut as _, BytesMut};
use socket2::SockRef;
use tokio::io::Interest;
use tokio::net::TcpStream;

pub use ack_timeout::AckTimeout;
pub use detached::Detached;
#[cfg(test)]
pub use pipe::Pipe;
pub use stream::Stream;
pub use tls::{Alpn, TlsStream};
pub use tls_client::TlsClientConfig;

/// What a look at a socket shows, without taking anything from it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Peek {
    /// Nothing has come.
    Silence,
    /// Bytes wait to be read.
    Bytes,
    /// The other side has closed its sending side.
    End,
    /// The connection is broken.
    Broken,
}

/// Reads at most `most` bytes behind what is in `buffer`. Ready with 0 at the end of the stream.
pub fn poll_read(
    stream: &TcpStream,
    context: &mut Context<'_>,
    buffer: &mut BytesMut,
    most: usize,
) -> Poll<io::Result<usize>> {
    loop {
        ready!(stream.poll_read_ready(context))?;
        buffer.reserve(most);
        match stream.try_read_buf(&mut (&mut *buffer).limit(most)) {
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
            Ok(read) => {
                if 0 < read && read < most {
                    is_drained(stream);
                }
                return Poll::Ready(Ok(read));
            }
            Err(error) => return Poll::Ready(Err(error)),
        }
    }
}

/// A short read took all there was: the next poll waits for more instead of asking the kernel in vain. (epoll is
/// edge-triggered, so what comes from now on is announced anew.)
fn is_drained(stream: &TcpStream) {
    let nothing = || io::Result::<()>::Err(io::ErrorKind::WouldBlock.into());
    #[expect(
        clippy::let_underscore_must_use,
        reason = "the closure gives only a refusal, which clears the readiness"
    )]
    let _ = stream.try_io(Interest::READABLE, nothing);
}

/// Writes what the kernel takes of two slices, in one call.
pub fn poll_write(
    stream: &TcpStream,
    context: &mut Context<'_>,
    first: &[u8],
    second: &[u8],
) -> Poll<io::Result<usize>> {
    loop {
        ready!(stream.poll_write_ready(context))?;
        let written = match (first, second) {
            (only, []) | ([], only) => stream.try_write(only),
            _ => stream.try_write_vectored(&[IoSlice::new(first), IoSlice::new(second)]),
        };
        match written {
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
            result => return Poll::Ready(result),
        }
    }
}

/// Whether the runtime knows of something to read, be it the end. Costs no system call; what came in the last moment may
/// not be known yet.
pub fn has_input(stream: &TcpStream) -> bool {
    stream.poll_read_ready(&mut Context::from_waker(Waker::noop())).is_ready()
}

/// Asks the kernel what there is to read. Costs a system call.
pub fn peek(stream: &TcpStream) -> Peek {
    match SockRef::from(stream).peek(&mut [MaybeUninit::uninit()]) {
        Ok(0) => Peek::End,
        Ok(_) => Peek::Bytes,
        Err(error) if error.kind() == io::ErrorKind::WouldBlock => Peek::Silence,
        Err(_) => Peek::Broken,
    }
}

/// Ready with what is there to read, other than silence.
pub fn poll_peek(stream: &TcpStream, context: &mut Context<'_>) -> Poll<Peek> {
    loop {
        if ready!(stream.poll_read_ready(context)).is_err() {
            return Poll::Ready(Peek::Broken);
        }
        match peek(stream) {
            Peek::Silence => is_drained(stream),
            sight => return Poll::Ready(sight),
        }
    }
}

/// Closes our sending side.
pub fn close_sending(stream: &TcpStream) -> io::Result<()> {
    SockRef::from(stream).shutdown(std::net::Shutdown::Write)
}

/// Makes the socket's close a reset: whatever is unsent is dropped, and the other side knows that something is missing.
pub fn reset_on_close(stream: &TcpStream) {
    #[expect(
        clippy::let_underscore_must_use,
        reason = "a socket that cannot be told so is closed the ordinary way"
    )]
    let _ = SockRef::from(stream).set_linger(Some(Duration::ZERO));
}
