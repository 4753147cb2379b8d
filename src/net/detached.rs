//! A connection that nobody watches, so that it can go from one thread's runtime to another's.

use std::io;
use std::mem::MaybeUninit;

use socket2::SockRef;
use tokio::net::TcpStream;

use super::stream::Stream;
use super::tls::{TlsSession, TlsStream};

/// A connection without a runtime.
#[derive(Debug)]
pub struct Detached {
    socket: std::net::TcpStream,
    /// Where TLS is spoken.
    session: Option<Box<TlsSession>>,
}

impl Detached {
    /// Whether the other side has closed it. Costs a system call.
    pub fn is_over(&self) -> bool {
        match SockRef::from(&self.socket).peek(&mut [MaybeUninit::uninit()]) {
            // What TLS says for itself is no end; anything else is found when it is used.
            Ok(read) => read == 0 || self.session.is_none(),
            Err(error) => error.kind() != io::ErrorKind::WouldBlock,
        }
    }

    /// Goes to the runtime of the calling thread.
    pub fn resume(self) -> io::Result<Stream> {
        let socket = TcpStream::from_std(self.socket)?;
        Ok(match self.session {
            None => Stream::Plain(socket),
            Some(session) => Stream::Tls(Box::new(TlsStream::resume(socket, *session))),
        })
    }
}

impl Stream {
    /// Leaves the runtime.
    pub fn detach(self) -> io::Result<Detached> {
        let (socket, session) = match self {
            Self::Plain(socket) => (socket, None),
            Self::Tls(tls) => {
                let (socket, session) = tls.detach();
                (socket, Some(Box::new(session)))
            }
            // A stream of HTTP/2 serves one request.
            #[cfg(test)]
            Self::Pipe(_) => return Err(io::ErrorKind::Unsupported.into()),
        };
        Ok(Detached { socket: socket.into_std()?, session })
    }
}
