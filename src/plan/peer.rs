//! The peer of a connection, as its requests are resolved with it.

use std::net::IpAddr;

use crate::net::client_certificate::ClientCertificate;

/// The peer of the connection that a request came on.
#[derive(Clone, Copy, Debug)]
pub struct Peer<'r> {
    /// Its address.
    pub address: IpAddr,
    /// Whether it uses TLS.
    pub secure: bool,
    /// Its certificate.
    pub certificate: Option<&'r ClientCertificate>,
    /// The name of the listener that it has connected to, if that has one.
    pub listener: Option<&'r str>,
}

/// The sender of a request in an access log.
#[derive(Clone, Copy, Debug)]
pub struct LoggedSender {
    /// The client.
    pub client: IpAddr,
    /// Whether the request came by TLS.
    pub secure: bool,
}

impl LoggedSender {
    /// The same, as of a connection.
    pub fn peer(self) -> Peer<'static> {
        Peer { address: self.client, secure: self.secure, certificate: None, listener: None }
    }
}
