//! A connection without a runtime, so that it can be moved from one thread's runtime to another's.

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
    /// The TLS session, if there is one.
    session: Option<Box<TlsSession>>,
}

impl Detached {
    /// Whether the peer has closed it. Costs a system call.
    pub fn is_over(&self) -> bool {
        match SockRef::from(&self.socket).peek(&mut [MaybeUninit::uninit()]) {
            // TLS messages of its own are no end; other input is found when the connection is used.
            Ok(read) => read == 0 || self.session.is_none(),
            Err(error) => error.kind() != io::ErrorKind::WouldBlock,
        }
    }

    /// Attaches to the runtime of the calling thread.
    pub fn resume(self) -> io::Result<Stream> {
        let socket = TcpStream::from_std(self.socket)?;
        Ok(match self.session {
            None => Stream::Plain(socket),
            Some(session) => Stream::Tls(Box::new(TlsStream::resume(socket, *session))),
        })
    }
}

impl Stream {
    /// Detaches from the runtime.
    pub fn detach(self) -> io::Result<Detached> {
        let (socket, session) = match self {
            Self::Plain(socket) => (socket, None),
            Self::Tls(tls) => {
                let (socket, session) = tls.detach();
                (socket, Some(Box::new(session)))
            }
            // An HTTP/2 stream serves one request.
            #[cfg(test)]
            Self::Pipe(_) => return Err(io::ErrorKind::Unsupported.into()),
        };
        Ok(Detached { socket: socket.into_std()?, session })
    }
}
