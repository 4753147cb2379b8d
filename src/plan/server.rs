//! `[server]`: how clients are served.

use std::net::SocketAddr;
use std::num::NonZero;
use std::sync::Arc;
use std::time::Duration;

use http::HeaderName;
use rustls::ServerConfig;

use super::certificates::{CertificateSource, ServedCertificate};
use super::ratelimit::{RatelimitHeaders, RatelimitPolicies};
use super::template::HeaderTemplate;
use crate::acme::live::AcmeCertificate;
use crate::limit::wall_clock::WallTime;
use crate::route::client::{AddressRules, ClientRule};
use crate::route::path::{EncodedDots, PathMatching};

/// `[server]`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Server {
    /// The addresses to listen on; port 0 picks one. At least one; that of `[decisions]` is the last.
    pub listen: Vec<Listener>,
    /// `[[server.tls]]`. Present if any listener uses TLS.
    pub tls: Option<ListenerTls>,
    /// Worker threads; at least 1.
    pub workers: usize,
    /// The trusted proxies, and the network prefix that counts as one client.
    pub client: ClientRule,
    /// How the paths of routes are compared with those of requests.
    pub path_matching: PathMatching,
    /// What is done with encoded dot segments.
    pub encoded_dots: EncodedDots,
    /// Maximum number of connections, all workers together.
    pub max_connections: usize,
    /// Maximum number of connections of one client, except trusted proxies; `None`: no limit.
    pub max_connections_per_client: Option<usize>,
    /// Maximum bytes of a request head.
    pub max_header_bytes: usize,
    /// Maximum bytes that all requests hold which are not decided.
    pub max_buffered: usize,
    /// From the first byte to the whole head.
    pub header_timeout: Duration,
    /// Maximum time without a byte of a request body.
    pub body_timeout: Duration,
    /// How long an idle client connection is kept.
    pub idle_timeout: Duration,
    /// Maximum time in which a client accepts no byte.
    pub write_timeout: Duration,
    /// Requests on one connection; `None`: no limit.
    pub max_requests_per_connection: Option<u64>,
    /// How long a connection serves new requests.
    pub max_connection_age: Duration,
    /// How long requests in flight may take to finish on shutdown.
    pub drain_timeout: Duration,
    /// The rate-limit headers of responses.
    pub ratelimit_headers: RatelimitHeaders,
    /// The policies that the standard ones list.
    pub ratelimit_policies: RatelimitPolicies,
    /// The responses that have `x-request-id`.
    pub request_id: RequestIds,
    /// Append `via` to requests.
    pub via: bool,
    /// The headers of every response; those of a route may override them in what its upstream answers.
    pub response_headers: Vec<(HeaderName, HeaderTemplate)>,
    /// The clients that may send requests.
    pub addresses: AddressRules,
}

impl Server {
    /// What the listener at this index is for.
    pub fn role_of(&self, listener: usize) -> ListenerRole {
        self.listen.get(listener).map(|listener| listener.role).unwrap_or_default()
    }

    /// The listeners for requests of clients.
    pub fn client_listeners(&self) -> impl Iterator<Item = &Listener> {
        self.listen.iter().filter(|listener| listener.role == ListenerRole::Traffic)
    }

    /// The defaults without a listener, but no headers that change from request to request.
    #[cfg(test)]
    pub fn plain() -> Self {
        Self {
            listen: Vec::new(),
            tls: None,
            workers: 1,
            client: ClientRule::default(),
            path_matching: PathMatching::default(),
            encoded_dots: EncodedDots::default(),
            max_connections: 10,
            max_connections_per_client: None,
            max_header_bytes: 32 << 10,
            max_buffered: 64 << 20,
            header_timeout: Duration::from_secs(10),
            body_timeout: Duration::from_secs(10),
            idle_timeout: Duration::from_secs(60),
            write_timeout: Duration::from_secs(30),
            drain_timeout: Duration::from_secs(30),
            max_requests_per_connection: None,
            max_connection_age: Duration::from_secs(3_600),
            ratelimit_headers: RatelimitHeaders::Off,
            ratelimit_policies: RatelimitPolicies::Tightest,
            request_id: RequestIds::Off,
            via: false,
            response_headers: Vec::new(),
            addresses: AddressRules::default(),
        }
    }
}

/// A listener of the workers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Listener {
    /// Its name, by which routes know it.
    pub name: Option<Arc<str>>,
    /// The address; port 0 picks one.
    pub address: SocketAddr,
    /// Whether clients use TLS there.
    pub tls: bool,
    /// Whether clients speak HTTP/3 there, too, over QUIC.
    pub http3: bool,
    /// Whether trusted proxies send a PROXY protocol header there, before TLS.
    pub proxy_protocol: bool,
    /// What it is for.
    pub role: ListenerRole,
}

impl Listener {
    /// The UDP port at which it serves HTTP/3.
    pub fn http3_port(&self) -> Option<NonZero<u16>> {
        NonZero::new(self.address.port()).filter(|_| self.http3)
    }
}

/// What a listener is for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ListenerRole {
    /// Requests of clients: an item of `server.listen` in the file.
    #[default]
    Traffic,
    /// Calls of others who ask for decisions: `[decisions]`.
    Decisions,
}

/// TLS to clients.
#[derive(Clone, Debug)]
pub struct ListenerTls {
    /// The gateway's certificates, and the requirements for clients' certificates.
    pub config: Arc<ServerConfig>,
    /// A hash of all files it was made of.
    pub files: [u8; 32],
    /// Whether clients are asked for a certificate.
    pub asks_clients: bool,
    /// The gateway's certificates, in the order of the file.
    pub certificates: Vec<ServedCertificate>,
}

impl ListenerTls {
    /// When the first of the gateway's certificates expires.
    pub fn first_expiry(&self) -> Option<WallTime> {
        self.certificates.iter().filter_map(ServedCertificate::expiry).min()
    }

    /// The certificates that an authority issues.
    pub fn acme(&self) -> impl Iterator<Item = &Arc<AcmeCertificate>> {
        self.certificates.iter().filter_map(|one| match &one.source {
            CertificateSource::Acme(certificate) => Some(certificate),
            CertificateSource::File(_) => None,
        })
    }
}

impl PartialEq for ListenerTls {
    fn eq(&self, other: &Self) -> bool {
        self.files == other.files
    }
}

impl Eq for ListenerTls {}

/// The responses that have `x-request-id`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RequestIds {
    /// The gateway's own responses.
    Own,
    /// All.
    All,
    /// None.
    Off,
}
