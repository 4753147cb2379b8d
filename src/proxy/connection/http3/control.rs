//! The control streams of a connection (RFC 9114 §6.2): the gateway's, and those of the client.

use std::cell::RefCell;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll};

use bytes::{Buf as _, BytesMut};
use quinn::{Connection, ConnectionError, RecvStream, SendStream};

use crate::http2::connection::StreamLost;
use crate::http3::Http3ErrorCode;
use crate::http3::control::{UnidirectionalDecoder, UnidirectionalFault};
use crate::http3::frame::{put_control_preface, put_goaway};

/// Bytes read from a control stream at once.
const PART: usize = 4 << 10;

/// What the gateway says of itself.
pub(super) struct Announced {
    /// The maximum size of the fields of a head.
    pub(super) max_header_list: usize,
    /// WebSockets may be opened (RFC 9220).
    pub(super) connect_protocol: bool,
}

/// The gateway's control stream.
pub(super) struct ControlStream {
    stream: SendStream,
    /// Bytes that QUIC has not taken yet.
    outbound: BytesMut,
    peer: Rc<RefCell<PeerStreams>>,
}

/// The kinds of control streams that the client has opened: each may be opened once.
#[derive(Debug, Default)]
pub(super) struct PeerStreams {
    kinds: crate::http3::control::OpenedKinds,
}

impl PeerStreams {
    /// The connection has received a request.
    pub(super) fn request_received(&mut self) {
        self.kinds.request_received();
    }
}

impl ControlStream {
    /// Opens the stream and announces the settings.
    pub(super) async fn open(connection: &Connection, announced: Announced) -> Result<Self, ConnectionError> {
        let stream = connection.open_uni().await?;
        let mut outbound = BytesMut::new();
        put_control_preface(announced.max_header_list, announced.connect_protocol, &mut outbound);
        Ok(Self { stream, outbound, peer: Rc::default() })
    }

    /// The client's streams.
    pub(super) fn peer(&self) -> Rc<RefCell<PeerStreams>> {
        Rc::clone(&self.peer)
    }

    /// Sends GOAWAY: requests on streams from this id on will not be served.
    pub(super) fn go_away(&mut self, id: u64) {
        put_goaway(id, &mut self.outbound);
    }

    /// Sends as much as QUIC takes.
    pub(super) fn poll_flush(&mut self, context: &mut Context<'_>) -> Result<(), StreamLost> {
        while !self.outbound.is_empty() {
            match Pin::new(&mut self.stream).poll_write(context, &self.outbound) {
                Poll::Ready(Ok(written)) => self.outbound.advance(written),
                Poll::Ready(Err(_)) => return Err(StreamLost),
                Poll::Pending => break,
            }
        }
        Ok(())
    }
}

/// Reads one of the client's streams in one direction until it ends, and closes the connection if it breaks a rule.
pub(super) async fn read(mut stream: RecvStream, opened: Rc<RefCell<PeerStreams>>, connection: Connection) {
    let mut decoder = UnidirectionalDecoder::default();
    loop {
        let received = match stream.read_chunk(PART, true).await {
            Ok(Some(chunk)) => decoder.decode(&chunk.bytes, &mut opened.borrow_mut().kinds),
            Ok(None) => decoder.end(),
            // The connection is lost, or the stream was reset.
            Err(_) => decoder.end(),
        };
        match received {
            Ok(()) if decoder.is_ended() => return,
            Ok(()) => {}
            Err(UnidirectionalFault::Unknown) => {
                if stream.stop(Http3ErrorCode::STREAM_CREATION_ERROR.into()).is_err() {
                    // It has ended already.
                }
                return;
            }
            Err(UnidirectionalFault::Connection(code)) => return connection.close(code.into(), b""),
        }
    }
}
