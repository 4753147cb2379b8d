//! How connections and their streams end.

use super::super::frame::ErrorCode;
use super::State;

/// How a connection ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ConnectionEnd {
    /// The peer closed it, or the socket failed.
    Lost,
    /// The peer broke the protocol, in this way.
    Fault(&'static str),
    /// This side had a reason, or nothing more to do.
    Aborted,
}

/// How a stream ended before its time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reset {
    /// The peer reset it.
    Remote(ErrorCode),
    /// This side reset it, since the peer broke a rule.
    Fault,
    /// The peer's GOAWAY says that it was not served.
    GoneAway,
    /// The connection was lost.
    Lost,
}

/// What a frame has done wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum FrameError {
    /// The connection cannot go on (RFC 9113 §5.4.1).
    Connection(ErrorCode, &'static str),
    /// The stream cannot (RFC 9113 §5.4.2).
    Stream(u32, ErrorCode),
}

impl FrameError {
    /// PROTOCOL_ERROR of the connection.
    pub(super) fn protocol(what: &'static str) -> Self {
        Self::Connection(ErrorCode::PROTOCOL_ERROR, what)
    }
}

impl State {
    /// Ends the connection for a fault. The peer is told; a GOAWAY goes out before the end.
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

    /// The socket is of no use any more.
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

    /// Whether nothing is left to be done. `flushed`: the socket has taken all.
    pub(super) fn is_over(&self, flushed: bool) -> bool {
        match self.end {
            Some(_) => flushed,
            // The peer's streams are all known once it knows of the GOAWAY.
            None => {
                let told = self.goaway_sent.is_some_and(|last| last <= self.streams.newest_of_peer());
                told && flushed && self.streams.is_empty() && self.requests.is_empty()
            }
        }
    }
}
