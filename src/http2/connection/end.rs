//! How connections and their streams end.

use super::super::frame::ErrorCode;
use super::State;

/// How a connection ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ConnectionEnd {
    /// The peer closed it, or the socket failed.
    Lost,
    /// The peer violated the protocol, in this way.
    Fault(&'static str),
    /// This side ended it, for a reason or since it was no longer needed.
    Aborted,
}

/// How a stream ended early.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reset {
    /// The peer reset it.
    Remote(ErrorCode),
    /// This side reset it, since the peer violated a rule.
    Fault,
    /// The peer's GOAWAY shows that it was not served.
    GoneAway,
    /// The connection was lost.
    Lost,
}

/// The error of a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum FrameError {
    /// A connection error (RFC 9113 §5.4.1).
    Connection(ErrorCode, &'static str),
    /// A stream error (RFC 9113 §5.4.2).
    Stream(u32, ErrorCode),
}

impl FrameError {
    /// PROTOCOL_ERROR of the connection.
    pub(super) fn protocol(what: &'static str) -> Self {
        Self::Connection(ErrorCode::PROTOCOL_ERROR, what)
    }
}

impl State {
    /// Ends the connection for an error. The peer is sent a GOAWAY before the end.
    pub(super) fn fail(&mut self, code: ErrorCode, what: &'static str) {
        if self.end.is_some() {
            return;
        }
        let last = self.streams.newest_of_peer();
        self.put_goaway(last, code);
        if what.is_empty() {
            self.end = Some(ConnectionEnd::Aborted);
        } else {
            self.end = Some(ConnectionEnd::Fault(what));
            self.streams.lose_above(0, Reset::Fault);
        }
        self.lose_streams();
    }

    /// The socket can no longer be used.
    pub(super) fn lose(&mut self) {
        self.end.get_or_insert(ConnectionEnd::Lost);
        self.outbound.clear();
        self.lose_streams();
    }

    pub(super) fn lose_streams(&mut self) {
        self.end.get_or_insert(ConnectionEnd::Lost);
        self.requests.clear();
        self.streams.lose_all();
        self.open_waiters.drain(..).for_each(std::task::Waker::wake);
    }

    /// Whether nothing is left to do. `flushed`: the socket has accepted all bytes.
    pub(super) fn is_over(&self, flushed: bool) -> bool {
        match self.end {
            Some(_) => flushed,
            // The peer's streams are all known once it has read the GOAWAY.
            None => {
                let announced = self.goaway_sent.is_some_and(|last| last <= self.streams.newest_of_peer());
                announced && flushed && self.streams.is_empty() && self.requests.is_empty()
            }
        }
    }
}
