//! The connection against peers with hand-written frames: see the modules.

use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll, Wake, Waker};

use bytes::{Buf as _, BytesMut};

use super::super::frame::{FrameHeader, HEADER_LENGTH, flag, kind};
use super::super::traffic::Traffic;
use super::{ErrorCode, Http2Codec, LocalSettings, PREFACE, ReceivedRequest, StreamHandle};
use crate::net::{Pipe, Stream};

mod cuts;
mod memory;
mod oracle;
mod rules;
mod sharing;
mod stress;
mod waking;

/// The gateway's settings for clients.
const SETTINGS: LocalSettings = LocalSettings {
    max_streams: 100,
    stream_window: 64 << 10,
    max_stream_window: 64 << 10,
    connection_window: 1 << 20,
    max_header_list: 32 << 10,
    connect_protocol: false,
};
/// `GET /` from `a`, with indices of the static table as far as it goes (RFC 7541 appendix A).
const GET: &[u8] = &[0x82, 0x86, 0x84, 0x01, 1, b'a'];
/// `POST /` from `a`.
const POST: &[u8] = &[0x83, 0x86, 0x84, 0x01, 1, b'a'];
/// An extended CONNECT (RFC 8441) for `websocket` at `/` of `a`.
const CONNECT: &[u8] = b"\x02\x07CONNECT\x86\x84\x01\x01a\x00\x09:protocol\x09websocket";
/// A response's head, as HTTP/1.1 has it.
const RESPONSE: &[u8] = b"HTTP/1.1 200 OK\r\n\r\n";
const END: u8 = flag::END_STREAM | flag::END_HEADERS;

/// A frame that the connection has sent.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Frame {
    header: FrameHeader,
    payload: Vec<u8>,
}

impl Frame {
    /// Its code, if it is RST_STREAM or GOAWAY.
    fn code(&self) -> Option<ErrorCode> {
        let from = match self.header.kind {
            kind::RST_STREAM => 0,
            kind::GOAWAY => 4,
            _ => return None,
        };
        let bytes = self.payload.get(from..from + 4)?.try_into().ok()?;
        Some(ErrorCode(u32::from_be_bytes(bytes)))
    }

    /// The stream that it is about, and its first number.
    fn number(&self) -> u32 {
        let bytes = self.payload.first_chunk::<4>().expect("the payload has four bytes");
        u32::from_be_bytes(*bytes)
    }
}

/// A waker that notes whether it was used.
#[derive(Debug, Default)]
struct Woken(AtomicBool);

impl Wake for Woken {
    fn wake(self: Arc<Self>) {
        self.0.store(true, Ordering::Relaxed);
    }
}

impl Woken {
    fn take(&self) -> bool {
        self.0.swap(false, Ordering::Relaxed)
    }
}

/// A connection, and the other end of its socket.
struct Peer {
    connection: Rc<Http2Codec>,
    pipe: Pipe,
    woken: Arc<Woken>,
    /// Bytes that were read and are no whole frame yet.
    received: BytesMut,
    requests: Vec<ReceivedRequest>,
    /// The connection has ended.
    over: bool,
}

impl Peer {
    /// A client that has sent its preface.
    fn client(settings: &LocalSettings) -> Self {
        let mut peer = Self::new(|stream| {
            Http2Codec::server(stream, BytesMut::new(), Rc::<Traffic>::default(), settings)
        });
        peer.write(PREFACE);
        peer.send(kind::SETTINGS, 0, 0, &[]);
        peer
    }

    /// A server that has sent its SETTINGS.
    fn server(settings: &LocalSettings) -> Self {
        let mut peer = Self::new(|stream| Http2Codec::client(stream, settings));
        peer.send(kind::SETTINGS, 0, 0, &[]);
        peer.drive();
        peer.read();
        assert_eq!(&peer.received[..PREFACE.len()], PREFACE);
        peer.received.advance(PREFACE.len());
        peer
    }

    fn new(connect: impl FnOnce(Rc<Stream>) -> Rc<Http2Codec>) -> Self {
        let (ours, theirs) = Pipe::new();
        let connection = connect(Rc::new(Stream::Pipe(theirs)));
        let woken = Arc::new(Woken::default());
        Self { connection, pipe: ours, woken, received: BytesMut::new(), requests: Vec::new(), over: false }
    }

    /// Sends bytes, and has the connection run.
    fn write(&mut self, mut bytes: &[u8]) {
        while !bytes.is_empty() && !self.over {
            let written = self.pipe.poll_write(&mut Context::from_waker(Waker::noop()), bytes, &[]);
            if let Poll::Ready(Ok(written)) = written {
                bytes = &bytes[written..];
            }
            self.drive();
        }
    }

    /// Sends a frame, and has the connection run.
    fn send(&mut self, kind: u8, flags: u8, stream: u32, payload: &[u8]) {
        let mut frame = BytesMut::new();
        FrameHeader { length: payload.len(), kind, flags, stream }.put(&mut frame);
        frame.extend_from_slice(payload);
        self.write(&frame);
    }

    /// Has the connection run until it waits.
    fn drive(&mut self) {
        let waker = Waker::from(Arc::clone(&self.woken));
        while !self.over {
            self.woken.take();
            match self.connection.poll(&mut Context::from_waker(&waker)) {
                Poll::Ready(Some(request)) => self.requests.push(request),
                Poll::Ready(None) => self.over = true,
                Poll::Pending if self.woken.take() => {}
                Poll::Pending => return,
            }
        }
    }

    /// Reads received bytes. Returns whether there were any.
    fn read(&mut self) -> bool {
        let mut received = BytesMut::new();
        let read = self.pipe.poll_read(&mut Context::from_waker(Waker::noop()), &mut received, usize::MAX);
        self.received.extend_from_slice(&received);
        matches!(read, Poll::Ready(Ok(read)) if read > 0)
    }

    /// The frames that have been read whole.
    fn whole_frames(&mut self) -> Vec<Frame> {
        let mut frames = Vec::new();
        while let Some(header) = FrameHeader::read(&self.received) {
            let end = HEADER_LENGTH + header.length;
            let Some(payload) = self.received.get(HEADER_LENGTH..end) else { break };
            frames.push(Frame { header, payload: payload.to_vec() });
            self.received.advance(end);
        }
        frames
    }

    /// Has the connection run and reads what it sends, until it waits.
    fn frames(&mut self) -> Vec<Frame> {
        self.drive();
        while self.read() {
            self.drive();
        }
        self.whole_frames()
    }

    /// The codes that the connection has sent since, each with its stream; 0: GOAWAY.
    fn codes(&mut self) -> Vec<(u32, ErrorCode)> {
        self.frames().iter().filter_map(|frame| Some((frame.header.stream, frame.code()?))).collect()
    }

    /// The request of a stream.
    fn stream(&mut self, index: usize) -> &StreamHandle {
        self.drive();
        &self.requests.get(index).expect("a request has come").stream
    }
}
