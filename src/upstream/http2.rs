//! Connections to one server that speak HTTP/2: many requests share one.

mod stream;

use std::cell::{Cell, RefCell};
use std::future::poll_fn;
use std::io;
use std::net::IpAddr;
use std::rc::Rc;
use std::task::Poll;
use std::time::Duration;

use tokio::sync::Mutex;
use tokio::time::Instant;

use super::connect::MAX_AGE;
use super::connection_limit::Permit;
use crate::clock::deadline::{Deadline, now};
use crate::http2::connection::{ConnectionEnd, Http2Codec, LocalSettings};
use crate::http2::frame::{ErrorCode, MAX_31_BITS};
use crate::net::{Alpn, Stream};
pub(super) use stream::{ClientStream, NoAnswer};

/// Requests on one connection at once, if the server takes as many; more open another.
const MAX_STREAMS: usize = 100;
/// Connections to one server by one worker, where the upstream has no bound of its own.
pub(super) const MAX_LINKS: usize = 8;
/// Bytes of an answer that may wait for a client that reads nothing.
const STREAM_WINDOW: u32 = 16 << 10;
/// Bytes of an answer that may wait for a client that has read some.
const MAX_STREAM_WINDOW: u32 = 64 << 10;
/// Room for as much of all answers of a connection: else a few slow clients would hold up all others.
const CONNECTION_WINDOW: u32 = MAX_31_BITS;
/// How often another connection may be opened for the sake of another address.
const SPREAD_EVERY: Duration = Duration::from_millis(100);
/// For so long a connection may be silent while requests wait, before it is given up.
const DOUBT: Duration = Duration::from_secs(1);
/// How long a connection that nothing uses any more may take to send what is left.
const CLOSE_TIMEOUT: Duration = Duration::from_secs(5);
/// Bytes of the fields of an answer.
const MAX_FIELDS: usize = 64 << 10;

/// One worker's connections to one server.
#[derive(Debug)]
pub(super) struct Http2Pool {
    links: RefCell<Vec<Rc<Http2Connection>>>,
    /// More are not opened.
    most: usize,
    /// How long one may be unused.
    idle_timeout: Duration,
    /// Held by whoever opens one: the others wait for that instead of opening their own.
    pub(super) dialling: Mutex<()>,
    /// When one was last opened for the sake of another address.
    spread: Cell<Option<Instant>>,
}

/// One connection.
#[derive(Debug)]
pub(super) struct Http2Connection {
    connection: Rc<Http2Codec>,
    /// `http` or `https`.
    scheme: &'static [u8],
    /// Where it leads to.
    pub(super) address: IpAddr,
    pub(super) since: Instant,
    /// Requests under way.
    open: Cell<usize>,
    /// When the last ended.
    used: Cell<Instant>,
    /// It takes no more requests: it has ended, the server wants it to end, or nothing comes through it any more.
    retired: Cell<bool>,
    /// Its upstream has a bound: another is not to be had as long as this is open.
    bounded: bool,
    /// Since when a request waits, and how much had come by then.
    waiting: Cell<Option<(Instant, u64)>>,
}

/// What the gateway says to servers. Streams that they push are refused.
const SETTINGS: LocalSettings = LocalSettings {
    max_streams: MAX_STREAMS,
    stream_window: STREAM_WINDOW,
    max_stream_window: MAX_STREAM_WINDOW,
    connection_window: CONNECTION_WINDOW,
    max_header_list: MAX_FIELDS,
};

impl Http2Pool {
    pub(super) fn new(most: usize, idle_timeout: Duration) -> Self {
        Self {
            links: RefCell::default(),
            most,
            idle_timeout,
            dialling: Mutex::new(()),
            spread: Cell::default(),
        }
    }

    /// Whether others would do the same.
    pub(super) fn are_like(&self, others: &Self) -> bool {
        self.most == others.most && self.idle_timeout == others.idle_timeout
    }

    /// The connection with the fewest requests; of several, the one that was unused for longest. `None` if another is to be
    /// opened.
    pub(super) fn pick(&self) -> Option<Rc<Http2Connection>> {
        let mut links = self.links.borrow_mut();
        let now = now();
        links.retain(|link| link.is_young(now));
        let least = links.iter().min_by_key(|link| (link.open.get(), link.used.get()))?;
        (least.has_room() || links.len() >= self.most).then(|| Rc::clone(least))
    }

    /// Whether another may be opened now for the sake of `addresses` that none leads to. Not often: one may not answer.
    pub(super) fn may_spread(&self, addresses: usize) -> bool {
        if self.links.borrow().len() >= addresses.min(self.most) {
            return false;
        }
        let now = now();
        let due = self.spread.get().is_none_or(|last| now.saturating_duration_since(last) >= SPREAD_EVERY);
        if due {
            self.spread.set(Some(now));
        }
        due
    }

    /// Whether one of them leads there.
    pub(super) fn lead_to(&self, address: IpAddr) -> bool {
        self.links.borrow().iter().any(|link| link.address == address)
    }

    /// Uses another one from now on.
    pub(super) fn add(&self, link: &Rc<Http2Connection>) {
        self.links.borrow_mut().push(Rc::clone(link));
    }

    /// Lets go of those that are unused or too old, and of those that `leads` does not hold for. Requests under way go on.
    pub(super) fn expire(&self, now: Instant, leads: impl Fn(IpAddr) -> bool) {
        let idle = |link: &Http2Connection| {
            link.open.get() == 0 && now.saturating_duration_since(link.used.get()) > self.idle_timeout
        };
        self.links.borrow_mut().retain(|link| link.is_young(now) && leads(link.address) && !idle(link));
    }
}

impl Http2Connection {
    /// Speaks HTTP/2 on a new connection. Ends with its last request, once nobody picks it any more; `slot` is held until
    /// then. `tell`: what only a person can mend is said there.
    pub(super) fn open(
        stream: Stream,
        address: IpAddr,
        slot: Option<Permit>,
        tell: impl Fn(&str) + 'static,
    ) -> io::Result<Rc<Self>> {
        if stream.is_tls() && stream.alpn() != Some(Alpn::Http2) {
            tell("no HTTP/2: it did not agree on `h2` by ALPN");
            return Err(io::ErrorKind::Unsupported.into());
        }
        let scheme: &[u8] = if stream.is_tls() { b"https" } else { b"http" };
        let connection = Http2Codec::client(Rc::new(stream), &SETTINGS);
        let now = now();
        let link = Rc::new(Self {
            connection: Rc::clone(&connection),
            scheme,
            address,
            since: now,
            open: Cell::new(0),
            used: Cell::new(now),
            retired: Cell::new(false),
            bounded: slot.is_some(),
            waiting: Cell::default(),
        });
        tokio::task::spawn_local(async move {
            drive(&connection).await;
            if connection.close_sending().is_err() {
                // The server has closed it before.
            }
            // How it ends, its requests learn by themselves.
            if let Some(ConnectionEnd::Fault(what)) = connection.end() {
                tell(&format!("no HTTP/2: {what}"));
            }
            drop(slot);
        });
        Ok(link)
    }

    /// A stream for one request.
    pub(super) fn stream(self: &Rc<Self>) -> ClientStream {
        ClientStream::new(self)
    }

    fn is_young(&self, now: Instant) -> bool {
        let needed = self.bounded && self.open.get() > 0;
        !self.retired.get()
            && self.connection.is_usable()
            && (needed || now.saturating_duration_since(self.since) < MAX_AGE)
    }

    /// A request goes out.
    fn wait(&self) {
        let heard = self.connection.traffic().received();
        if self.waiting.get().is_none_or(|(_, before)| before != heard) {
            self.waiting.set(Some((now(), heard)));
        }
    }

    /// One went without an answer. The other side may be gone without a word: if nothing else came either, the next is
    /// to find out on a connection of its own, if that is to be had.
    fn mark_suspect(&self) {
        let needed = self.bounded && self.open.get() > 1;
        if let Some((since, before)) = self.waiting.get()
            && !needed
            && before == self.connection.traffic().received()
            && now().saturating_duration_since(since) >= DOUBT
        {
            self.retired.set(true);
        }
    }

    fn has_room(&self) -> bool {
        // What the server takes is known once it has said its first words.
        let silent = self.connection.traffic().received() == 0;
        let taken = if silent { MAX_STREAMS } else { self.connection.max_requests() };
        self.open.get() < MAX_STREAMS.min(taken)
    }
}

/// Nothing uses it any more.
impl Drop for Http2Connection {
    fn drop(&mut self) {
        self.connection.abort(ErrorCode::NO_ERROR);
    }
}

/// Drives a connection to its end. Once nothing uses it, the server has [`CLOSE_TIMEOUT`] to take what is left to be sent.
async fn drive(connection: &Rc<Http2Codec>) {
    let (mut deadline, mut ended_since) = (Deadline::default(), None);
    poll_fn(|context| {
        if connection.poll(context).is_ready() {
            return Poll::Ready(());
        }
        if connection.end().is_none() {
            return Poll::Pending;
        }
        let since = *ended_since.get_or_insert_with(now);
        deadline.poll(context, since + CLOSE_TIMEOUT)
    })
    .await;
}

/// Counts a request as long as it is under way.
#[derive(Debug)]
struct StreamPermit(Rc<Http2Connection>);

impl Drop for StreamPermit {
    fn drop(&mut self) {
        self.0.open.set(self.0.open.get() - 1);
        self.0.used.set(now());
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::net::Pipe;

    #[tokio::test(start_paused = true)]
    async fn a_server_that_takes_nothing_holds_no_unused_connection() {
        let (ours, _theirs) = Pipe::new();
        let stream = Rc::new(Stream::Pipe(ours));
        let connection = Http2Codec::client(Rc::clone(&stream), &SETTINGS);
        // The pipe is full: nothing of what HTTP/2 has to say goes out.
        let filled = poll_fn(|context| {
            while stream.poll_write(context, &[0; 1 << 10], &[]).is_ready() {}
            Poll::Ready(())
        });
        filled.await;
        connection.abort(ErrorCode::NO_ERROR);
        let begun = now();
        let ending = tokio::time::timeout(CLOSE_TIMEOUT * 10, drive(&connection));
        assert!(ending.await.is_ok(), "it is waited for without end");
        assert_eq!(now() - begun, CLOSE_TIMEOUT);
    }
}
