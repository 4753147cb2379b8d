//! The admin listener: liveness, readiness and metrics; the API and the dashboard.
//!
//! For example, `GET /api/v1/limits` lists the limits, and `POST /api/v1/limits/per-client/keys/…/ban` bans a key on all
//! gateways that share a store. Tokens have rights, and a browser of another site gets no answer.
//!
//! It runs on the control thread with a small connection limit of its own, so that neither traffic nor admin requests
//! can starve the other. Every connection serves one request and has `WHOLE_TIMEOUT` for all of it, so no connection
//! is idle. The handshake of TLS is a part of that time: a connection in it is evicted like one without a request.

mod answer;
mod api;
mod guard;
mod page;
mod response;
mod tls;

use std::convert::Infallible;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use http::Request;
use hyper::body::Incoming;
use hyper::rt::{Read, Write};
use hyper::server::conn::http1;
use hyper::service::{Service, service_fn};
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Notify;

use crate::plan::admin::Admin;
use crate::shared::Shared;
use guard::Guard;
use response::AdminResponse;
use tls::Opening;

/// The maximum number of connections. For one more, the oldest without a whole request head is evicted; if there is
/// none, the new one is closed unanswered.
const MAX_CONNECTIONS: usize = 64;
/// From the first byte to the whole head.
const HEADER_TIMEOUT: Duration = Duration::from_secs(5);
/// From accepting a connection to the end of the handshake of TLS.
const HANDSHAKE_TIMEOUT: Duration = Duration::from_secs(5);
/// From accepting a connection to its end, including a slow reader of a large page.
const WHOLE_TIMEOUT: Duration = Duration::from_secs(30);
/// Bytes of a request head; hyper takes no less.
const MAX_HEAD: usize = 8_192;
/// Fields of a request.
const MAX_FIELDS: usize = 64;
/// How long accepting pauses when the process is out of descriptors or memory.
const ACCEPT_REST: Duration = Duration::from_millis(100);

/// The listener, ready to be served.
#[derive(Debug)]
pub struct AdminListener {
    listener: TcpListener,
    guard: Guard,
}

impl AdminListener {
    /// Binds the address of `[admin]`. Needs a tokio runtime around it. Fails if another process listens there.
    pub fn bind(admin: &Admin) -> io::Result<Self> {
        Self::adopt(std::net::TcpListener::bind(admin.listen)?)
    }

    /// The same on a socket that listens already. Needs a tokio runtime around it.
    pub fn adopt(listener: std::net::TcpListener) -> io::Result<Self> {
        listener.set_nonblocking(true)?;
        let guard = Guard::new(listener.local_addr()?);
        Ok(Self { listener: TcpListener::from_std(listener)?, guard })
    }

    /// A duplicate of the socket, for another process.
    pub fn socket(&self) -> io::Result<std::net::TcpListener> {
        use std::os::fd::AsFd as _;
        self.listener.as_fd().try_clone_to_owned().map(Into::into)
    }

    /// The address it listens on: port 0 is resolved.
    pub fn address(&self) -> SocketAddr {
        self.guard.listen()
    }

    /// Serves until the task is dropped.
    pub async fn run(self, shared: Arc<Shared>) {
        let mut open: Vec<Arc<AdminConnection>> = Vec::with_capacity(MAX_CONNECTIONS);
        let guard = Arc::new(self.guard);
        loop {
            match self.listener.accept().await {
                Ok((stream, peer)) => {
                    // Without room the stream is dropped, which closes it.
                    if !has_room(&mut open) {
                        continue;
                    }
                    let connection = Arc::<AdminConnection>::default();
                    open.push(Arc::clone(&connection));
                    let (guard, shared) = (Arc::clone(&guard), Arc::clone(&shared));
                    tokio::spawn(async move {
                        tokio::select! {
                            biased;
                            () = connection.evicted.notified() => {}
                            () = serve(stream, peer, &guard, &shared, &connection) => {}
                        }
                    });
                }
                Err(error) => {
                    tracing::warn!(%error, "the admin listener cannot accept; trying again");
                    tokio::time::sleep(ACCEPT_REST).await;
                }
            }
        }
    }
}

/// One open connection, shared by its task and the list of all.
#[derive(Debug, Default)]
struct AdminConnection {
    /// A whole request head was received.
    asked: AtomicBool,
    /// The connection is to be closed for another.
    evicted: Notify,
}

/// Whether there is room for one more connection, if necessary by evicting the oldest without a request: silent
/// connections must not keep probes out. `open` is in the order of accepting.
fn has_room(open: &mut Vec<Arc<AdminConnection>>) -> bool {
    open.retain(|connection| Arc::strong_count(connection) > 1);
    if open.len() < MAX_CONNECTIONS {
        return true;
    }
    let Some(oldest) = open.iter().position(|connection| !connection.asked.load(Ordering::Relaxed)) else {
        return false;
    };
    open.remove(oldest).evicted.notify_one();
    true
}

async fn serve(
    stream: TcpStream,
    peer: SocketAddr,
    guard: &Guard,
    shared: &Shared,
    connection: &AdminConnection,
) {
    let service = service_fn(async |request: Request<Incoming>| {
        connection.asked.store(true, Ordering::Relaxed);
        Ok(answer::answer(request, peer, guard, shared).await)
    });
    let serving = async {
        // Those of the plan in force: a reload may bring another certificate, or begin or end TLS.
        let tls = shared.plan.load().admin.as_ref().and_then(|admin| admin.tls.clone());
        let Some(tls) = tls else { return serve_http(TokioIo::new(stream), service).await };
        match tokio::time::timeout(HANDSHAKE_TIMEOUT, tls::open(stream, tls.config)).await {
            Ok(Ok(Opening::Tls(stream))) => serve_http(TokioIo::new(stream), service).await,
            Ok(Ok(Opening::Http(stream))) => {
                let refuse = service_fn(async |_: Request<Incoming>| Ok(tls::plain_request()));
                serve_http(TokioIo::new(stream), refuse).await;
            }
            // Any client can cause this at any rate, so it is not logged for operators.
            Ok(Err(error)) => {
                tracing::debug!(peer = %peer.ip(), %error, "no TLS with a client of the admin listener")
            }
            Err(_) => tracing::debug!(peer = %peer.ip(), "the handshake at the admin listener took too long"),
        }
    };
    // The way a connection ends is not logged, since an operator could not act on it.
    let _ = tokio::time::timeout(WHOLE_TIMEOUT, serving).await;
}

/// Answers one request.
async fn serve_http(
    stream: impl Read + Write + Unpin,
    service: impl Service<Request<Incoming>, Response = AdminResponse, Error = Infallible>,
) {
    let connection = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(HEADER_TIMEOUT)
        .keep_alive(false)
        .half_close(true)
        .max_buf_size(MAX_HEAD)
        .max_headers(MAX_FIELDS)
        .serve_connection(stream, service);
    _ = connection.await;
}
