//! One client's connection, from accept to close.

use std::cell::{Cell, RefCell};
use std::future::poll_fn;
use std::net::IpAddr;
use std::pin::pin;
use std::rc::Rc;
use std::time::Duration;

use http::{HeaderValue, StatusCode};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::time::timeout;

use super::gate::{Bounds, Gate, SharedGate};
use super::wire::Wire;
use super::worker::Worker;
use super::{headers, refuse, service, tunnel};
use crate::gateway::Server;
use crate::shared::Life;
use crate::upstream::connection::Lease;

/// Requests on one connection; the last is answered with `connection: close`.
const MAX_REQUESTS: u64 = 10_000;
/// Age after which the next answer closes the connection.
const MAX_AGE: Duration = Duration::from_secs(3600);
/// How long a closing connection is read, so that the answer is not lost to a reset (RFC 9112 §9.6).
const LINGER: Duration = Duration::from_secs(2);
/// hyper's buffer beyond the largest head that the gate lets through.
const SPARE_BUFFER: usize = 32 << 10;

/// What the requests of one connection share.
#[derive(Debug)]
pub(crate) struct Connection {
    pub(crate) worker: Rc<Worker>,
    pub(crate) wire: Rc<Wire>,
    pub(crate) peer: IpAddr,
    /// The peer's address as text, made once.
    pub(crate) peer_value: HeaderValue,
    /// Requests taken up so far.
    requests: Cell<u64>,
    opened: tokio::time::Instant,
    /// The backend's side of an upgrade that was granted.
    pub(crate) tunnel: RefCell<Option<Lease>>,
    /// For waits on backends; armed lazily, so it is kept from request to request.
    pub(crate) backend_deadline: RefCell<crate::clock::deadline::Deadline>,
}

impl Connection {
    /// The place of the next request among the heads of this connection.
    pub(crate) fn take_up(&self) -> u64 {
        let place = self.requests.get();
        self.requests.set(place + 1);
        place
    }

    /// Whether the answer to the present request should be the last.
    pub(crate) fn is_worn_out(&self) -> bool {
        self.requests.get() >= MAX_REQUESTS || self.opened.elapsed() > MAX_AGE
    }
}

/// Serves a connection until either side closes it.
pub(crate) async fn serve(wire: Rc<Wire>, peer: IpAddr, worker: Rc<Worker>) {
    let peer = peer.to_canonical();
    let plan = worker.plan();
    let gate = SharedGate::new(Gate::new(Rc::clone(&wire), bounds(&plan.gateway.server)));
    let connection = Rc::new(Connection {
        wire,
        peer,
        peer_value: headers::address_value(peer),
        requests: Cell::new(0),
        opened: crate::clock::deadline::now(),
        tunnel: RefCell::new(None),
        backend_deadline: RefCell::default(),
        worker,
    });
    drive(&connection, gate.clone(), plan.gateway.server.max_header_bytes + SPARE_BUFFER).await;
    let lease = connection.tunnel.borrow_mut().take();
    match lease {
        Some(lease) => tunnel::run(gate, lease).await,
        None if connection.wire.is_evicted() => {}
        None => linger(gate).await,
    }
}

/// Lets hyper serve requests until the connection is closed or upgraded.
async fn drive(connection: &Rc<Connection>, gate: SharedGate, buffer: usize) {
    let for_service = Rc::clone(connection);
    let mut driver = pin!(http1::Builder::new().half_close(true).max_buf_size(buffer).serve_connection(
        TokioIo::new(gate),
        service_fn(move |request| service::answer(Rc::clone(&for_service), request)),
    ));
    let mut life = connection.worker.life.clone();
    let mut draining = pin!(life.wait_for(|life| *life == Life::Draining));
    let mut drained = false;
    let ended = poll_fn(|context| {
        if !drained && draining.as_mut().poll(context).is_ready() {
            drained = true;
            driver.as_mut().graceful_shutdown();
        }
        driver.as_mut().poll(context)
    });
    // What fails here is the client's connection: there is nobody left to tell.
    let _ = ended.await;
}

fn bounds(server: &Server) -> Bounds {
    Bounds {
        max_header_bytes: server.max_header_bytes,
        header_timeout: server.header_timeout,
        body_timeout: server.body_timeout,
        idle_timeout: server.idle_timeout,
        write_timeout: server.write_timeout,
    }
}

/// Closes our side and reads on for a while: closing a socket with unread bytes would reset it, and the client might
/// never see the answer that is under way to it.
async fn linger(mut gate: SharedGate) {
    if gate.shutdown().await.is_ok() {
        // However it ends, the connection is closed now.
        let _ = timeout(LINGER, gate.discard()).await;
    }
}

/// Answers a connection over the bound with 503, unread, and closes it.
pub(crate) async fn turn_away(mut stream: TcpStream) {
    let response = refuse::problem(StatusCode::SERVICE_UNAVAILABLE, "there are too many connections");
    let body = response.body();
    let head = format!(
        "HTTP/1.1 503 Service Unavailable\r\ncontent-type: application/problem+json\r\ncontent-length: {}\r\n\
         retry-after: 1\r\ncache-control: no-store\r\nconnection: close\r\n\r\n",
        body.len()
    );
    let answer = async {
        stream.write_all(head.as_bytes()).await?;
        stream.write_all(body).await?;
        stream.shutdown().await?;
        let mut unread = [0; 4096];
        while stream.read(&mut unread).await? > 0 {}
        std::io::Result::Ok(())
    };
    // However it ends, the connection is closed now.
    let _ = timeout(LINGER, answer).await;
}
