//! Whether a connection to a server is alive: a path may swallow its bytes while new connections work.

use std::cell::{Cell, RefCell};
use std::task::{Context, Poll, ready};
use std::time::Duration;

use tokio::time::Instant;

use crate::clock::{Deadline, now};
use crate::http2::connection::Http2Codec;

/// A connection that is silent for this long while a request waits gets further requests only where there may be no other.
const SUSPICION: Duration = Duration::from_millis(250);
/// A connection that is silent for this long while a request waits gets one PING.
const SILENCE_LIMIT: Duration = Duration::from_secs(1);
/// A connection that is silent for this long after the PING is dead.
const PING_TIMEOUT: Duration = Duration::from_secs(5);

/// What is known about one connection.
#[derive(Debug, Default)]
pub(super) struct Liveness {
    /// The first request since the last bytes were received: when it was sent, and all bytes received by then.
    waiting: Cell<Option<(Instant, u64)>>,
    /// The last PING, likewise.
    pinged: Cell<Option<(Instant, u64)>>,
    deadline: RefCell<Deadline>,
}

impl Liveness {
    /// Records that a request was sent.
    pub(super) fn request_sent(&self, connection: &Http2Codec) {
        let received = connection.traffic().received();
        if self.waiting.get().is_none_or(|(_, before)| before != received) {
            self.waiting.set(Some((now(), received)));
        }
    }

    /// Whether the connection has been silent for [`SUSPICION`] while a request waited.
    pub(super) fn is_suspect(&self, connection: &Http2Codec, now: Instant) -> bool {
        self.is_silent(connection, now, SUSPICION)
    }

    /// Whether the connection has been silent for [`SILENCE_LIMIT`] while a request waited.
    pub(super) fn is_doubtful(&self, connection: &Http2Codec, now: Instant) -> bool {
        self.is_silent(connection, now, SILENCE_LIMIT)
    }

    fn is_silent(&self, connection: &Http2Codec, now: Instant, span: Duration) -> bool {
        self.waiting.get().is_some_and(|(since, before)| {
            before == connection.traffic().received() && now.saturating_duration_since(since) >= span
        })
    }

    /// Ready once the connection is dead. Polled after each change of the connection.
    pub(super) fn poll_dead(&self, connection: &Http2Codec, context: &mut Context<'_>) -> Poll<()> {
        let received = connection.traffic().received();
        let silent = |since: &(Instant, u64)| since.1 == received;
        if self.pinged.get().is_none() {
            let Some((since, _)) = self.waiting.get().filter(silent) else { return Poll::Pending };
            ready!(self.deadline.borrow_mut().poll(context, since + SILENCE_LIMIT));
            if !connection.ping_once() {
                return Poll::Pending;
            }
            self.pinged.set(Some((now(), received)));
        }
        let Some((at, _)) = self.pinged.get().filter(silent) else {
            self.pinged.set(None);
            return Poll::Pending;
        };
        self.deadline.borrow_mut().poll(context, at + PING_TIMEOUT)
    }
}

#[cfg(test)]
mod tests {
    use std::future::poll_fn;
    use std::rc::Rc;
    use std::task::Waker;

    use bytes::BytesMut;

    use super::*;
    use crate::http2::connection::LocalSettings;
    use crate::http2::frame::{HEADER_LENGTH, kind};
    use crate::http2::hpack::encoder::Scheme;
    use crate::net::{Pipe, Stream};

    const SETTINGS: &[u8] = &[0, 0, 0, kind::SETTINGS, 0, 0, 0, 0, 0];

    /// A connection with a request that waits, and its server.
    struct Pair {
        connection: Rc<Http2Codec>,
        liveness: Liveness,
        server: Pipe,
        streams: Vec<crate::http2::connection::StreamHandle>,
    }

    impl Pair {
        async fn new() -> Self {
            let (ours, server) = Pipe::new();
            let settings = LocalSettings {
                max_streams: 100,
                stream_window: 65_535,
                max_stream_window: 65_535,
                connection_window: 65_535,
                max_header_list: 64 << 10,
                connect_protocol: false,
            };
            let connection = Http2Codec::client(Rc::new(Stream::Pipe(ours)), &settings);
            let mut pair = Self { connection, liveness: Liveness::default(), server, streams: Vec::new() };
            pair.say(SETTINGS).await;
            pair.ask();
            pair
        }

        fn ask(&mut self) {
            let stream = self.connection.open(b"GET / HTTP/1.1\r\n\r\n", Scheme::Http, true);
            self.streams.push(stream.expect("it opens"));
            self.liveness.request_sent(&self.connection);
        }

        /// The server sends this.
        async fn say(&mut self, bytes: &[u8]) {
            poll_fn(|context| self.server.poll_write(context, bytes, &[])).await.expect("there is room");
            assert!(!self.is_dead());
        }

        fn is_dead(&self) -> bool {
            let mut context = Context::from_waker(Waker::noop());
            assert!(self.connection.poll(&mut context).is_pending());
            let dead = self.liveness.poll_dead(&self.connection, &mut context).is_ready();
            assert!(self.connection.poll(&mut context).is_pending());
            dead
        }

        fn is_doubtful(&self) -> bool {
            self.liveness.is_doubtful(&self.connection, now())
        }

        /// The number of PING frames that came since.
        fn pings(&mut self) -> usize {
            let mut received = BytesMut::new();
            while let Poll::Ready(Ok(1..)) =
                self.server.poll_read(&mut Context::from_waker(Waker::noop()), &mut received, usize::MAX)
            {
            }
            received
                .windows(HEADER_LENGTH)
                .filter(|bytes| bytes[..4] == [0, 0, 8, kind::PING] && bytes[4] == 0)
                .count()
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_silent_connection_is_asked_after_a_second_and_dead_after_five_more() {
        let mut pair = Pair::new().await;
        assert!(!pair.is_dead() && !pair.is_doubtful() && pair.pings() == 0);
        tokio::time::advance(SILENCE_LIMIT).await;
        assert!(!pair.is_dead() && pair.is_doubtful() && pair.pings() == 1);
        tokio::time::advance(PING_TIMEOUT).await;
        assert!(pair.is_dead() && pair.pings() == 0);
    }

    /// Servers of gRPC end connections with several PINGs and no message between them.
    #[tokio::test(start_paused = true)]
    async fn a_call_that_is_silent_for_long_costs_one_ping() {
        let mut pair = Pair::new().await;
        assert!(!pair.is_dead());
        tokio::time::advance(SILENCE_LIMIT).await;
        assert!(!pair.is_dead() && pair.pings() == 1);
        let pong = [&[0, 0, 8, kind::PING, 1, 0, 0, 0, 0][..], b"tollgate"].concat();
        pair.say(&pong).await;
        for _ in 0..60 {
            tokio::time::advance(SILENCE_LIMIT).await;
            assert!(!pair.is_dead() && !pair.is_doubtful());
        }
        // Others are sent, and nothing comes: no PING is left to send.
        pair.ask();
        tokio::time::advance(SILENCE_LIMIT).await;
        assert!(!pair.is_dead() && pair.is_doubtful() && pair.pings() == 0);
        // A response, and then silence.
        pair.say(&[0, 0, 1, kind::HEADERS, 5, 0, 0, 0, 1, 0x88]).await;
        assert!(!pair.is_doubtful());
        pair.ask();
        tokio::time::advance(SILENCE_LIMIT).await;
        assert!(!pair.is_dead() && pair.is_doubtful() && pair.pings() == 1);
    }
}
