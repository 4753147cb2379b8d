//! The peer of a client connection, as all its requests see it.

use std::net::IpAddr;
use std::sync::atomic::{AtomicBool, Ordering};

use crate::http1::fields::Fields;
use crate::net::Stream;
use crate::plan::resolve;
use crate::route::client::{ClientAddress, ClientRule};

/// Whether the log has already warned of a trusted proxy that names clients in another header than the configured one.
static OVERLOOKED: AtomicBool = AtomicBool::new(false);

/// The peer of a client connection.
#[derive(Clone, Debug)]
pub(crate) struct ConnectionPeer {
    pub(crate) address: IpAddr,
    /// The address as text, made once.
    pub(crate) text: Box<str>,
    /// The subject of the client's certificate.
    pub(crate) subject: Option<Box<str>>,
    /// `http` or `https`: the scheme of the connection to the gateway.
    pub(crate) scheme: &'static str,
    /// The client speaks HTTP/2: each request has a stream of its own.
    pub(crate) http2: bool,
}

impl ConnectionPeer {
    /// The peer of `stream`.
    pub(crate) fn new(address: IpAddr, stream: &Stream) -> Self {
        let address = address.to_canonical();
        Self {
            address,
            text: address.to_string().into(),
            subject: stream.subject().map(Into::into),
            scheme: if stream.is_tls() { "https" } else { "http" },
            http2: false,
        }
    }

    /// The peer as requests are resolved with it.
    pub(crate) fn as_seen(&self) -> resolve::Peer<'_> {
        let Self { address, subject, scheme, .. } = self;
        resolve::Peer { address: *address, secure: *scheme == "https", subject: subject.as_deref() }
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
