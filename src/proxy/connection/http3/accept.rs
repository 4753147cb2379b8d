//! A worker's UDP sockets: accepts QUIC connections, then serves or refuses them.

use std::cell::Cell;
use std::io;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use quinn::{Connection, Endpoint, Incoming, TokioRuntime};
use rustls::pki_types::CertificateDer;
use tokio::time::timeout;

use crate::net::client_certificate::ClientCertificate;
use crate::net::quic::{ConnectionIds, QuicSecrets, ServerId, WorkerSocket, endpoint_config, server_config};
use crate::proxy::connection::connection_guard::ConnectionGuard;
use crate::proxy::connection::connection_limits;
use crate::proxy::session::peer::{ConnectionEnds, ConnectionPeer};
use crate::proxy::worker::Worker;
use crate::proxy::worker::connection_handle::ConnectionHandle;
use crate::proxy::worker::datagrams::QuicListener;
use crate::telemetry::metrics::ConnectionRejectReason;

/// Handshakes of a worker under way with clients whose addresses are not validated. Further clients are asked to show that
/// they receive packets at their address (RFC 9000 §8.1.2), so that a flood with forged addresses costs no state.
const MAX_UNVALIDATED: usize = 32;

/// Serves the connections of a listener until the worker ends.
pub(in crate::proxy) fn listen(listener: QuicListener, worker: Rc<Worker>) -> io::Result<()> {
    let QuicListener { index, number, socket, routes, inbox, secrets } = listener;
    let ids = ConnectionIds::new(secrets.id_key, ServerId { process: secrets.process, worker: number });
    let config = endpoint_config(&ids, &secrets.reset_key);
    let socket = Arc::new(WorkerSocket::new(socket, ids, routes, inbox)?);
    let endpoint = Endpoint::new_with_abstract_socket(config, None, socket, Arc::new(TokioRuntime))?;
    let acceptor =
        Acceptor { index, endpoint, secrets, plan: None, tls: None, unvalidated: Rc::default(), worker };
    tokio::task::spawn_local(acceptor.run());
    Ok(())
}

struct Acceptor {
    index: usize,
    endpoint: Endpoint,
    secrets: QuicSecrets,
    /// The number of the plan whose TLS was looked at last.
    plan: Option<u64>,
    /// The settings of the last plan whose TLS can speak QUIC.
    tls: Option<Arc<quinn::ServerConfig>>,
    /// Handshakes under way with clients whose addresses are not validated.
    unvalidated: Rc<Cell<usize>>,
    worker: Rc<Worker>,
}

impl Acceptor {
    async fn run(mut self) {
        self.refresh();
        while let Some(incoming) = self.endpoint.accept().await {
            // Its client connects by TCP instead, or to the process that takes over.
            if self.worker.is_draining() {
                incoming.refuse();
                continue;
            }
            self.refresh();
            self.admit(incoming);
        }
    }

    /// Takes the certificates of the present plan.
    fn refresh(&mut self) {
        let plan = self.worker.plan();
        if self.plan.replace(plan.number) == Some(plan.number) {
            return;
        }
        let Some(tls) = &plan.server.tls else { return };
        match server_config(&tls.config, &self.secrets.token_key) {
            Ok(config) => {
                self.endpoint.set_server_config(Some(config.clone()));
                self.tls = Some(Arc::new(config));
            }
            Err(error) => tracing::error!(%error, "HTTP/3 keeps the certificates that it has"),
        }
    }

    /// Serves a connection, asks its client to validate its address first, or refuses it. Packets with forged addresses
    /// must not count against those whose addresses they are.
    fn admit(&self, incoming: Incoming) {
        let (worker, index) = (&self.worker, self.index);
        let plan = worker.plan();
        let server = &plan.server;
        let counts_clients = server.max_connections_per_client.is_some() || plan.connections().is_some();
        let is_full = worker.shared.connections.load(Ordering::Relaxed) >= server.max_connections;
        let is_validated = incoming.remote_address_validated();
        // Where connections are scarce, an idle one makes room: not for a client that there may not be.
        let is_crowd = is_full || self.unvalidated.get() >= MAX_UNVALIDATED;
        if !is_validated && (counts_clients || is_crowd) {
            if incoming.retry().is_err() {
                tracing::debug!("a client with a validated address needs no token");
            }
            return;
        }
        let client = incoming.remote_address().ip().to_canonical();
        let admits = connection_limits::admits(index, client, worker);
        // A client that is not told so repeats its first packet, and each would count as another connection.
        if admits == Some(false) {
            return incoming.refuse();
        }
        if is_full && !worker.make_room() {
            plan.metrics.connection_rejected(index, ConnectionRejectReason::Crowd);
            return incoming.refuse();
        }
        let Some(tls) = &self.tls else { return incoming.refuse() };
        let handle = ConnectionHandle::new(index);
        let guard = ConnectionGuard::new(index, Rc::clone(worker), Some(&handle));
        let handshake = QuicHandshake {
            tls: Arc::clone(tls),
            unvalidated: (!is_validated).then(|| Unvalidated::count(&self.unvalidated)),
            handle,
            guard,
            worker: Rc::clone(worker),
        };
        drop(tokio::task::spawn_local(handshake.begin(incoming, admits.is_some())));
    }
}

/// A connection before its handshake.
struct QuicHandshake {
    tls: Arc<quinn::ServerConfig>,
    unvalidated: Option<Unvalidated>,
    handle: Rc<ConnectionHandle>,
    guard: ConnectionGuard,
    worker: Rc<Worker>,
}

impl QuicHandshake {
    /// `is_admitted`: by the limits of connections. Else the process that takes over has the counters.
    async fn begin(mut self, incoming: Incoming, is_admitted: bool) {
        let client = incoming.remote_address().ip().to_canonical();
        let listener = self.handle.listener();
        if !is_admitted && !connection_limits::admits_elsewhere(listener, client, &self.worker).await {
            return incoming.refuse();
        }
        match self.worker.admit_client(client) {
            Ok(counted) => self.guard.client = counted,
            Err(_) => {
                self.worker.plan().metrics.connection_rejected(listener, ConnectionRejectReason::PerClient);
                return incoming.refuse();
            }
        }
        let Self { tls, unvalidated, handle, guard, worker } = self;
        let header_timeout = worker.plan().server.header_timeout;
        let connected = match incoming.accept_with(tls) {
            Ok(connecting) => handle.idle_during(timeout(header_timeout, connecting)).await,
            Err(_) => None,
        };
        drop(unvalidated);
        match connected {
            Some(Ok(Ok(connection))) => {
                drop(tokio::task::spawn_local(async move {
                    let peer = peer_of(&connection, handle.listener(), &worker);
                    super::serve(connection, handle, peer, worker).await;
                    drop(guard);
                }));
            }
            None if handle.is_evicted() => {}
            // Any client can cause this at any rate, so it is not logged for operators.
            _ => worker.plan().metrics.connection_rejected(listener, ConnectionRejectReason::Handshake),
        }
    }
}

/// The peer of a connection whose handshake is complete.
fn peer_of(connection: &Connection, listener: usize, worker: &Worker) -> ConnectionPeer {
    let plan = worker.plan();
    let identity = connection.peer_identity();
    let chain = identity.and_then(|identity| identity.downcast::<Vec<CertificateDer<'static>>>().ok());
    let certificate = chain.and_then(|chain| ClientCertificate::read(chain.first()?));
    let listener = plan.server.listen.get(listener);
    let local =
        connection.local_ip().zip(listener).map(|(ip, listener)| (ip, listener.address.port()).into());
    let ends = ConnectionEnds { client: connection.remote_address(), local };
    ConnectionPeer::of_quic(ends, certificate, listener)
}

/// Counts a handshake with a client whose address is not validated.
struct Unvalidated(Rc<Cell<usize>>);

impl Unvalidated {
    fn count(all: &Rc<Cell<usize>>) -> Self {
        all.set(all.get() + 1);
        Self(Rc::clone(all))
    }
}

impl Drop for Unvalidated {
    fn drop(&mut self) {
        self.0.set(self.0.get() - 1);
    }
}
