//! Scripted backends: a small threaded HTTP/1.1 server that records what it is sent, byte for byte.

use std::io::{Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex};
use std::time::{Duration, Instant};

use rustls::{HandshakeKind, ServerConfig, ServerConnection, StreamOwned};

use crate::harness::{TIMEOUT, eventually};

/// A server on a free port. Stops, and cuts its connections, when dropped.
#[derive(Debug)]
pub(crate) struct Backend {
    address: SocketAddr,
    scheme: &'static str,
    state: Arc<State>,
}

/// How TLS was agreed on with a client.
#[derive(Clone, Debug)]
pub(crate) struct Handshake {
    /// The name that it asked for.
    pub(crate) name: Option<String>,
    /// Whether it resumed a session.
    pub(crate) resumed: bool,
    /// What ALPN came to.
    pub(crate) protocol: Option<String>,
    /// Whether it showed a certificate.
    pub(crate) certified: bool,
}

/// The bytes of a connection.
#[derive(Debug)]
enum Wire {
    Plain(TcpStream),
    Tls(Box<StreamOwned<ServerConnection, TcpStream>>),
}

/// A request as it came.
#[derive(Clone, Debug)]
pub(crate) struct Recorded {
    /// When its head was whole.
    pub(crate) at: Instant,
    /// The head, byte for byte, with the empty line.
    pub(crate) head: String,
    /// The body as it came on the wire, chunk framing included; as much as the handler has read.
    pub(crate) raw_body: Vec<u8>,
    /// The body without its framing; as much as the handler has read.
    pub(crate) body: Vec<u8>,
    /// The trailer section of a chunked body, without the empty line.
    pub(crate) trailers: String,
}

/// One request under way, in the hands of a handler.
#[derive(Debug)]
pub(crate) struct Exchange<'a> {
    /// The head with the empty line.
    pub(crate) head: String,
    /// How many requests this connection carried before.
    pub(crate) earlier: usize,
    /// Which connection this is, counted from 0.
    pub(crate) connection: usize,
    stream: &'a mut Wire,
    buffer: &'a mut Vec<u8>,
    state: &'a State,
    place: usize,
}

/// What a handler wants done with the connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Next {
    /// Take the next request.
    KeepAlive,
    /// Close it.
    Close,
    /// Reset it.
    Reset,
}

#[derive(Debug, Default)]
struct State {
    requests: Mutex<Vec<Recorded>>,
    /// One for each connection in order; none for those that were reset.
    streams: Mutex<Vec<Option<TcpStream>>>,
    handshakes: Mutex<Vec<Handshake>>,
    stopped: AtomicBool,
    gate: Gate,
}

/// Where handlers wait until the test lets them go on.
#[derive(Debug, Default)]
struct Gate {
    open: Mutex<bool>,
    opened: Condvar,
}

impl Backend {
    /// Starts a server that calls `handler` for every request head.
    pub(crate) fn start(handler: impl Fn(&mut Exchange<'_>) -> Next + Send + Sync + 'static) -> Self {
        Self::listen(None, handler)
    }

    /// As [`Self::start`], over TLS.
    pub(crate) fn start_tls(
        config: Arc<ServerConfig>,
        handler: impl Fn(&mut Exchange<'_>) -> Next + Send + Sync + 'static,
    ) -> Self {
        Self::listen(Some(config), handler)
    }

    fn listen(
        tls: Option<Arc<ServerConfig>>,
        handler: impl Fn(&mut Exchange<'_>) -> Next + Send + Sync + 'static,
    ) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
        let scheme = if tls.is_some() { "https" } else { "http" };
        let address = listener.local_addr().expect("bound");
        let state = Arc::new(State::default());
        let (shared, handler) = (Arc::clone(&state), Arc::new(handler));
        std::thread::spawn(move || {
            for (connection, stream) in listener.incoming().enumerate() {
                let (Ok(stream), false) = (stream, shared.stopped.load(Ordering::SeqCst)) else { return };
                shared.streams.lock().expect("no panic inside").push(stream.try_clone().ok());
                let (shared, handler, tls) = (Arc::clone(&shared), Arc::clone(&handler), tls.clone());
                std::thread::spawn(move || {
                    if let Some(wire) = Wire::over(stream, tls, &shared) {
                        serve(wire, connection, &shared, &*handler);
                    }
                });
            }
        });
        Self { address, scheme, state }
    }

    /// Reads each request whole and answers `200` with body `ok`.
    pub(crate) fn ok() -> Self {
        Self::answering("HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok")
    }

    /// As [`Self::ok`], over TLS.
    pub(crate) fn ok_tls(config: Arc<ServerConfig>) -> Self {
        Self::start_tls(config, |exchange| {
            exchange.read_body();
            exchange.write("HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok");
            Next::KeepAlive
        })
    }

    /// Reads each request whole and answers with these bytes.
    pub(crate) fn answering(bytes: impl Into<Vec<u8>>) -> Self {
        let bytes = bytes.into();
        Self::start(move |exchange| {
            exchange.read_body();
            exchange.write(&bytes);
            Next::KeepAlive
        })
    }

    /// Reads each request whole, answers with these bytes and closes.
    pub(crate) fn answering_once(bytes: impl Into<Vec<u8>>) -> Self {
        let bytes = bytes.into();
        Self::start(move |exchange| {
            exchange.read_body();
            exchange.write(&bytes);
            Next::Close
        })
    }

    /// An address without a listener. It stays without one while the second value is held.
    pub(crate) fn refusing() -> (SocketAddr, socket2::Socket) {
        let socket =
            socket2::Socket::new(socket2::Domain::IPV4, socket2::Type::STREAM, None).expect("a socket");
        socket.bind(&SocketAddr::from(([127, 0, 0, 1], 0)).into()).expect("a free port");
        let address = socket.local_addr().expect("bound").as_socket().expect("an IP address");
        (address, socket)
    }

    /// Where it listens.
    pub(crate) fn addr(&self) -> SocketAddr {
        self.address
    }

    /// `http://ADDRESS`, or `https://ADDRESS`.
    pub(crate) fn url(&self) -> String {
        format!("{}://{}", self.scheme, self.address)
    }

    /// The requests so far.
    pub(crate) fn requests(&self) -> Vec<Recorded> {
        self.state.requests.lock().expect("no panic inside").clone()
    }

    /// How many requests so far.
    pub(crate) fn count(&self) -> usize {
        self.state.requests.lock().expect("no panic inside").len()
    }

    /// The only request; panics if there was none or a second.
    #[track_caller]
    pub(crate) fn only(&self) -> Recorded {
        let requests = self.requests();
        assert_eq!(requests.len(), 1, "the backend got {requests:#?}");
        requests[0].clone()
    }

    /// The latest request.
    #[track_caller]
    pub(crate) fn latest(&self) -> Recorded {
        self.requests().last().expect("the backend got a request").clone()
    }

    /// Waits until it has got `count` requests.
    pub(crate) fn wait_for(&self, count: usize) {
        eventually(&format!("{count} requests at the backend"), || (self.count() >= count).then_some(()));
    }

    /// How many connections it has taken so far.
    pub(crate) fn connections(&self) -> usize {
        self.state.streams.lock().expect("no panic inside").len()
    }

    /// How TLS was agreed on, each time that it was.
    pub(crate) fn handshakes(&self) -> Vec<Handshake> {
        self.state.handshakes.lock().expect("no panic inside").clone()
    }

    /// Lets all handlers pass [`Exchange::wait_at_gate`], now and later.
    pub(crate) fn open_gate(&self) {
        *self.state.gate.open.lock().expect("no panic inside") = true;
        self.state.gate.opened.notify_all();
    }

    /// Closes all connections there are, as a server does with idle ones.
    pub(crate) fn close_connections(&self) {
        for stream in self.state.streams.lock().expect("no panic inside").iter().flatten() {
            stream.shutdown(Shutdown::Both).ok();
        }
    }
}

impl Drop for Backend {
    fn drop(&mut self) {
        self.state.stopped.store(true, Ordering::SeqCst);
        self.open_gate();
        self.close_connections();
        TcpStream::connect_timeout(&self.address, Duration::from_secs(1)).ok();
    }
}

impl Exchange<'_> {
    /// Reads the body by its framing, records and gives it without the framing.
    pub(crate) fn read_body(&mut self) -> Vec<u8> {
        let codings = self.field("transfer-encoding");
        let (body, trailers, raw) = if codings.as_deref() == Some("chunked") {
            self.read_chunks()
        } else {
            let length = self.field("content-length").and_then(|digits| digits.parse().ok()).unwrap_or(0);
            let body = self.read_exact(length);
            (body.clone(), String::new(), body)
        };
        let mut requests = self.state.requests.lock().expect("no panic inside");
        let recorded = &mut requests[self.place];
        (recorded.body, recorded.trailers, recorded.raw_body) = (body.clone(), trailers, raw);
        body
    }

    /// A field's value, as the recorded head has it.
    pub(crate) fn field(&self, name: &str) -> Option<String> {
        field_of(&self.head, name)
    }

    /// The request's target.
    pub(crate) fn target(&self) -> &str {
        self.head.split(' ').nth(1).unwrap_or_default()
    }

    /// Sends bytes; a peer that has gone is not a fault. False if it has.
    pub(crate) fn write(&mut self, bytes: impl AsRef<[u8]>) -> bool {
        self.stream.write_all(bytes.as_ref()).is_ok()
    }

    /// Says something that concerns TLS alone: from now on there are new keys.
    pub(crate) fn renew_keys(&mut self) {
        if let Wire::Tls(stream) = self.stream {
            stream.conn.refresh_traffic_keys().expect("TLS 1.3");
            stream.flush().ok();
        }
    }

    /// Reads some bytes as they come; empty at the end of the stream.
    pub(crate) fn read_some(&mut self) -> Vec<u8> {
        if self.buffer.is_empty() && !fill(self.stream, self.buffer) {
            return Vec::new();
        }
        std::mem::take(self.buffer)
    }

    /// Reads this number of bytes, or fewer at the end of the stream.
    pub(crate) fn read_exact(&mut self, count: usize) -> Vec<u8> {
        while self.buffer.len() < count && fill(self.stream, self.buffer) {}
        let count = count.min(self.buffer.len());
        self.buffer.drain(..count).collect()
    }

    /// Waits until the peer closes (or [`TIMEOUT`] is over): how a backend hangs.
    pub(crate) fn hang(&mut self) {
        while fill(self.stream, self.buffer) {}
    }

    /// Waits until the test opens the gate.
    pub(crate) fn wait_at_gate(&self) {
        let open = self.state.gate.open.lock().expect("no panic inside");
        drop(self.state.gate.opened.wait_timeout_while(open, TIMEOUT, |open| !*open));
    }

    fn read_chunks(&mut self) -> (Vec<u8>, String, Vec<u8>) {
        let (mut body, mut raw) = (Vec::new(), Vec::new());
        loop {
            let line = self.read_line(&mut raw);
            let digits = line.split(';').next().unwrap_or_default().trim();
            let Some(size) = usize::from_str_radix(digits, 16).ok().filter(|size| *size > 0) else { break };
            let chunk = self.read_exact(size);
            raw.extend_from_slice(&chunk);
            body.extend(chunk);
            self.read_line(&mut raw);
        }
        let mut trailers = String::new();
        loop {
            let line = self.read_line(&mut raw);
            if line.is_empty() {
                return (body, trailers, raw);
            }
            trailers.push_str(&line);
            trailers.push_str("\r\n");
        }
    }

    fn read_line(&mut self, raw: &mut Vec<u8>) -> String {
        let line = take_through(self.stream, self.buffer, b"\r\n").unwrap_or_default();
        raw.extend_from_slice(&line);
        String::from_utf8_lossy(&line).trim_end_matches("\r\n").to_owned()
    }
}

impl Recorded {
    /// A field's value; panics if it came more than once.
    #[track_caller]
    pub(crate) fn header(&self, name: &str) -> Option<String> {
        let values = self.header_all(name);
        assert!(values.len() < 2, "`{name}` came {} times:\n{}", values.len(), self.head);
        values.into_iter().next()
    }

    /// All values of a field.
    pub(crate) fn header_all(&self, name: &str) -> Vec<String> {
        fields_of(&self.head, name).collect()
    }

    /// `METHOD TARGET VERSION`.
    pub(crate) fn request_line(&self) -> &str {
        self.head.split("\r\n").next().unwrap_or_default()
    }

    /// The target.
    pub(crate) fn target(&self) -> &str {
        self.head.split(' ').nth(1).unwrap_or_default()
    }
}

impl Wire {
    /// `None` if TLS was not agreed on.
    fn over(mut stream: TcpStream, tls: Option<Arc<ServerConfig>>, state: &State) -> Option<Self> {
        stream.set_read_timeout(Some(TIMEOUT)).ok();
        stream.set_write_timeout(Some(TIMEOUT)).ok();
        stream.set_nodelay(true).ok();
        let Some(config) = tls else { return Some(Self::Plain(stream)) };
        let mut session = ServerConnection::new(config).expect("a session");
        while session.is_handshaking() {
            session.complete_io(&mut stream).ok()?;
        }
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        state.handshakes.lock().expect("no panic inside").push(Handshake {
            name: session.server_name().map(str::to_owned),
            resumed: session.handshake_kind() == Some(HandshakeKind::Resumed),
            protocol: session.alpn_protocol().map(text),
            certified: session.peer_certificates().is_some(),
        });
        Some(Self::Tls(Box::new(StreamOwned::new(session, stream))))
    }

    fn socket(&self) -> &TcpStream {
        match self {
            Self::Plain(stream) => stream,
            Self::Tls(stream) => &stream.sock,
        }
    }
}

impl Read for Wire {
    fn read(&mut self, buffer: &mut [u8]) -> std::io::Result<usize> {
        match self {
            Self::Plain(stream) => stream.read(buffer),
            Self::Tls(stream) => stream.read(buffer),
        }
    }
}

impl Write for Wire {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        match self {
            Self::Plain(stream) => stream.write(bytes),
            Self::Tls(stream) => stream.write(bytes),
        }
    }

    fn flush(&mut self) -> std::io::Result<()> {
        match self {
            Self::Plain(stream) => stream.flush(),
            Self::Tls(stream) => stream.flush(),
        }
    }
}

fn serve(mut stream: Wire, connection: usize, state: &State, handler: &dyn Fn(&mut Exchange<'_>) -> Next) {
    let mut buffer = Vec::new();
    for earlier in 0.. {
        let Some(head) = take_through(&mut stream, &mut buffer, b"\r\n\r\n") else { break };
        let head = String::from_utf8_lossy(&head).into_owned();
        let (place, buffer) = (state.record(&head), &mut buffer);
        let mut exchange = Exchange { head, earlier, connection, stream: &mut stream, buffer, state, place };
        match handler(&mut exchange) {
            Next::KeepAlive => {}
            Next::Close => break,
            Next::Reset => {
                socket2::SockRef::from(stream.socket()).set_linger(Some(Duration::ZERO)).ok();
                state.forget(connection);
                return;
            }
        }
    }
    if let Wire::Tls(stream) = &mut stream {
        stream.conn.send_close_notify();
        stream.flush().ok();
    }
    stream.socket().shutdown(Shutdown::Both).ok();
}

impl State {
    fn record(&self, head: &str) -> usize {
        let mut requests = self.requests.lock().expect("no panic inside");
        requests.push(Recorded {
            at: Instant::now(),
            head: head.to_owned(),
            raw_body: Vec::new(),
            body: Vec::new(),
            trailers: String::new(),
        });
        requests.len() - 1
    }

    /// Gives up the second handle of a connection, so that dropping the first resets it.
    fn forget(&self, connection: usize) {
        self.streams.lock().expect("no panic inside")[connection] = None;
    }
}

fn take_through(stream: &mut Wire, buffer: &mut Vec<u8>, mark: &[u8]) -> Option<Vec<u8>> {
    loop {
        if let Some(at) = memchr::memmem::find(buffer, mark) {
            return Some(buffer.drain(..at + mark.len()).collect());
        }
        if !fill(stream, buffer) {
            return None;
        }
    }
}

/// Takes what has come; false at the end of the stream.
fn fill(stream: &mut Wire, buffer: &mut Vec<u8>) -> bool {
    let mut bytes = [0; 64 * 1024];
    match stream.read(&mut bytes) {
        Ok(count) if count > 0 => {
            buffer.extend_from_slice(&bytes[..count]);
            true
        }
        _ => false,
    }
}

fn field_of(head: &str, name: &str) -> Option<String> {
    fields_of(head, name).next()
}

fn fields_of(head: &str, name: &str) -> impl Iterator<Item = String> {
    let lines = head.split("\r\n").skip(1).filter_map(|line| line.split_once(':'));
    lines.filter(move |(field, _)| field.eq_ignore_ascii_case(name)).map(|(_, value)| value.trim().to_owned())
}
