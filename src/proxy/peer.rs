//! Who is on the other side of a client's connection, as all its requests see it.

use std::net::IpAddr;

use crate::socket::Stream;

/// The other side of a client's connection.
#[derive(Clone, Debug)]
pub(crate) struct Peer {
    pub(crate) address: IpAddr,
    /// The address as text, made once.
    pub(crate) text: Box<str>,
    /// The subject of the client's certificate.
    pub(crate) subject: Option<Box<str>>,
    /// `http` or `https`: how the client reached us.
    pub(crate) scheme: &'static str,
    /// It speaks HTTP/2: each request has a connection of its own, which is a pipe.
    pub(crate) http2: bool,
}

impl Peer {
    /// The other side of `stream`.
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
}
