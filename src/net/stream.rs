//! A connection, with or without TLS. All are used through a shared reference, as a socket is.

use std::io;
use std::sync::Arc;
use std::task::{Context, Poll};

use bytes::BytesMut;
use rustls::pki_types::ServerName;
use rustls::{ClientConfig, ServerConfig};
use tokio::net::TcpStream;

#[cfg(test)]
use super::pipe::Pipe;
use super::tls::{Alpn, TlsStream};
use super::{Peek, close_sending, has_input, peek, poll_peek, poll_read, poll_write, reset_on_close};

/// A connection.
#[derive(Debug)]
pub enum Stream {
    /// The socket's own bytes.
    Plain(TcpStream),
    /// Behind TLS, agreed on already.
    Tls(Box<TlsStream>),
    /// To a test.
    #[cfg(test)]
    Pipe(Pipe),
}

impl Stream {
    /// Agrees on TLS with a client. No time-out: who calls bounds the wait.
    ///
    /// # Errors
    /// The client speaks no TLS, none that we speak, refuses our certificate, lacks one of its own, or has left.
    pub async fn accept(socket: TcpStream, config: Arc<ServerConfig>) -> io::Result<Self> {
        let tls = Box::new(TlsStream::accept(socket, config).await?);
        Ok(Self::Tls(tls))
    }

    /// Agrees on TLS with a server, whose certificate must be for `name`. No time-out: who calls bounds the wait.
    ///
    /// # Errors
    /// The server speaks no TLS, none that we speak, shows a certificate that is not its own or that we do not trust, refuses
    /// ours, or has left. A server that speaks TLS 1.3 may refuse ours only when it is read from.
    pub async fn connect_tls(
        socket: TcpStream,
        config: Arc<ClientConfig>,
        name: ServerName<'static>,
    ) -> io::Result<Self> {
        let tls = Box::new(TlsStream::connect(socket, config, name).await?);
        Ok(Self::Tls(tls))
    }

    /// Reads at most `most` bytes behind what is in `buffer`. Ready with 0 at the end of the stream; TLS that ends without
    /// saying so is an error.
    // Inlined as far as the plain way goes, as the next two are: with a call more for each of the five or six reads and
    // writes of a request, the choice between three would cost more than any of them has to.
    #[inline(always)]
    pub fn poll_read(
        &self,
        context: &mut Context<'_>,
        buffer: &mut BytesMut,
        most: usize,
    ) -> Poll<io::Result<usize>> {
        match self {
            Self::Plain(socket) => poll_read(socket, context, buffer, most),
            layered => layered.poll_read_layered(context, buffer, most),
        }
    }

    #[inline(never)]
    fn poll_read_layered(
        &self,
        context: &mut Context<'_>,
        buffer: &mut BytesMut,
        most: usize,
    ) -> Poll<io::Result<usize>> {
        match self {
            Self::Plain(socket) => poll_read(socket, context, buffer, most),
            Self::Tls(tls) => tls.poll_read(context, buffer, most),
            #[cfg(test)]
            Self::Pipe(pipe) => pipe.poll_read(context, buffer, most),
        }
    }

    /// Writes what is taken of two slices. What TLS has taken may still wait for the socket: see [`Self::poll_flush`].
    #[inline(always)]
    pub fn poll_write(
        &self,
        context: &mut Context<'_>,
        first: &[u8],
        second: &[u8],
    ) -> Poll<io::Result<usize>> {
        match self {
            Self::Plain(socket) => poll_write(socket, context, first, second),
            layered => layered.poll_write_layered(context, first, second),
        }
    }

    #[inline(never)]
    fn poll_write_layered(
        &self,
        context: &mut Context<'_>,
        first: &[u8],
        second: &[u8],
    ) -> Poll<io::Result<usize>> {
        match self {
            Self::Plain(socket) => poll_write(socket, context, first, second),
            Self::Tls(tls) => tls.poll_write(context, first, second),
            #[cfg(test)]
            Self::Pipe(pipe) => pipe.poll_write(context, first, second),
        }
    }

    /// Ready once the socket has taken all that was written. Reading and writing send on what is left, too.
    #[inline(always)]
    pub fn poll_flush(&self, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self {
            Self::Plain(_) => Poll::Ready(Ok(())),
            #[cfg(test)]
            Self::Pipe(_) => Poll::Ready(Ok(())),
            Self::Tls(tls) => tls.poll_flush(context),
        }
    }

    /// Bytes that the socket took behind the back of [`Self::poll_write`], which is pending meanwhile: a sign of life.
    pub fn bytes_written(&self) -> u64 {
        match self {
            Self::Plain(_) => 0,
            #[cfg(test)]
            Self::Pipe(_) => 0,
            Self::Tls(tls) => tls.bytes_written(),
        }
    }

    /// Whether there is something to read as far as the runtime knows, be it the end: see [`has_news`]. What TLS says for itself
    /// is taken in, and is no news.
    pub fn has_input(&self) -> bool {
        match self {
            Self::Plain(socket) => has_input(socket),
            Self::Tls(tls) => tls.has_input(),
            #[cfg(test)]
            Self::Pipe(pipe) => pipe.has_input(),
        }
    }

    /// Asks the kernel what there is to read. Costs a system call. What TLS says for itself is taken in, and is silence.
    pub fn peek(&self) -> Peek {
        match self {
            Self::Plain(socket) => peek(socket),
            Self::Tls(tls) => tls.peek(),
            #[cfg(test)]
            Self::Pipe(pipe) => pipe.peek(),
        }
    }

    /// Ready with what is there to read, other than silence. Of a pipe it shows only that it is broken.
    pub fn poll_peek(&self, context: &mut Context<'_>) -> Poll<Peek> {
        match self {
            Self::Plain(socket) => poll_peek(socket, context),
            Self::Tls(tls) => poll_peek(tls.socket(), context),
            #[cfg(test)]
            Self::Pipe(pipe) => pipe.poll_peek(context),
        }
    }

    /// Closes our sending side; TLS says so first.
    pub fn close_sending(&self) -> io::Result<()> {
        match self {
            Self::Plain(socket) => close_sending(socket),
            Self::Tls(tls) => {
                tls.send_close_notify();
                close_sending(tls.socket())
            }
            #[cfg(test)]
            Self::Pipe(pipe) => {
                pipe.close_sending();
                Ok(())
            }
        }
    }

    /// Makes the socket's close a reset: whatever is unsent is dropped, and the other side knows that something is missing.
    pub fn reset_on_close(&self) {
        // A pipe that is not closed in so many words is broken anyway.
        if let Some(socket) = self.socket() {
            reset_on_close(socket);
        }
    }

    /// Whether it is behind TLS.
    pub fn is_tls(&self) -> bool {
        matches!(self, Self::Tls(_))
    }

    /// The protocol that was agreed on with TLS. `None`: TLS is not spoken, or the other side does not use ALPN.
    pub fn alpn(&self) -> Option<Alpn> {
        match self {
            Self::Plain(_) => None,
            #[cfg(test)]
            Self::Pipe(_) => None,
            Self::Tls(tls) => tls.alpn(),
        }
    }

    /// The subject of the other side's certificate, as `CN=a, O=b`. `None` if it has shown none.
    pub fn subject(&self) -> Option<String> {
        match self {
            Self::Plain(_) => None,
            #[cfg(test)]
            Self::Pipe(_) => None,
            Self::Tls(tls) => tls.subject(),
        }
    }

    /// What it rests on, if it leaves the process.
    pub fn socket(&self) -> Option<&TcpStream> {
        match self {
            Self::Plain(socket) => Some(socket),
            Self::Tls(tls) => Some(tls.socket()),
            #[cfg(test)]
            Self::Pipe(_) => None,
        }
    }
}
