//! TLS to a server: the trusted roots, and the gateway's certificate.

use std::sync::Arc;

use rustls::ClientConfig;
use rustls::pki_types::ServerName;

/// TLS to a server. Sessions are resumed among all connections with the same `config`.
#[derive(Clone, Debug)]
pub struct TlsClientConfig {
    /// The trusted roots, and the gateway's certificate.
    pub config: Arc<ClientConfig>,
    /// The name that the server's certificate must carry; `None`: the host's.
    pub server_name: Option<ServerName<'static>>,
    /// A hash of all files it was made of.
    pub files: [u8; 32],
}

impl TlsClientConfig {
    /// The name that the certificate of the server at `host` must carry. `None` if no certificate can carry it.
    pub fn name(&self, host: &str) -> Option<ServerName<'static>> {
        let name = || ServerName::try_from(host.strip_suffix('.').unwrap_or(host).to_owned()).ok();
        self.server_name.clone().or_else(name)
    }
}

impl PartialEq for TlsClientConfig {
    fn eq(&self, other: &Self) -> bool {
        self.server_name == other.server_name && self.files == other.files
    }
}

impl Eq for TlsClientConfig {}
