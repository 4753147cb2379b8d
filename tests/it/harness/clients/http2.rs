//! Backends that speak HTTP/2: one by the `h2` crate, one whose frames are written by hand.

use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use bytes::Bytes;
use h2::server::{Builder, SendResponse};
use h2::{RecvStream, SendStream};
use http::Request;
use tokio::sync::oneshot;

use crate::harness::TIMEOUT;

/// A well-behaved server on a free port. Stops when dropped.
#[derive(Debug)]
pub(crate) struct Http2Backend {
    address: SocketAddr,
    connections: Arc<AtomicUsize>,
    _stop: oneshot::Sender<()>,
}

impl Http2Backend {
    /// Calls `handler` for every request.
    pub(crate) fn start<F: Future<Output = ()> + 'static>(
        settings: Builder,
        handler: impl Fn(Request<RecvStream>, SendResponse<Bytes>) -> F + Send + 'static,
    ) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
        listener.set_nonblocking(true).expect("a socket option");
        let address = listener.local_addr().expect("bound");
        let connections = Arc::new(AtomicUsize::new(0));
        let (stop, stopped) = oneshot::channel();
        let count = Arc::clone(&connections);
        std::thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
            let tasks = tokio::task::LocalSet::new();
            let serving = async move {
                let listener = tokio::net::TcpListener::from_std(listener).expect("a listener");
                let handler = std::rc::Rc::new(handler);
                while let Ok((stream, _)) = listener.accept().await {
                    count.fetch_add(1, Ordering::SeqCst);
                    let (settings, handler) = (settings.clone(), std::rc::Rc::clone(&handler));
                    tokio::task::spawn_local(async move {
                        let Ok(mut connection) = settings.handshake(stream).await else { return };
                        while let Some(Ok((request, respond))) = connection.accept().await {
                            tokio::task::spawn_local(handler(request, respond));
                        }
                    });
                }
            };
            runtime.expect("a runtime").block_on(tasks.run_until(async {
                tokio::select! { () = serving => {}, _ = stopped => {} }
            }));
        });
        Self { address, connections, _stop: stop }
    }

    /// Where it listens.
    pub(crate) fn url(&self) -> String {
        format!("http://{}", self.address)
    }

    /// How many connections it has taken so far.
    pub(crate) fn connections(&self) -> usize {
        self.connections.load(Ordering::SeqCst)
    }
}

/// Sends all of it, as the peer takes it.
pub(crate) async fn send_all(stream: &mut SendStream<Bytes>, mut bytes: Bytes, end: bool) {
    while !bytes.is_empty() {
        stream.reserve_capacity(bytes.len());
        let capacity = std::future::poll_fn(|context| stream.poll_capacity(context)).await;
        let Some(Ok(capacity)) = capacity else { return };
        let part = bytes.split_to(capacity.min(bytes.len()));
        stream.send_data(part, end && bytes.is_empty()).ok();
    }
}

/// A listener whose connections are served frame by frame.
#[derive(Debug)]
pub(crate) struct FrameServer(TcpListener);

impl FrameServer {
    /// On a free port.
    pub(crate) fn start() -> Self {
        Self(TcpListener::bind("127.0.0.1:0").expect("a free port"))
    }

    /// Where it listens.
    pub(crate) fn url(&self) -> String {
        format!("http://{}", self.0.local_addr().expect("bound"))
    }

    /// The next connection, once both sides have said how they want it.
    pub(crate) fn accept(&self) -> Frames {
        self.accept_with(b"")
    }

    /// The next connection, with these settings (RFC 9113 §6.5.1).
    pub(crate) fn accept_with(&self, settings: &[u8]) -> Frames {
        let (stream, _) = self.0.accept().expect("a connection");
        stream.set_read_timeout(Some(TIMEOUT)).expect("a socket option");
        stream.set_nodelay(true).expect("a socket option");
        let mut frames = Frames(stream);
        let mut preface = [0; 24];
        frames.0.read_exact(&mut preface).expect("the preface");
        assert_eq!(&preface, b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n");
        frames.send(Frame::SETTINGS, 0, 0, settings);
        frames
    }

    /// Serves each connection, by its number, in a thread of its own, until the test ends.
    pub(crate) fn serve(
        self,
        serve: impl Fn(usize, &Self) -> Frames + Send + 'static,
        act: fn(usize, Frames),
    ) {
        std::thread::spawn(move || {
            for number in 0.. {
                let frames = serve(number, &self);
                std::thread::spawn(move || act(number, frames));
            }
        });
    }

    /// Whether no client connects within this time.
    pub(crate) fn is_left_alone(&self, span: Duration) -> bool {
        self.0.set_nonblocking(true).expect("a socket option");
        std::thread::sleep(span);
        let alone = self.0.accept().is_err();
        self.0.set_nonblocking(false).expect("a socket option");
        alone
    }
}

/// A frame (RFC 9113 §4.1).
#[derive(Clone, Debug)]
pub(crate) struct Frame {
    pub(crate) kind: u8,
    pub(crate) flags: u8,
    pub(crate) stream: u32,
    pub(crate) payload: Vec<u8>,
}

impl Frame {
    pub(crate) const DATA: u8 = 0;
    pub(crate) const HEADERS: u8 = 1;
    pub(crate) const RESET: u8 = 3;
    pub(crate) const SETTINGS: u8 = 4;
    pub(crate) const PING: u8 = 6;
    pub(crate) const GO_AWAY: u8 = 7;
    pub(crate) const END_STREAM: u8 = 1;
    pub(crate) const ACK: u8 = 1;
    pub(crate) const END_HEADERS: u8 = 4;

    /// Whether its stream ends with it.
    pub(crate) fn ends(&self) -> bool {
        self.flags & Self::END_STREAM != 0
    }
}

/// A connection, as frames.
#[derive(Debug)]
pub(crate) struct Frames(TcpStream);

impl Frames {
    /// The next frame that belongs to a request.
    pub(crate) fn next(&mut self) -> Frame {
        self.try_next().expect("a frame")
    }

    /// As [`Self::next`]; `None` at the end.
    pub(crate) fn try_next(&mut self) -> Option<Frame> {
        loop {
            let mut head = [0; 9];
            self.0.read_exact(&mut head).ok()?;
            let [high, middle, low, kind, flags, stream @ ..] = head;
            let mut payload = vec![0; u32::from_be_bytes([0, high, middle, low]) as usize];
            self.0.read_exact(&mut payload).ok()?;
            if kind == Frame::SETTINGS && flags & Frame::ACK == 0 {
                self.send(Frame::SETTINGS, Frame::ACK, 0, b"");
            }
            // A connection that is read is alive.
            if kind == Frame::PING && flags & Frame::ACK == 0 {
                self.send(Frame::PING, Frame::ACK, 0, &payload);
            }
            if matches!(kind, Frame::DATA | Frame::HEADERS | Frame::RESET) {
                return Some(Frame { kind, flags, stream: u32::from_be_bytes(stream), payload });
            }
        }
    }

    /// The next request, read whole: its stream and its body.
    pub(crate) fn request(&mut self) -> (u32, Vec<u8>) {
        self.requests(1).remove(0)
    }

    /// The next `count` requests, read whole, in the order in which they begin. Others may be taken back meanwhile.
    pub(crate) fn requests(&mut self, count: usize) -> Vec<(u32, Vec<u8>)> {
        let (mut requests, mut ended) = (Vec::<(u32, Vec<u8>)>::new(), 0);
        while ended < count {
            let frame = self.next();
            match frame.kind {
                Frame::HEADERS => requests.push((frame.stream, Vec::new())),
                Frame::DATA => {
                    let request = requests.iter_mut().find(|(stream, _)| *stream == frame.stream);
                    request.expect("it has begun").1.extend_from_slice(&frame.payload);
                }
                _ => continue,
            }
            ended += usize::from(frame.ends());
        }
        requests
    }

    /// Sends a frame.
    pub(crate) fn send(&mut self, kind: u8, flags: u8, stream: u32, payload: &[u8]) {
        let length = u32::try_from(payload.len()).expect("a short payload").to_be_bytes();
        let mut frame = vec![length[1], length[2], length[3], kind, flags];
        frame.extend_from_slice(&stream.to_be_bytes());
        frame.extend_from_slice(payload);
        self.0.write_all(&frame).expect("the gateway reads");
    }

    /// Sends a head with these fields, each written out (RFC 7541 §6.2.2). `ends`: nothing follows it.
    pub(crate) fn head(&mut self, stream: u32, fields: &[(&str, &str)], ends: bool) {
        let mut block = Vec::new();
        for (name, value) in fields {
            block.push(0);
            for text in [name, value] {
                block.push(u8::try_from(text.len()).expect("a short text"));
                block.extend_from_slice(text.as_bytes());
            }
        }
        let flags = Frame::END_HEADERS | if ends { Frame::END_STREAM } else { 0 };
        self.send(Frame::HEADERS, flags, stream, &block);
    }

    /// Sends a part of a body.
    pub(crate) fn data(&mut self, stream: u32, bytes: &[u8], ends: bool) {
        self.send(Frame::DATA, if ends { Frame::END_STREAM } else { 0 }, stream, bytes);
    }

    /// Answers `200` with `ok`.
    pub(crate) fn ok(&mut self, stream: u32) {
        self.head(stream, &[(":status", "200")], false);
        self.data(stream, b"ok", true);
    }

    /// Sends bytes that are no whole frame.
    pub(crate) fn raw(&mut self, bytes: &[u8]) {
        self.0.write_all(bytes).expect("the gateway reads");
    }

    /// Reads to the end, answers nothing, and counts the PING frames that ask for an answer.
    pub(crate) fn pings_to_the_end(mut self) -> usize {
        let mut bytes = Vec::new();
        self.0.read_to_end(&mut bytes).expect("the gateway closes the connection");
        let (mut rest, mut pings) = (&bytes[..], 0);
        while let [high, middle, low, kind, flags, ..] = *rest {
            pings += usize::from(kind == Frame::PING && flags & Frame::ACK == 0);
            let length = u32::from_be_bytes([0, high, middle, low]) as usize;
            rest = rest.get(9 + length..).unwrap_or_default();
        }
        pings
    }

    /// Resets a stream.
    pub(crate) fn reset(&mut self, stream: u32, code: u32) {
        self.send(Frame::RESET, 0, stream, &code.to_be_bytes());
    }

    /// Says that no stream above `last` was or will be looked at.
    pub(crate) fn go_away(&mut self, last: u32) {
        let payload = [last.to_be_bytes(), [0; 4]].concat();
        self.send(Frame::GO_AWAY, 0, 0, &payload);
    }
}
