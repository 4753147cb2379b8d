//! A worker with one route, clients connected by pipes, and its backend, all on one thread.
//!
//! So each segment is consumed before the next is written, and runs are deterministic. Only the connection to the
//! backend is a socket.

use std::cell::Cell;
use std::future::poll_fn;
use std::net::{IpAddr, SocketAddr};
use std::rc::Rc;
use std::time::Duration;

use bytes::BytesMut;
use tokio::time::timeout;

use super::backend::{Backend, Behaviour, settle};
use super::seen::Seen;
use crate::net::{Pipe, Stream};
use crate::plan::{Plan, Route, Server};
use crate::proxy::connection::serve;
use crate::proxy::fixtures;
use crate::proxy::session::peer::ConnectionEnds;
use crate::proxy::worker::Worker;
use crate::proxy::worker::connection_handle::ConnectionHandle;
use crate::route::Conditions;
use crate::route::path::PathMatching;
use crate::route::pattern::PathMatcher;

/// Only a run that fails waits for this time.
const TIMEOUT: Duration = Duration::from_secs(20);

/// A worker and its backend.
pub(super) struct Rig {
    worker: Rc<Worker>,
    backend: Rc<Backend>,
    runs: Cell<u32>,
}

/// The outcome of one connection.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Outcome {
    /// The requests that the backend received.
    pub(super) seen: Vec<Seen>,
    /// All bytes sent to the client, without `100 Continue`, which depends on the segments received before.
    pub(super) answered: BytesMut,
    /// The gateway closed the connection within [`TIMEOUT`].
    pub(super) closed: bool,
}

impl Rig {
    pub(super) async fn start() -> Self {
        let (backend, address) = Backend::start().await;
        Self { worker: fixtures::worker(plan(address)), backend, runs: Cell::new(0) }
    }

    /// Sends these segments on a new connection, closes the stream after them if `ends`, and reads all responses up to
    /// the end.
    pub(super) async fn run(&self, segments: &[&[u8]], ends: bool, behaviour: Behaviour) -> Outcome {
        // Each run has its own client; the backend assigns requests to runs by the client's address.
        self.runs.set(self.runs.get() + 1);
        let [_, high, middle, low] = self.runs.get().to_be_bytes();
        let peer = IpAddr::from([127, high, middle, low]);
        let seen = self.backend.behave(behaviour, peer);
        let (ours, theirs) = Pipe::new();
        let handle = ConnectionHandle::new(0);
        let addresses = ConnectionEnds::of(SocketAddr::new(peer, 1));
        let serving = serve(Stream::Pipe(theirs), handle, addresses, (), Rc::clone(&self.worker));
        let serving = tokio::task::spawn_local(serving);
        let mut answered = BytesMut::new();
        for segment in segments {
            write(&ours, segment).await;
            settle().await;
        }
        if ends {
            ours.close_sending();
        }
        let reading = async { while matches!(read(&ours, &mut answered).await, Ok(1..)) {} };
        let closed = timeout(TIMEOUT, reading).await.is_ok();
        // The client's end is closed, too, so the gateway need not linger.
        drop(ours);
        serving.await.expect("the connection's task does not panic");
        settle().await;
        let seen = seen.borrow().iter().map(|seen| seen.borrow().clone()).collect();
        Outcome { seen, answered: without_continue(&answered), closed }
    }
}

async fn write(pipe: &Pipe, mut bytes: &[u8]) {
    while !bytes.is_empty() {
        let writing = poll_fn(|context| pipe.poll_write(context, bytes, b""));
        // After closing, the gateway reads no more.
        let Ok(Ok(written)) = timeout(TIMEOUT, writing).await else { return };
        bytes = &bytes[written..];
    }
}

async fn read(pipe: &Pipe, into: &mut BytesMut) -> std::io::Result<usize> {
    let mut piece = BytesMut::new();
    let read = poll_fn(|context| pipe.poll_read(context, &mut piece, 64 << 10)).await;
    into.extend_from_slice(&piece);
    read
}

fn without_continue(answered: &BytesMut) -> BytesMut {
    const CONTINUE: &[u8] = b"HTTP/1.1 100 Continue\r\n\r\n";
    let mut rest = &answered[..];
    let mut out = BytesMut::new();
    while let Some(at) = memchr::memmem::find(rest, CONTINUE) {
        out.extend_from_slice(&rest[..at]);
        rest = &rest[at + CONTINUE.len()..];
    }
    out.extend_from_slice(rest);
    out
}

fn conditions() -> Conditions {
    let path = PathMatcher::parse("/*", PathMatching::default()).expect("a pattern");
    Conditions { hosts: Vec::new(), path, methods: Vec::new(), values: Vec::new(), merge_slashes: true }
}

fn route() -> Route {
    let patient = TIMEOUT * 100;
    Route {
        timeout: patient,
        read_timeout: patient,
        tunnel_timeout: patient,
        max_duration: None,
        ..Route::plain("all", conditions())
    }
}

fn plan(backend: SocketAddr) -> Plan {
    let server = Server {
        max_header_bytes: super::corpus::request::MAX_HEAD,
        header_timeout: TIMEOUT,
        body_timeout: TIMEOUT,
        idle_timeout: TIMEOUT,
        write_timeout: TIMEOUT,
        drain_timeout: TIMEOUT,
        max_connection_age: TIMEOUT,
        ..Server::plain()
    };
    fixtures::plan(server, Some((route(), fixtures::upstream(backend))))
}
