//! A plain socket that joins the runtime only once it has to wait.
//!
//! A client that opens a connection for each request has usually sent it when the connection is accepted. Such a socket
//! is read, answered and closed without a registration at epoll, which costs two system calls and a wake-up.

use std::cell::{Cell, OnceCell, RefCell};
use std::io::{self, IoSlice, Read as _, Write as _};
use std::task::{Context, Poll};

use bytes::BytesMut;
use tokio::net::TcpStream;

use super::{
    Peek, close_sending, has_input, peek, poll_peek, poll_read, poll_write, poll_write_last, write_last,
};

/// Bytes that are read at most before the socket joins the runtime.
const FIRST_READ: usize = 2048;

/// A plain socket.
#[derive(Debug)]
pub struct Socket {
    attached: OnceCell<TcpStream>,
    /// The socket until then. `None` afterwards.
    detached: RefCell<Option<std::net::TcpStream>>,
    /// It was read before it was attached.
    was_read: Cell<bool>,
}

impl Socket {
    /// A socket that the runtime knows.
    pub fn attached(socket: TcpStream) -> Self {
        Self { attached: OnceCell::from(socket), detached: RefCell::new(None), was_read: Cell::new(false) }
    }

    /// A socket that the runtime does not know yet. It must be in non-blocking mode.
    pub fn detached(socket: std::net::TcpStream) -> Self {
        Self { attached: OnceCell::new(), detached: RefCell::new(Some(socket)), was_read: Cell::new(false) }
    }

    /// Whether the runtime knows the socket.
    pub fn is_attached(&self) -> bool {
        self.attached.get().is_some()
    }

    /// The socket, known to the runtime from now on.
    pub fn attach(&self) -> io::Result<&TcpStream> {
        if let Some(attached) = self.attached.get() {
            return Ok(attached);
        }
        // It is missing only if the runtime refused it before.
        let socket = self.detached.take().ok_or(io::ErrorKind::NotConnected)?;
        let attached = TcpStream::from_std(socket)?;
        Ok(self.attached.get_or_init(|| attached))
    }

    /// As [`Self::attach`], for reading with the runtime's own functions.
    pub fn attach_mut(&mut self) -> io::Result<&mut TcpStream> {
        self.attach()?;
        self.attached.get_mut().ok_or_else(|| io::ErrorKind::NotConnected.into())
    }

    /// Takes the socket out, known to the runtime.
    pub fn into_attached(self) -> io::Result<TcpStream> {
        self.attach()?;
        self.attached.into_inner().ok_or_else(|| io::ErrorKind::NotConnected.into())
    }

    /// A non-blocking operation before the socket is attached. `None`: it would wait, or the socket is attached.
    fn try_detached<T>(
        &self,
        operation: impl FnOnce(&std::net::TcpStream) -> io::Result<T>,
    ) -> Option<io::Result<T>> {
        match operation(self.detached.borrow().as_ref()?) {
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => None,
            result => Some(result),
        }
    }

    #[inline(always)]
    pub(super) fn poll_read(
        &self,
        context: &mut Context<'_>,
        buffer: &mut BytesMut,
        max: usize,
    ) -> Poll<io::Result<usize>> {
        match self.attached.get() {
            Some(socket) => poll_read(socket, context, buffer, max),
            None => self.poll_first_read(context, buffer, max),
        }
    }

    #[inline(never)]
    fn poll_first_read(
        &self,
        context: &mut Context<'_>,
        buffer: &mut BytesMut,
        max: usize,
    ) -> Poll<io::Result<usize>> {
        let mut bytes = [0; FIRST_READ];
        let (room, _) = bytes.split_at_mut(max.min(FIRST_READ));
        // More than one read is a connection that is kept, or a body: it has to wait sooner or later.
        let first = if self.was_read.replace(true) {
            None
        } else {
            self.try_detached(|mut socket| socket.read(room))
        };
        let Some(read) = first.transpose()? else { return poll_read(self.attach()?, context, buffer, max) };
        buffer.extend_from_slice(room.get(..read).unwrap_or_default());
        Poll::Ready(Ok(read))
    }

    /// See [`super::has_input`]. Before the socket is attached, the kernel is asked.
    pub(super) fn has_input(&self) -> bool {
        match self.attached.get() {
            Some(socket) => has_input(socket),
            None => self.peek() != Peek::Silence,
        }
    }

    /// See [`super::peek`].
    pub(super) fn peek(&self) -> Peek {
        match self.attached.get() {
            Some(socket) => peek(socket),
            None => self
                .try_detached(|socket| Ok(peek(socket)))
                .map_or(Peek::Silence, |seen| seen.unwrap_or(Peek::Broken)),
        }
    }

    /// See [`super::poll_peek`].
    pub(super) fn poll_peek(&self, context: &mut Context<'_>) -> Poll<Peek> {
        match self.attach() {
            Ok(socket) => poll_peek(socket, context),
            Err(_) => Poll::Ready(Peek::Broken),
        }
    }

    /// See [`super::close_sending`].
    pub(super) fn close_sending(&self) -> io::Result<()> {
        match self.attached.get() {
            Some(socket) => close_sending(socket),
            None => {
                self.try_detached(close_sending).unwrap_or_else(|| Err(io::ErrorKind::NotConnected.into()))
            }
        }
    }

    #[inline(always)]
    pub(super) fn poll_write(
        &self,
        context: &mut Context<'_>,
        first: &[u8],
        second: &[u8],
    ) -> Poll<io::Result<usize>> {
        match self.attached.get() {
            Some(socket) => poll_write(socket, context, first, second),
            None => self.poll_first_write(context, first, second),
        }
    }

    #[inline(never)]
    fn poll_first_write(
        &self,
        context: &mut Context<'_>,
        first: &[u8],
        second: &[u8],
    ) -> Poll<io::Result<usize>> {
        let write = |mut socket: &std::net::TcpStream| match (first, second) {
            (only, []) | ([], only) => socket.write(only),
            _ => socket.write_vectored(&[IoSlice::new(first), IoSlice::new(second)]),
        };
        match self.try_detached(write) {
            Some(written) => Poll::Ready(written),
            None => poll_write(self.attach()?, context, first, second),
        }
    }

    /// See [`super::poll_write_last`].
    pub(super) fn poll_write_last(&self, context: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        match self.try_detached(|socket| write_last(socket, &[IoSlice::new(bytes)])) {
            Some(written) => Poll::Ready(written),
            None => poll_write_last(self.attach()?, context, bytes),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::future::poll_fn;
    use std::net::{TcpListener, TcpStream as Client};
    use std::task::Waker;

    use super::*;

    /// A client and the socket that was accepted from it.
    fn pair() -> (Client, Socket) {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
        let client = Client::connect(listener.local_addr().expect("bound")).expect("it listens");
        let (socket, _) = listener.accept().expect("one waits");
        socket.set_nonblocking(true).expect("a socket");
        (client, Socket::detached(socket))
    }

    async fn read(socket: &Socket, max: usize) -> io::Result<BytesMut> {
        let mut bytes = BytesMut::new();
        poll_fn(|context| socket.poll_read(context, &mut bytes, max)).await?;
        Ok(bytes)
    }

    async fn write(socket: &Socket, mut bytes: &[u8]) {
        while !bytes.is_empty() {
            let written = poll_fn(|context| socket.poll_write(context, bytes, &[])).await.expect("it reads");
            bytes = &bytes[written..];
        }
    }

    #[tokio::test]
    async fn a_request_that_is_there_is_read_and_answered_without_the_runtime() {
        let (mut client, socket) = pair();
        client.write_all(b"GET").expect("sent");
        assert_eq!(read(&socket, 2).await.expect("bytes"), "GE");
        assert_eq!((socket.peek(), socket.has_input()), (Peek::Bytes, true));
        write(&socket, b"200").await;
        socket.close_sending().expect("open");
        assert!(!socket.is_attached());
        let mut answer = String::new();
        client.read_to_string(&mut answer).expect("the end");
        assert_eq!(answer, "200");
    }

    #[tokio::test]
    async fn a_socket_joins_the_runtime_when_it_has_to_wait() {
        let (mut client, socket) = pair();
        let mut bytes = BytesMut::new();
        assert_eq!((socket.peek(), socket.has_input()), (Peek::Silence, false));
        assert!(socket.poll_read(&mut Context::from_waker(Waker::noop()), &mut bytes, 9).is_pending());
        assert!(socket.is_attached());
        client.write_all(b"GET").expect("sent");
        assert_eq!(read(&socket, 9).await.expect("bytes"), "GET");
        drop(client);
        assert_eq!(read(&socket, 9).await.expect("the end"), "");
    }

    #[tokio::test]
    async fn a_second_read_joins_the_runtime_and_misses_nothing() {
        let (mut client, socket) = pair();
        client.write_all(b"GET /").expect("sent");
        assert_eq!(read(&socket, 3).await.expect("bytes"), "GET");
        assert!(!socket.is_attached());
        assert_eq!(read(&socket, 3).await.expect("bytes"), " /");
        assert!(socket.is_attached());
    }

    #[tokio::test]
    async fn an_answer_that_does_not_fit_into_the_kernels_buffer_joins_the_runtime() {
        let (mut client, socket) = pair();
        let answer = vec![b'x'; 32 << 20];
        let reader = std::thread::spawn(move || client.read_to_end(&mut Vec::new()));
        write(&socket, &answer).await;
        assert!(socket.is_attached());
        drop(socket);
        assert_eq!(reader.join().expect("no panic").expect("the end"), answer.len());
    }

    /// So that one segment has both. The kernel waits for 200 ms, which a slow machine may let pass.
    #[cfg(target_os = "linux")]
    #[tokio::test]
    async fn the_last_bytes_wait_for_the_end_of_the_connection() {
        let mut waited = false;
        for _ in 0..20 {
            let (mut client, socket) = pair();
            let mut written = 0;
            while written < 3 {
                let rest = &b"200"[written..];
                written += poll_fn(|context| socket.poll_write_last(context, rest)).await.expect("it reads");
            }
            client.set_nonblocking(true).expect("a socket");
            waited |= client.peek(&mut [0; 8]).is_err_and(|error| error.kind() == io::ErrorKind::WouldBlock);
            drop(socket);
            client.set_nonblocking(false).expect("a socket");
            let mut answer = String::new();
            client.read_to_string(&mut answer).expect("the end");
            assert_eq!(answer, "200");
        }
        assert!(waited);
    }

    #[tokio::test]
    async fn the_end_is_seen_without_the_runtime() {
        let (client, socket) = pair();
        client.shutdown(std::net::Shutdown::Write).expect("open");
        assert_eq!((socket.peek(), socket.has_input()), (Peek::End, true));
        assert_eq!(read(&socket, 9).await.expect("the end"), "");
        assert!(!socket.is_attached());
    }
}
