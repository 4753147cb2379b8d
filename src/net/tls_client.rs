//! How TLS is spoken to a server: whom to trust, and who we are.

use std::sync::Arc;

use rustls::ClientConfig;
use rustls::pki_types::ServerName;

/// How TLS is spoken to a server. Sessions are resumed among all that use the same `config`.
#[derive(Clone, Debug)]
pub struct TlsClientConfig {
    /// Whom to trust, and who we are.
    pub config: Arc<ClientConfig>,
    /// The name that the server's certificate must carry; `None`: the host's.
    pub server_name: Option<ServerName<'static>>,
    /// A hash of all that it was made of.
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
