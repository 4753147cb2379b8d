//! The peer of a client connection, as all its requests see it.

use std::cell::OnceCell;
use std::net::{IpAddr, SocketAddr};
use std::num::NonZero;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use http::Version;

use super::request_reader::Source;
use crate::http1::fields::Fields;
use crate::net::Stream;
use crate::net::client_certificate::ClientCertificate;
use crate::plan::{Listener, ListenerRole, ProxyProtocolVersion, resolve};
use crate::route::client::{ClientAddress, ClientRule};
use crate::upstream::private::PrivateConnections;
use crate::upstream::proxy_protocol::{client_header, own_header};

/// Whether the log has already warned of a trusted proxy that names clients in another header than the configured one.
static OVERLOOKED: AtomicBool = AtomicBool::new(false);

/// The addresses of a client connection.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ConnectionEnds {
    /// The client's.
    pub(crate) client: SocketAddr,
    /// The one that the client connected to, if a proxy in front has named it; else it is that of the socket.
    pub(crate) local: Option<SocketAddr>,
}

impl ConnectionEnds {
    /// Those of a socket with this peer.
    pub(crate) fn of(peer: SocketAddr) -> Self {
        Self { client: peer, local: None }
    }
}

/// The peer of a client connection.
#[derive(Debug)]
pub(crate) struct ConnectionPeer {
    pub(crate) address: IpAddr,
    /// Its port.
    port: u16,
    /// The address as text, made once.
    pub(crate) text: Box<str>,
    /// The client's certificate.
    pub(crate) certificate: Option<Rc<ClientCertificate>>,
    /// The name of its listener, if that has one.
    listener: Option<Arc<str>>,
    /// `http` or `https`: the scheme of the connection to the gateway.
    pub(crate) scheme: &'static str,
    /// The version of HTTP that the client speaks; `HTTP_11` stands for both of HTTP/1.
    pub(crate) version: Version,
    /// The UDP port at which its listener serves HTTP/3.
    pub(crate) http3_port: Option<NonZero<u16>>,
    /// What its listener is for.
    pub(crate) role: ListenerRole,
    /// What only servers with PROXY protocol need.
    announced: OnceCell<Box<AnnouncedClient>>,
}

/// The client as PROXY protocol headers name it, and the connections that began with one.
#[derive(Debug)]
struct AnnouncedClient {
    /// The address that the client connected to.
    local: Option<SocketAddr>,
    connections: PrivateConnections,
}

impl AnnouncedClient {
    fn new(local: Option<SocketAddr>) -> Box<Self> {
        Box::new(Self { local, connections: PrivateConnections::default() })
    }
}

impl ConnectionPeer {
    /// The peer of `stream`.
    pub(crate) fn new(ends: ConnectionEnds, stream: &Stream, listener: Option<&Listener>) -> Self {
        let address = ends.client.ip().to_canonical();
        let announced =
            ends.local.map_or_else(OnceCell::new, |local| AnnouncedClient::new(Some(local)).into());
        Self {
            address,
            port: ends.client.port(),
            announced,
            text: address.to_string().into(),
            certificate: stream.peer_certificate().map(Into::into),
            listener: listener.and_then(|listener| listener.name.clone()),
            scheme: if stream.is_tls() { "https" } else { "http" },
            version: Version::HTTP_11,
            http3_port: listener.and_then(Listener::http3_port),
            role: listener.map(|listener| listener.role).unwrap_or_default(),
        }
    }

    /// The peer of a connection of QUIC, with the certificate that it has shown.
    #[cfg(feature = "http3")]
    pub(crate) fn of_quic(
        ends: ConnectionEnds,
        certificate: Option<ClientCertificate>,
        listener: Option<&Listener>,
    ) -> Self {
        let address = ends.client.ip().to_canonical();
        Self {
            address,
            port: ends.client.port(),
            text: address.to_string().into(),
            certificate: certificate.map(Rc::new),
            listener: listener.and_then(|listener| listener.name.clone()),
            scheme: "https",
            version: Version::HTTP_3,
            http3_port: listener.and_then(Listener::http3_port),
            role: listener.map(|listener| listener.role).unwrap_or_default(),
            announced: AnnouncedClient::new(ends.local).into(),
        }
    }

    /// The same peer, whose connection `stream` speaks HTTP/2.
    pub(crate) fn with_http2(&self, stream: &Stream) -> Self {
        // Streams do not know their socket, so it is asked now.
        let known = self.announced.get().and_then(|announced| announced.local);
        let local = known.or_else(|| local_address(stream));
        Self {
            address: self.address,
            port: self.port,
            text: self.text.clone(),
            certificate: self.certificate.clone(),
            listener: self.listener.clone(),
            scheme: self.scheme,
            version: Version::HTTP_2,
            http3_port: self.http3_port,
            role: self.role,
            announced: AnnouncedClient::new(local).into(),
        }
    }

    /// Whether each request has a stream of its own.
    pub(crate) fn is_multiplexed(&self) -> bool {
        self.version >= Version::HTTP_2
    }

    /// The PROXY protocol header for a request of `client`, and the connections that began with such headers. `client` is
    /// another one than the peer if that is a trusted proxy; its port is not known then. `None`: it is not identified,
    /// and the header names no address. `source` is where the request came from.
    pub(crate) fn proxy_header(
        &self,
        version: ProxyProtocolVersion,
        client: Option<IpAddr>,
        source: &Source,
    ) -> (Box<[u8]>, &PrivateConnections) {
        let announced = self.announced.get_or_init(|| {
            AnnouncedClient::new(match source {
                Source::Http1(stream) => local_address(stream),
                Source::Stream(_) => None,
            })
        });
        let header = match client {
            Some(client) => {
                let port = if client == self.address { self.port } else { 0 };
                client_header(version, SocketAddr::new(client, port), announced.local)
            }
            None => own_header(version),
        };
        (header, &announced.connections)
    }

    /// The peer as requests are resolved with it.
    pub(crate) fn as_seen(&self) -> resolve::Peer<'_> {
        let Self { address, certificate, listener, scheme, .. } = self;
        resolve::Peer {
            address: *address,
            secure: *scheme == "https",
            certificate: certificate.as_deref(),
            listener: listener.as_deref(),
        }
    }

    /// Warns about the first trusted proxy that names the client only in a header that is not read: all its clients
    /// count as one.
    pub(crate) fn check_client(&self, client: ClientAddress, rule: &ClientRule, fields: Fields<'_>) {
        if client.address == self.address && !rule.trusted_proxies.is_empty() {
            self.warn_if_overlooked(rule, fields);
        }
    }

    fn warn_if_overlooked(&self, rule: &ClientRule, fields: Fields<'_>) {
        if OVERLOOKED.load(Ordering::Relaxed) {
            return;
        }
        if let Some(sent) = rule.overlooked(self.address, fields)
            && !OVERLOOKED.swap(true, Ordering::Relaxed)
        {
            tracing::warn!(
                "the trusted proxy {} sends `{sent}`, but `client_ip` in [server] is \"{}\": all its clients count as one (told once)",
                self.text,
                rule.source
            );
        }
    }
}

fn local_address(stream: &Stream) -> Option<SocketAddr> {
    stream.socket().and_then(|socket| socket.local_addr().ok())
}
