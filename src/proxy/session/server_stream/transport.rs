//! The stream that carries a request: one of HTTP/2 or HTTP/3.

use std::task::{Context, Poll};
use std::time::Duration;

use bytes::BytesMut;
use tokio::time::Instant;

use crate::http2::connection::{StreamHandle, StreamLost};
use crate::http2::frame::ErrorCode;
#[cfg(feature = "http3")]
use crate::http3;
#[cfg(feature = "http3")]
use crate::http3::stream::Http3Stream;

/// The stream that carries a request.
#[derive(Debug)]
pub(crate) enum StreamTransport {
    /// A stream of HTTP/2.
    Http2(StreamHandle),
    /// A stream of HTTP/3.
    #[cfg(feature = "http3")]
    Http3(Box<Http3Stream>),
}

/// Why the gateway resets a stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum StreamEnd {
    /// The response cannot be completed.
    Failed,
    /// The client accepts nothing, or its backend broke off.
    Cancelled,
}

/// Calls the method of whichever stream it is.
macro_rules! of_either {
    ($transport:expr, $stream:ident => $call:expr) => {
        match $transport {
            StreamTransport::Http2($stream) => $call,
            #[cfg(feature = "http3")]
            StreamTransport::Http3($stream) => $call,
        }
    };
}

impl StreamTransport {
    #[inline]
    pub(crate) fn poll_read(
        &self,
        context: &Context<'_>,
        into: &mut BytesMut,
    ) -> Poll<Result<usize, StreamLost>> {
        of_either!(self, stream => stream.poll_read(context, into))
    }

    pub(super) fn trailers(&self) -> Option<BytesMut> {
        of_either!(self, stream => stream.trailers())
    }

    /// The bytes of the body that wait to be read. The present task is woken when more are received.
    pub(super) fn poll_unread(&self, context: &Context<'_>) -> usize {
        of_either!(self, stream => stream.poll_unread(context))
    }

    pub(super) fn is_window_closed(&self) -> bool {
        match self {
            Self::Http2(stream) => stream.is_window_closed(),
            // QUIC opens the window when bytes are read, and who waits has read all of them.
            #[cfg(feature = "http3")]
            Self::Http3(_) => false,
        }
    }

    /// Whether the client has sent all, and all of it was read.
    pub(crate) fn is_read_to_end(&self) -> bool {
        of_either!(self, stream => stream.is_read_to_end())
    }

    #[inline]
    pub(crate) fn release(&self, bytes: usize) {
        match self {
            Self::Http2(stream) => stream.release(bytes),
            // QUIC opens the window when bytes are read.
            #[cfg(feature = "http3")]
            Self::Http3(_) => {}
        }
    }

    pub(super) fn discard(&self, context: &Context<'_>) -> (bool, usize) {
        match self {
            Self::Http2(stream) => stream.discard(context),
            // A client is told to send no more, which does not end its response (RFC 9114 §4.1).
            #[cfg(feature = "http3")]
            Self::Http3(stream) => {
                stream.stop_receiving();
                (true, 0)
            }
        }
    }

    #[inline]
    pub(crate) fn poll_reset(&self, context: &Context<'_>) -> Poll<()> {
        of_either!(self, stream => stream.poll_reset(context))
    }

    #[inline]
    pub(super) fn send_response(&self, head: &[u8], ended: bool) -> Result<bool, StreamLost> {
        of_either!(self, stream => stream.send_response(head, ended))
    }

    #[inline]
    pub(super) fn send_block(&self, block: &[u8], ended: bool) -> Result<(), StreamLost> {
        match self {
            Self::Http2(stream) => stream.send_block(block, ended),
            // Heads for it are written as text.
            #[cfg(feature = "http3")]
            Self::Http3(_) => Err(StreamLost),
        }
    }

    #[inline]
    pub(crate) fn poll_room(&self, context: &Context<'_>, wanted: usize) -> Poll<Result<usize, StreamLost>> {
        of_either!(self, stream => stream.poll_room(context, wanted))
    }

    #[inline]
    pub(crate) fn send_data(&self, data: &[u8], last: bool) -> Result<usize, StreamLost> {
        of_either!(self, stream => stream.send_data(data, last))
    }

    #[inline]
    pub(crate) fn send_end(&self, trailers: &[u8]) -> Result<(), StreamLost> {
        of_either!(self, stream => stream.send_end(trailers))
    }

    /// Ready once the connection has taken all that was sent.
    #[cfg_attr(not(feature = "http3"), expect(unused_variables, reason = "HTTP/2 does not wait here"))]
    pub(crate) fn poll_flush(&self, context: &Context<'_>) -> Poll<Result<(), StreamLost>> {
        match self {
            // The connection holds a bounded number of bytes.
            Self::Http2(_) => Poll::Ready(Ok(())),
            #[cfg(feature = "http3")]
            Self::Http3(stream) => stream.poll_flush(context),
        }
    }

    pub(super) fn reset(&self, end: StreamEnd) {
        match self {
            Self::Http2(stream) => stream.reset(match end {
                StreamEnd::Failed => ErrorCode::INTERNAL_ERROR,
                StreamEnd::Cancelled => ErrorCode::CANCEL,
            }),
            #[cfg(feature = "http3")]
            Self::Http3(stream) => stream.reset(match end {
                StreamEnd::Failed => http3::Http3ErrorCode::INTERNAL_ERROR,
                StreamEnd::Cancelled => http3::Http3ErrorCode::REQUEST_CANCELLED,
            }),
        }
    }

    pub(super) fn round_trip(&self) -> Option<Duration> {
        match self {
            Self::Http2(stream) => stream.connection().round_trip(),
            #[cfg(feature = "http3")]
            Self::Http3(stream) => Some(stream.round_trip()),
        }
    }

    /// When the socket accepted no bytes for the last time.
    pub(super) fn last_blocked(&self) -> Option<Instant> {
        match self {
            Self::Http2(stream) => stream.connection().traffic().last_blocked(),
            #[cfg(feature = "http3")]
            Self::Http3(_) => None,
        }
    }

    /// Whether the client acknowledges nothing for too long.
    pub(super) fn is_stalled(&self) -> bool {
        match self {
            Self::Http2(stream) => stream.connection().traffic().is_stalled(),
            #[cfg(feature = "http3")]
            Self::Http3(_) => false,
        }
    }
}
