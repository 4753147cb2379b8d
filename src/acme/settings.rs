//! `[acme]`.

use std::fmt;
use std::path::PathBuf;

use crate::labels::labels;
use crate::net::TlsClientConfig;

labels! {
    /// How the authority is shown that a name is ours.
    pub enum ChallengeKind {
        /// By a certificate, in a TLS handshake of its own (RFC 8737).
        TlsAlpn01 = "tls-alpn-01",
        /// By a file, over HTTP (RFC 8555 §8.3).
        Http01 = "http-01",
    }
}

/// `[acme]`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AcmeSettings {
    /// Where the authority reaches a person, if it is told.
    pub email: Option<String>,
    /// The URL of the authority's directory.
    pub directory: String,
    /// Whether it begins with `http://`, which only a loopback address does.
    pub is_plain: bool,
    /// TLS to the authority.
    pub tls: Option<TlsClientConfig>,
    /// The state directory.
    pub state: PathBuf,
    /// How names are proven.
    pub challenge: ChallengeKind,
    /// The account with the authority to which the one made here is bound.
    pub external_account: Option<ExternalAccount>,
    /// Encrypts private keys in the shared store; `None`: none are there.
    pub secret: Option<AcmeSecret>,
}

/// `eab`.
#[derive(Clone, PartialEq, Eq)]
pub struct ExternalAccount {
    /// The name of the key.
    pub key_id: String,
    /// The key.
    pub hmac_key: Vec<u8>,
}

impl fmt::Debug for ExternalAccount {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ExternalAccount").field("key_id", &self.key_id).finish_non_exhaustive()
    }
}

/// A key that is derived from `secret`.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct AcmeSecret([u8; 32]);

/// The context for deriving the key (BLAKE3): never to be changed.
const CONTEXT: &str = "tollgate 2026-11-28 private keys in the shared store";

impl AcmeSecret {
    /// The key of this secret.
    pub fn new(secret: &[u8]) -> Self {
        Self(blake3::derive_key(CONTEXT, secret))
    }

    pub(super) fn key(&self) -> &[u8; 32] {
        &self.0
    }
}

impl fmt::Debug for AcmeSecret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("AcmeSecret")
    }
}
