//! How long a connection lives, in a time that does not pass but jumps to what is waited for next.

use tokio::task::{JoinHandle, LocalSet};

use super::*;
use crate::http2::connection::PREFACE;
use crate::net::Pipe;
use crate::plan::Server;
use crate::proxy::fixtures;
use crate::proxy::session::peer::ConnectionEnds;

const DATA: u8 = 0;
const HEADERS: u8 = 1;
const SETTINGS: u8 = 4;
const PING: u8 = 6;
const GOAWAY: u8 = 7;
const WINDOW_UPDATE: u8 = 8;
const ACK: u8 = 1;
const END_STREAM: u8 = 1;
const END_HEADERS: u8 = 4;
/// `GET /` from `a`, with indices of the static table as far as it goes (RFC 7541 appendix A).
const REQUEST: &[u8] = &[0x82, 0x86, 0x84, 0x01, 1, b'a'];
const LONG: Duration = Duration::from_secs(100_000);
const SECOND: Duration = Duration::from_secs(1);

/// A frame, and the seconds since the client has connected.
struct Seen {
    kind: u8,
    flags: u8,
    payload: Vec<u8>,
    seconds: u64,
}

/// The client's side of a connection, with hand-written frames.
struct Hand {
    pipe: Pipe,
    received: BytesMut,
    connected: Instant,
    serving: JoinHandle<()>,
}

impl Hand {
    /// Connects, with one setting.
    async fn connect(idle_timeout: Duration, setting: &[u8]) -> Self {
        let (ours, theirs) = Pipe::new();
        let server = Server { idle_timeout, write_timeout: LONG, ..Server::plain() };
        let worker = fixtures::worker(fixtures::plan(server, None));
        let stream = Rc::new(Stream::Pipe(theirs));
        let peer = ConnectionPeer::new(ConnectionEnds::of(([127, 0, 0, 1], 1).into()), &stream, None);
        let serving = tokio::task::spawn_local(async move {
            let life = Lifetime { requests: u64::MAX, until: now() + 3_600 * SECOND };
            serve(stream, BytesMut::new(), ConnectionHandle::new(0), &peer, life, worker).await;
        });
        let client = Self { pipe: ours, received: BytesMut::new(), connected: now(), serving };
        client.write(PREFACE).await;
        client.send(SETTINGS, 0, 0, setting).await;
        client
    }

    async fn write(&self, bytes: &[u8]) {
        let written = poll_fn(|context| self.pipe.poll_write(context, bytes, b"")).await;
        assert_eq!(written.expect("it is open"), bytes.len());
    }

    async fn send(&self, kind: u8, flags: u8, stream: u8, payload: &[u8]) {
        let length = u8::try_from(payload.len()).expect("short");
        self.write(&[&[0, 0, length, kind, flags, 0, 0, 0, stream], payload].concat()).await;
    }

    /// The next frame. `None`: the connection is over.
    async fn read(&mut self) -> Option<Seen> {
        loop {
            if let Some(&[a, b, c, kind, flags, ..]) = self.received.first_chunk::<9>() {
                let end = 9 + (usize::from(a) << 16 | usize::from(b) << 8 | usize::from(c));
                if self.received.len() >= end {
                    let payload = self.received.split_to(end)[9..].to_vec();
                    return Some(Seen { kind, flags, payload, seconds: self.seconds() });
                }
            }
            let read = poll_fn(|context| self.pipe.poll_read(context, &mut self.received, 9999)).await;
            let Ok(1..) = read else { return None };
        }
    }

    /// The next frame of this kind. Answers PINGs meanwhile if it is to.
    async fn next(&mut self, kind: u8, answers: bool) -> Seen {
        loop {
            let frame = self.read().await.expect("the connection is open");
            if frame.kind == PING && frame.flags & ACK == 0 && answers {
                self.send(PING, ACK, 0, &frame.payload).await;
            }
            if frame.kind == kind {
                return frame;
            }
        }
    }

    /// Reads to the end of the connection, and closes it.
    async fn end(mut self) -> u64 {
        while self.read().await.is_some() {}
        let seconds = self.seconds();
        drop(self.pipe);
        self.serving.await.expect("no panic");
        seconds
    }

    /// Since it has connected.
    fn seconds(&self) -> u64 {
        (now() - self.connected).as_secs()
    }
}

async fn local<T>(test: impl Future<Output = T>) -> T {
    LocalSet::new().run_until(test).await
}

#[tokio::test(start_paused = true)]
async fn a_client_without_an_answer_is_dropped() {
    local(async {
        let mut client = Hand::connect(LONG, &[]).await;
        assert_eq!(client.next(PING, false).await.seconds, 20);
        assert!(client.read().await.is_none(), "without a word");
        assert_eq!(client.end().await, 40);
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn a_client_that_answers_or_sends_other_frames_stays() {
    local(async {
        let mut client = Hand::connect(LONG, &[]).await;
        for round in 1..100 {
            assert_eq!(client.next(PING, true).await.seconds, round * 20);
        }
        let mut client = Hand::connect(LONG, &[]).await;
        client.next(PING, false).await;
        for _ in 0..50 {
            client.send(WINDOW_UPDATE, 0, 0, &[0, 0, 0, 1]).await;
            tokio::time::sleep(15 * SECOND).await;
        }
        assert!(!client.serving.is_finished());
        assert!(client.end().await < 15 * 50 + 40, "silent now");
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn an_old_connection_finishes_its_streams_and_closes() {
    local(async {
        // SETTINGS_INITIAL_WINDOW_SIZE 0: the answer's body has to wait.
        let mut client = Hand::connect(LONG, &[0, 4, 0, 0, 0, 0]).await;
        client.send(HEADERS, END_STREAM | END_HEADERS, 1, REQUEST).await;
        client.next(HEADERS, true).await;
        let goaway = client.next(GOAWAY, true).await;
        assert_eq!((goaway.seconds, &goaway.payload[4..8]), (3600, &[0; 4][..]), "NO_ERROR");
        let last = client.next(GOAWAY, true).await;
        assert_eq!((last.seconds, &last.payload[..]), (3600, &[0, 0, 0, 1, 0, 0, 0, 0][..]));
        for _ in 0..5 {
            client.next(PING, true).await;
        }
        assert!(client.seconds() >= 3680, "open for its stream still, at {}", client.seconds());
        client.send(WINDOW_UPDATE, 0, 1, &[0, 1, 0, 0]).await;
        let body = client.next(DATA, true).await;
        assert!(body.flags & END_STREAM != 0 && !body.payload.is_empty());
        assert!(client.end().await <= body.seconds + 2);
    })
    .await;
}

/// Streams are refused once the PING after GOAWAY was acknowledged.
#[tokio::test(start_paused = true)]
async fn a_client_that_ignores_goaway_and_ping_is_cut() {
    local(async {
        let mut client = Hand::connect(LONG, &[]).await;
        let mut streams = (1..=u8::MAX).step_by(2);
        // Signs of life, so that no PING is missed.
        while client.seconds() < 3590 {
            client.send(WINDOW_UPDATE, 0, 0, &[0, 0, 0, 1]).await;
            tokio::time::sleep(10 * SECOND).await;
        }
        // Without a pause that would be the end.
        while client.seconds() < 3600 + 60 + 20 && !client.serving.is_finished() {
            client.send(HEADERS, END_STREAM | END_HEADERS, streams.next().expect("enough"), REQUEST).await;
            tokio::time::sleep(SECOND).await;
        }
        let mut reasons = Vec::new();
        while let Some(frame) = client.read().await {
            if frame.kind == GOAWAY {
                reasons.push(frame.payload[7]);
            }
        }
        assert_eq!(reasons, [0, 11], "NO_ERROR, then ENHANCE_YOUR_CALM");
        assert!(client.end().await <= 3682);
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn a_connection_without_streams_closes() {
    local(async {
        for (idle_timeout, expected) in [(60 * SECOND, 60), (LONG, 3600)] {
            let mut client = Hand::connect(idle_timeout, &[]).await;
            assert_eq!(client.next(GOAWAY, true).await.seconds, expected);
            assert!(client.end().await <= expected + 2);
        }
    })
    .await;
}

#[test]
fn a_ping_behind_many_bytes_is_waited_for_but_not_for_ever() {
    let asked = SentPing { at: now(), sent: 0 };
    let later = asked.at + 40 * SECOND;
    assert!(!asked.may_be_hidden(100, later), "a client that reads at all has found it");
    assert!(asked.may_be_hidden(1 << 20, later));
    assert!(!asked.may_be_hidden(1 << 20, asked.at + SLOW_PONG));
}
