//! Sockets for the data plane: no system call that is known to fail, and a limit on the size of each.
//!
//! For example, a read that got less than it had room for has emptied the socket: the next one waits for the kernel to
//! report more. A socket that has its request when it is accepted is read, answered and closed without a registration at
//! epoll ([`Socket`]), and its last bytes and its FIN are one segment ([`poll_write_last`]).

// A dropped error once allowed request smuggling, so no error is dropped silently.
#![warn(clippy::let_underscore_must_use)]

mod ack_timeout;
pub mod client_certificate;
pub mod crypto;
pub mod own_hosts;
#[cfg(test)]
mod pipe;
#[cfg(feature = "http3")]
pub mod quic;
pub mod service_connection;
mod socket;
mod stream;
mod tls;

use std::io::{self, IoSlice};
use std::mem::MaybeUninit;
use std::os::fd::AsFd;
use std::task::{Context, Poll, Waker, ready};
use std::time::Duration;

use bytes::{BufMut as _, BytesMut};
use rustix::net::{SendAncillaryBuffer, SendFlags, sendmsg};
use socket2::SockRef;
use tokio::io::Interest;
use tokio::net::TcpStream;

pub use ack_timeout::{AckTimeout, set_ack_timeout};
#[cfg(test)]
pub use pipe::Pipe;
pub use socket::Socket;
pub use stream::Detached;
pub use stream::Stream;
pub use tls::TlsClientConfig;
pub use tls::{Alpn, TlsStream};

/// The state of a socket's input, found without consuming it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Peek {
    /// No input.
    Silence,
    /// Bytes wait to be read.
    Bytes,
    /// The other side has closed its sending side.
    End,
    /// The connection is broken.
    Broken,
}

/// Appends at most `max` bytes to `buffer`. Ready with 0 at the end of the stream.
pub fn poll_read(
    stream: &TcpStream,
    context: &mut Context<'_>,
    buffer: &mut BytesMut,
    max: usize,
) -> Poll<io::Result<usize>> {
    loop {
        ready!(stream.poll_read_ready(context))?;
        buffer.reserve(max);
        match stream.try_read_buf(&mut (&mut *buffer).limit(max)) {
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
            Ok(read) => {
                if 0 < read && read < max {
                    is_drained(stream);
                }
                return Poll::Ready(Ok(read));
            }
            Err(error) => return Poll::Ready(Err(error)),
        }
    }
}

/// A short read consumed all input: the next poll waits for more without a needless system call. (epoll is
/// edge-triggered, so later input is reported anew.)
fn is_drained(stream: &TcpStream) {
    let nothing = || io::Result::<()>::Err(io::ErrorKind::WouldBlock.into());
    #[expect(
        clippy::let_underscore_must_use,
        reason = "the closure gives only a refusal, which clears the readiness"
    )]
    let _ = stream.try_io(Interest::READABLE, nothing);
}

/// Writes the bytes of two slices that the kernel accepts, in one call.
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

/// Writes the bytes that the kernel accepts, of the last ones before the sending side is closed. The kernel may hold them
/// back for 200 ms, to send them in one segment with the FIN. That is one segment less for each connection.
pub fn poll_write_last(
    stream: &TcpStream,
    context: &mut Context<'_>,
    bytes: &[u8],
) -> Poll<io::Result<usize>> {
    loop {
        ready!(stream.poll_write_ready(context))?;
        match stream.try_io(Interest::WRITABLE, || write_last(stream, &[IoSlice::new(bytes)])) {
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
            result => return Poll::Ready(result),
        }
    }
}

/// See [`poll_write_last`].
fn write_last(socket: &impl AsFd, slices: &[IoSlice<'_>]) -> io::Result<usize> {
    #[cfg(target_os = "linux")]
    let flags = SendFlags::NOSIGNAL | SendFlags::MORE;
    #[cfg(not(target_os = "linux"))]
    let flags = SendFlags::empty();
    Ok(sendmsg(socket, slices, &mut SendAncillaryBuffer::default(), flags)?)
}

/// Whether the runtime knows of input or of the end. Costs no system call; the runtime may not know the newest input
/// yet.
pub fn has_input(stream: &TcpStream) -> bool {
    stream.poll_read_ready(&mut Context::from_waker(Waker::noop())).is_ready()
}

/// Asks the kernel for the state of the input. Costs a system call.
pub fn peek(stream: &impl AsFd) -> Peek {
    match SockRef::from(stream).peek(&mut [MaybeUninit::uninit()]) {
        Ok(0) => Peek::End,
        Ok(_) => Peek::Bytes,
        Err(error) if error.kind() == io::ErrorKind::WouldBlock => Peek::Silence,
        Err(_) => Peek::Broken,
    }
}

/// Ready with the state of the input, other than silence.
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

/// Closes the sending side.
pub fn close_sending(stream: &impl AsFd) -> io::Result<()> {
    SockRef::from(stream).shutdown(std::net::Shutdown::Write)
}

/// Makes the socket's close a reset: unsent bytes are dropped, and the peer detects a truncated stream.
pub fn reset_on_close(stream: &impl AsFd) {
    #[expect(
        clippy::let_underscore_must_use,
        reason = "a socket that cannot be told so is closed the ordinary way"
    )]
    let _ = SockRef::from(stream).set_linger(Some(Duration::ZERO));
}
