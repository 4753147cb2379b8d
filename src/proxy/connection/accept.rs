//! A worker's thread and listeners: accepts connections, then serves, bounds or rejects them.

use std::io;
use std::net::{SocketAddr, TcpListener as StdListener, TcpStream as StdStream};
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

#[cfg(target_os = "linux")]
use rustix::net::SocketFlags;
use socket2::SockRef;
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;
use tokio::runtime::{Builder, LocalOptions};
use tokio::time::{Instant, timeout};

use super::admin_commands;
use super::connection_guard::ConnectionGuard;
use super::{connection_limits, proxy_protocol};
use crate::clock::now;
use crate::net::{Socket, Stream, reset_on_close};
use crate::plan::ListenerRole;
use crate::proxy::connection;
use crate::proxy::session::peer::ConnectionEnds;
use crate::proxy::worker::Worker;
use crate::proxy::worker::connection_handle::ConnectionHandle;
use crate::proxy::worker::fd_reserve::DescriptorReserve;
use crate::proxy::worker::worker_listeners::WorkerListeners;
use crate::shared::{Life, Shared};
use crate::telemetry::metrics::ConnectionRejectReason;

/// How long accepting pauses when the process is out of descriptors or memory.
const ACCEPT_REST: Duration = Duration::from_millis(50);
/// The minimum time between two such warnings of a worker.
const WARN_EVERY: Duration = Duration::from_secs(10);
/// Connections beyond `max_connections` that are answered with 503; more are closed without a response.
const MAX_WARNED: usize = 256;
/// How long accepting waits at most for the bans and overrides of a shared store.
const FIRST_READ: Duration = Duration::from_secs(1);
/// How often unused backend connections are checked for expiry.
const EXPIRE_EVERY: Duration = Duration::from_secs(1);

/// Runs one worker on the calling thread until it is drained, in a single-threaded runtime of its own. Calls `up` when
/// the worker accepts connections.
pub fn run(
    worker: usize,
    listeners: WorkerListeners,
    shared: Arc<Shared>,
    up: impl FnOnce(),
) -> io::Result<()> {
    let runtime = Builder::new_current_thread().enable_all().build_local(LocalOptions::default())?;
    runtime.block_on(async move {
        let worker = Rc::new(Worker::new(worker, shared));
        if worker.index() == 0 {
            tokio::task::spawn_local(admin_commands::keep_lists(Rc::clone(&worker)));
        }
        // Else the first requests of a banned key were admitted, and those of a key with an override refused.
        let mut lists_read = worker.shared.control.lists_read.subscribe();
        timeout(FIRST_READ, lists_read.wait_for(|is_read| *is_read)).await.ok();
        for (index, listener) in listeners.streams {
            let listener = adopt(listener)?;
            // A reload does not change it.
            let tls = worker.plan().server.listen.get(index).is_some_and(|listener| listener.tls);
            tokio::task::spawn_local(accept(index, tls, listener, Rc::clone(&worker)));
        }
        #[cfg(feature = "http3")]
        for listener in listeners.quic {
            super::http3::accept::listen(listener, Rc::clone(&worker))?;
        }
        tokio::task::spawn_local(expire(Rc::clone(&worker)));
        if let Some(inbox) = worker.shared.worker_commands.inbox(worker.index()) {
            tokio::task::spawn_local(admin_commands::serve(inbox, Rc::clone(&worker)));
        }
        up();
        worker.drained().await;
        Ok(())
    })
}

fn adopt(listener: StdListener) -> io::Result<WorkerListener> {
    listener.set_nonblocking(true)?;
    // A listener from a service manager may lack it.
    SockRef::from(&listener).set_tcp_nodelay(true)?;
    #[expect(
        deprecated,
        reason = "the newer function is unsafe; a listener's descriptor is its own while it lives"
    )]
    AsyncFd::with_interest(listener, Interest::READABLE)
}

/// A listener whose sockets join the runtime only when they have to wait: see [`Socket`].
type WorkerListener = AsyncFd<StdListener>;

/// The next connection, with its client's address.
async fn next(listener: &WorkerListener) -> io::Result<(StdStream, SocketAddr)> {
    listener.async_io(Interest::READABLE, accept_now).await
}

#[cfg(target_os = "linux")]
fn accept_now(listener: &StdListener) -> io::Result<(StdStream, SocketAddr)> {
    let flags = SocketFlags::NONBLOCK | SocketFlags::CLOEXEC;
    let (socket, peer) = rustix::net::acceptfrom_with(listener, flags)?;
    let peer = peer.ok_or(io::ErrorKind::ConnectionAborted)?;
    Ok((socket.into(), peer.try_into()?))
}

#[cfg(not(target_os = "linux"))]
fn accept_now(listener: &StdListener) -> io::Result<(StdStream, SocketAddr)> {
    let (socket, peer) = listener.accept()?;
    socket.set_nonblocking(true)?;
    Ok((socket, peer))
}

/// Accepts connections until draining begins; then the listener is closed.
async fn accept(index: usize, tls: bool, listener: WorkerListener, worker: Rc<Worker>) {
    let mut life = worker.life.clone();
    let reserve = DescriptorReserve::of_process();
    let Shared { connections, scarce_above, .. } = &*worker.shared;
    let (mut last_told, mut inherits_nodelay) = (None, false);
    loop {
        let open = connections.load(Ordering::Relaxed);
        if DescriptorReserve::may_be_next(open, scarce_above) && reserve.is_next(&listener) {
            warn_throttled(
                &mut last_told,
                "file descriptor limit nearly reached; not accepting new connections",
            );
            wait_for_descriptors(reserve, &listener, &worker).await;
        }
        let accepted = tokio::select! {
            biased;
            _ = life.wait_for(|life| *life == Life::Draining) => return,
            accepted = next(&listener) => accepted,
        };
        match accepted {
            Ok((stream, peer)) => {
                reserve.note(&stream, connections.load(Ordering::Relaxed), scarce_above);
                inherits_nodelay = inherits_nodelay || !lacks_nodelay(&stream);
                admit(index, tls, stream, peer, &worker);
            }
            Err(error) if is_the_clients(&error) => {}
            Err(error) => {
                warn_throttled(&mut last_told, &format!("cannot accept connections; trying again: {error}"));
                tokio::time::sleep(ACCEPT_REST).await;
            }
        }
    }
}

/// Whether the socket did not inherit TCP_NODELAY from its listener; it is set afterwards. Two cases lack it: systems
/// on which sockets do not inherit it, and connections that waited at an inherited listener before it was set there.
/// Connections are accepted in the order in which they were made, so nothing needs to be checked once one has it.
fn lacks_nodelay(stream: &StdStream) -> bool {
    let lacks = !stream.nodelay().unwrap_or(true);
    if lacks {
        #[expect(
            clippy::let_underscore_must_use,
            reason = "a socket that refuses works, but small answers wait for acknowledgements"
        )]
        let _ = stream.set_nodelay(true);
    }
    lacks
}

/// Logs a warning unless one was logged just now: clients may cause it at any rate.
fn warn_throttled(last: &mut Option<Instant>, what: &str) {
    let now = now();
    if last.is_none_or(|last| now - last >= WARN_EVERY) {
        *last = Some(now);
        tracing::warn!("{what}");
    }
}

/// Waits until another connection leaves the reserved descriptors free. The connection that has been idle longest is
/// evicted. Without an idle one, new connections wait in the listener's queue.
async fn wait_for_descriptors(reserve: DescriptorReserve, listener: &WorkerListener, worker: &Worker) {
    while reserve.is_next(listener) && !worker.is_draining() {
        if worker.make_room() {
            tokio::task::yield_now().await;
        } else {
            tokio::time::sleep(ACCEPT_REST).await;
        }
    }
}

/// Serves a connection. Over the maximum, the connection that has been idle longest is evicted. If none is idle, the
/// new one is rejected: without a response where that would cost a handshake, or where many rejections are being sent
/// already.
fn admit(index: usize, tls: bool, stream: StdStream, peer: SocketAddr, worker: &Rc<Worker>) {
    let plan = worker.plan();
    let announces = plan.server.listen.get(index).is_some_and(|listener| listener.proxy_protocol);
    // Where the client is known already, a refused connection costs neither a task nor a place.
    let admits = if announces { None } else { connection_limits::admits(index, peer.ip(), worker) };
    if admits == Some(false) {
        // Nothing of it stays behind in the kernel.
        reset_on_close(&stream);
        return;
    }
    let socket = Socket::detached(stream);
    let (max, open) = (plan.server.max_connections, worker.shared.connections.load(Ordering::Relaxed));
    if open >= max && !worker.make_room() {
        plan.metrics.connection_rejected(index, ConnectionRejectReason::Crowd);
        if tls || open - max >= MAX_WARNED {
            return;
        }
        let open = ConnectionGuard::new(index, Rc::clone(worker), None);
        let worker = Rc::clone(worker);
        tokio::task::spawn_local(async move {
            connection::reject_connection(
                socket,
                ConnectionHandle::new(index),
                ConnectionEnds::of(peer),
                worker,
            )
            .await;
            drop(open);
        });
        return;
    }
    let handle = ConnectionHandle::new(index);
    let guard = ConnectionGuard::new(index, Rc::clone(worker), Some(&handle));
    let accepted = Accepted { tls, socket, handle, guard, worker: Rc::clone(worker) };
    if announces {
        tokio::task::spawn_local(accepted.read_ends(peer));
    } else if admits.is_none() {
        tokio::task::spawn_local(accepted.ask(ConnectionEnds::of(peer)));
    } else {
        accepted.serve(ConnectionEnds::of(peer));
    }
}

/// A connection that was accepted. Each step has a task of its own, whose memory is given back at its end: the last one, in
/// which the connection is idle, is small.
struct Accepted {
    /// Its listener speaks TLS.
    tls: bool,
    socket: Socket,
    handle: Rc<ConnectionHandle>,
    guard: ConnectionGuard,
    worker: Rc<Worker>,
}

impl Accepted {
    /// Reads the client's address from the PROXY protocol header, and serves the connection.
    async fn read_ends(mut self, peer: SocketAddr) {
        let Self { socket, handle, worker, .. } = &mut self;
        let Some(ends) = proxy_protocol::announced(handle, socket, peer, worker).await else { return };
        match connection_limits::admits(handle.listener(), ends.client.ip(), worker) {
            Some(true) => self.serve(ends),
            Some(false) => {}
            None => self.ask(ends).await,
        }
    }

    /// Serves the connection if the process admits it that takes over.
    async fn ask(self, ends: ConnectionEnds) {
        let Self { handle, worker, .. } = &self;
        if connection_limits::admits_elsewhere(handle.listener(), ends.client.ip(), worker).await {
            self.serve(ends);
        }
    }

    /// Serves the connection, unless the client has too many already.
    fn serve(self, ends: ConnectionEnds) {
        let Self { tls, socket, handle, mut guard, worker } = self;
        // Those who ask for decisions are few, and each asks for many clients.
        let is_bounded = worker.plan().server.role_of(handle.listener()) == ListenerRole::Traffic;
        let admitted = if is_bounded { worker.admit_client(ends.client.ip()) } else { Ok(None) };
        match admitted {
            Ok(client) => {
                guard.client = client;
                if tls {
                    tokio::task::spawn_local(connection::serve_tls(socket, handle, ends, guard, worker));
                } else {
                    let stream = Stream::Plain(socket);
                    tokio::task::spawn_local(connection::serve(stream, handle, ends, guard, worker));
                }
            }
            Err(max) => {
                let listener = handle.listener();
                worker.plan().metrics.connection_rejected(listener, ConnectionRejectReason::PerClient);
                // A rejection with a response keeps a connection open for a while. Where connections are scarce, or a
                // handshake comes first, it is closed at once.
                if !tls && worker.shared.connections.load(Ordering::Relaxed) < max / 2 {
                    tokio::task::spawn_local(async move {
                        connection::reject_connection(socket, handle, ends, worker).await;
                        drop(guard);
                    });
                }
            }
        }
    }
}

/// Errors that concern one connection: the client left before it was accepted.
fn is_the_clients(error: &io::Error) -> bool {
    use io::ErrorKind::{ConnectionAborted, ConnectionReset, Interrupted};
    matches!(error.kind(), ConnectionAborted | ConnectionReset | Interrupted)
}

async fn expire(worker: Rc<Worker>) {
    loop {
        tokio::time::sleep(EXPIRE_EVERY).await;
        // A worker without requests also drops an old plan's resources: its connections to the shared store.
        worker.plan();
        worker.pools.expire();
    }
}

#[cfg(test)]
mod tests {
    use std::net::TcpStream as Client;

    use super::*;
    use crate::proxy::worker::listen::bind;

    #[tokio::test]
    async fn accepted_sockets_have_nodelay_from_a_listener_of_our_own() {
        let loopback = "127.0.0.1:0".parse().expect("an address");
        let mut listeners = bind([loopback].into_iter(), 1, &mut Vec::new()).expect("a free port");
        let (_, listener) = listeners.remove(0).remove(0);
        let _waiting = Client::connect(listener.local_addr().expect("bound")).expect("it listens");
        let (stream, _) = next(&adopt(listener).expect("a listener")).await.expect("one waits");
        assert!(!lacks_nodelay(&stream));
        assert!(stream.nodelay().expect("a socket option"));
    }

    #[tokio::test]
    async fn accepted_sockets_have_nodelay_at_an_inherited_listener_too() {
        let listener = StdListener::bind("127.0.0.1:0").expect("a free port");
        let address = listener.local_addr().expect("bound");
        let _early = Client::connect(address).expect("it listens");
        let listener = adopt(listener).expect("a listener");
        let _late = Client::connect(address).expect("it listens");
        let (early, _) = next(&listener).await.expect("two wait");
        assert!(lacks_nodelay(&early), "it was made before the listener had it");
        assert!(early.nodelay().expect("a socket option"));
        let (late, _) = next(&listener).await.expect("one waits");
        assert!(!lacks_nodelay(&late));
        assert!(late.nodelay().expect("a socket option"));
    }
}
