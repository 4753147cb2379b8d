//! One connection and what goes over it: a request out, an answer back.

use std::io::{self, Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::num::NonZeroU64;
use std::time::Instant;

/// No head may be longer than this.
const MAX_START: usize = 16 * 1024;
/// Bytes of a body that are read at once.
pub(crate) const PART: usize = 128 * 1024;
/// Opens a WebSocket connection. The key is the example of RFC 6455, section 1.3.
const UPGRADE: &[u8] = b"GET / HTTP/1.1\r\nhost: localhost\r\nupgrade: websocket\r\nconnection: upgrade\r\n\
    sec-websocket-version: 13\r\nsec-websocket-key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n";
const SWITCHING_PROTOCOLS: u16 = 101;
/// Bytes of a WebSocket message without its frame's head.
const MESSAGE: u8 = 100;
/// Digits of a key.
const DIGITS: usize = 16;

/// The bytes of the next request: made once, only the key's digits change.
pub(crate) struct Request {
    bytes: Vec<u8>,
    /// Where the key's digits end.
    digits_end: usize,
    keys: Option<NonZeroU64>,
    next_key: Option<u64>,
    random: u64,
}

impl Request {
    /// `headers`: further ones, `NAME: VALUE`.
    pub(crate) fn new(
        path: &str,
        headers: &[String],
        closes: bool,
        keys: Option<NonZeroU64>,
        first_key: Option<u64>,
    ) -> Self {
        let mut text = format!("GET {path} HTTP/1.1\r\nhost: localhost\r\n");
        for header in headers {
            text.extend([header, "\r\n"]);
        }
        if closes {
            text.push_str("connection: close\r\n");
        }
        if keys.is_some() || first_key.is_some() {
            text.push_str("x-api-key: ");
            text.push_str(&"0".repeat(DIGITS));
        } else {
            text.push_str("accept: */*");
        }
        let digits_end = text.len();
        text.push_str("\r\n\r\n");
        Self { bytes: text.into(), digits_end, keys, next_key: first_key, random: 0x9e37_79b9_7f4a_7c15 }
    }

    /// A message of a WebSocket connection: a masked frame of binary data (RFC 6455, section 5.2).
    pub(crate) fn message() -> Self {
        let mut bytes = vec![0x82, 0x80 | MESSAGE, 1, 2, 3, 4];
        bytes.resize(bytes.len() + usize::from(MESSAGE), b'x');
        Self { digits_end: bytes.len(), bytes, keys: None, next_key: None, random: 1 }
    }

    pub(crate) fn next(&mut self) -> &[u8] {
        if let Some(keys) = self.keys {
            let random = self.random();
            self.write_key(random % keys);
        } else if let Some(key) = self.next_key {
            self.next_key = Some(key + 1);
            self.write_key(key);
        }
        &self.bytes
    }

    /// Xorshift: the same sequence in every run.
    fn random(&mut self) -> u64 {
        self.random ^= self.random << 13;
        self.random ^= self.random >> 7;
        self.random ^= self.random << 17;
        self.random
    }

    fn write_key(&mut self, mut key: u64) {
        for digit in self.bytes[self.digits_end - DIGITS..self.digits_end].iter_mut().rev() {
            *digit = b"0123456789abcdef"[usize::from(key.to_le_bytes()[0] & 15)];
            key >>= 4;
        }
    }
}

/// A connection with at most one request on its way.
pub(crate) struct Connection {
    stream: TcpStream,
    due: Instant,
    /// The beginning of an answer, until its head is whole.
    start: Vec<u8>,
    filled: usize,
    /// The answer whose body is coming.
    coming: Option<Coming>,
    /// It carries messages, and each is answered by its echo.
    is_websocket: bool,
}

/// An answer whose head has come.
struct Coming {
    status: u16,
    closes: bool,
    /// Bytes of the body that have not come yet.
    left: usize,
}

/// An answer that has come whole.
pub(crate) struct Answer {
    pub(crate) status: u16,
    /// When its request was due.
    pub(crate) due: Instant,
    /// The connection cannot be used again.
    pub(crate) closes: bool,
}

impl Connection {
    pub(crate) fn open(address: SocketAddr) -> io::Result<Self> {
        let stream = TcpStream::connect(address)?;
        stream.set_nodelay(true)?;
        stream.set_nonblocking(true)?;
        let start = vec![0; MAX_START];
        Ok(Self { stream, due: Instant::now(), start, filled: 0, coming: None, is_websocket: false })
    }

    /// Makes a new connection one of WebSocket, and waits for the gateway's response.
    pub(crate) fn upgrade(&mut self) -> io::Result<()> {
        self.stream.set_nonblocking(false)?;
        self.stream.write_all(UPGRADE)?;
        while !self.start[..self.filled].ends_with(b"\r\n\r\n") {
            match self.stream.read(&mut self.start[self.filled..])? {
                0 => return Err(io::Error::other("the gateway closed a connection instead of upgrading it")),
                count => self.filled += count,
            }
        }
        if !self.start.starts_with(b"HTTP/1.1 101") {
            let head = String::from_utf8_lossy(&self.start[..self.filled]).into_owned();
            return Err(io::Error::other(format!("not upgraded: {head}")));
        }
        self.is_websocket = true;
        self.stream.set_nonblocking(true)
    }

    pub(crate) fn socket(&self) -> &TcpStream {
        &self.stream
    }

    pub(crate) fn send(&mut self, request: &[u8], due: Instant) -> io::Result<()> {
        self.due = due;
        if self.is_websocket {
            self.coming = Some(Coming { status: SWITCHING_PROTOCOLS, closes: false, left: request.len() });
        }
        // So few bytes always fit into the socket's buffer.
        self.stream.write_all(request)
    }

    /// Takes what has come; an answer when it is whole, and the connection has ended if it is the last one. `part` is
    /// overwritten.
    pub(crate) fn receive(&mut self, part: &mut [u8]) -> io::Result<Option<Answer>> {
        let target = if self.coming.is_some() { part } else { &mut self.start[self.filled..] };
        let count = match self.stream.read(target) {
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(None),
            result => result?,
        };
        let Some(coming) = &mut self.coming else { return self.begin(count) };
        if count > 0 {
            coming.left =
                coming.left.checked_sub(count).ok_or_else(|| io::Error::other("an answer is too long"))?;
        } else if coming.left > 0 || !coming.closes {
            return Err(io::Error::other("the gateway closed a connection within an answer"));
        }
        Ok(self.whole(count == 0))
    }

    /// Takes `count` bytes up to a whole head.
    fn begin(&mut self, count: usize) -> io::Result<Option<Answer>> {
        if count == 0 {
            return Err(io::Error::other(
                "the gateway closed a connection without an answer, or a head is too long",
            ));
        }
        self.filled += count;
        let Some(head) = Head::read(&self.start[..self.filled])? else { return Ok(None) };
        let left =
            head.whole.checked_sub(self.filled).ok_or_else(|| io::Error::other("an answer is too long"))?;
        self.coming = Some(Coming { status: head.status, closes: head.closes, left });
        Ok(self.whole(false))
    }

    fn whole(&mut self, has_ended: bool) -> Option<Answer> {
        let Coming { status, closes, .. } =
            self.coming.take_if(|coming| coming.left == 0 && coming.closes == has_ended)?;
        self.filled = 0;
        Some(Answer { status, due: self.due, closes })
    }
}

/// What matters of an answer's head.
struct Head {
    status: u16,
    /// Bytes of head and body.
    whole: usize,
    closes: bool,
}

impl Head {
    /// `None` while it is incomplete. Bodies must have a `content-length`.
    fn read(bytes: &[u8]) -> io::Result<Option<Self>> {
        let Some(end) = memchr::memmem::find(bytes, b"\r\n\r\n") else { return Ok(None) };
        let text = std::str::from_utf8(&bytes[..end]).map_err(io::Error::other)?;
        let status = text.get(9..12).and_then(|digits| digits.parse().ok());
        let status = status.ok_or_else(|| io::Error::other(format!("not an answer: {text}")))?;
        let (mut length, mut closes) = (None, false);
        for (name, value) in text.lines().filter_map(|line| line.split_once(':')) {
            if name.eq_ignore_ascii_case("content-length") {
                length = value.trim().parse::<usize>().ok();
            } else if name.eq_ignore_ascii_case("connection") {
                closes = value.trim().eq_ignore_ascii_case("close");
            }
        }
        let length = length.ok_or_else(|| io::Error::other(format!("no content-length: {text}")))?;
        Ok(Some(Self { status, whole: end + 4 + length, closes }))
    }
}
