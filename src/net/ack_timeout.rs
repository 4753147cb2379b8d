//! How long a socket may hold bytes that the peer does not acknowledge: TCP_USER_TIMEOUT (RFC 5482).

use std::cell::Cell;
use std::io;
use std::time::Duration;

use tokio::net::TcpStream;

use super::stream::Stream;

/// The time after which the kernel ends a connection with a peer that acknowledges none of the bytes that were sent or
/// wait to be sent. A closed window counts as no acknowledgement.
///
/// The option is set when a write blocks for the first time, so it costs connections that never block nothing. From
/// then on a peer that reads steadily is not disconnected, however slow it is. Whether the socket is writable is a
/// weaker criterion: the kernel reports it as writable only once a third of its buffer is free, which takes a slow peer
/// minutes.
#[derive(Debug)]
pub struct AckTimeout {
    timeout: Duration,
    state: Cell<AckState>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum AckState {
    Unset,
    Set,
    /// There is no socket, or the kernel lacks the option.
    Unsupported,
}

impl AckTimeout {
    /// Not set yet.
    pub fn new(timeout: Duration) -> Self {
        Self { timeout, state: Cell::new(AckState::Unset) }
    }

    /// Sets the option on the socket of `stream`, unless it is set. Returns whether the kernel enforces the time.
    #[cold]
    pub fn enforce(&self, stream: &Stream) -> bool {
        if self.state.get() == AckState::Unset {
            let set = stream.socket().is_some_and(|socket| set(socket, self.timeout).is_ok());
            self.state.set(if set { AckState::Set } else { AckState::Unsupported });
        }
        self.state.get() == AckState::Set
    }

    /// Resets the option, if it was set.
    pub fn lift(&self, stream: &Stream) {
        if let (AckState::Set, Some(socket)) = (self.state.replace(AckState::Unset), stream.socket()) {
            #[expect(
                clippy::let_underscore_must_use,
                reason = "zero stands for the kernel's own rule; a socket that is gone needs no option"
            )]
            let _ = set(socket, Duration::ZERO);
        }
    }
}

/// Has the kernel end the connection once the peer has acknowledged nothing of what was sent for `timeout`.
///
/// # Errors
///
/// The kernel lacks the option, or the socket has no such timeouts.
pub fn set_ack_timeout(socket: &TcpStream, timeout: Duration) -> io::Result<()> {
    set(socket, timeout)
}

#[cfg(target_os = "linux")]
fn set(socket: &TcpStream, timeout: Duration) -> io::Result<()> {
    // The kernel takes whole milliseconds, as a signed number; zero would switch the option off.
    let min = u128::from(!timeout.is_zero());
    let milliseconds = timeout.as_millis().clamp(min, i32::MAX as u128);
    let milliseconds = u32::try_from(milliseconds).unwrap_or(u32::MAX);
    Ok(rustix::net::sockopt::set_tcp_user_timeout(socket, milliseconds)?)
}

#[cfg(not(target_os = "linux"))]
fn set(_socket: &TcpStream, _timeout: Duration) -> io::Result<()> {
    Err(io::ErrorKind::Unsupported.into())
}

#[cfg(test)]
mod tests {
    use super::super::pipe::Pipe;
    use super::*;

    #[cfg(target_os = "linux")]
    #[tokio::test]
    async fn it_is_set_once_and_taken_back() {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.expect("a free port");
        let socket = TcpStream::connect(listener.local_addr().expect("bound")).await.expect("it listens");
        let stream = Stream::Plain(crate::net::Socket::attached(socket));
        let read = || rustix::net::sockopt::tcp_user_timeout(stream.socket().expect("a socket"));
        for (timeout, expected) in [(Duration::from_secs(30), 30_000), (Duration::from_micros(1), 1)] {
            let ack_timeout = AckTimeout::new(timeout);
            assert!(ack_timeout.enforce(&stream));
            assert_eq!(read(), Ok(expected));
            ack_timeout.lift(&stream);
            assert_eq!(read(), Ok(0));
        }
        assert!(AckTimeout::new(Duration::MAX).enforce(&stream), "longer than the kernel can count");
    }

    #[test]
    fn a_pipe_has_none() {
        let (pipe, _other) = Pipe::new();
        assert!(!AckTimeout::new(Duration::from_secs(30)).enforce(&Stream::Pipe(pipe)));
    }
}
