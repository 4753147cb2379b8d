//! Which certificate a client is shown: chosen by the name that it asks for.

use std::collections::HashMap;
use std::fmt;
use std::sync::Arc;

use rustls::SignatureScheme;
use rustls::server::{ClientHello, ResolvesServerCert};
use rustls::sign::CertifiedKey;

/// Certificates with their keys, by the names that they are for.
pub struct Certificates {
    /// For whoever asks for no name, or for one that no certificate is for.
    default: Arc<CertifiedKey>,
    /// Lower case. Several for one name differ in the kind of their key: the first that the client can check is shown.
    exact: HashMap<Box<str>, Vec<Arc<CertifiedKey>>>,
    /// What follows `*.`: `example.com` stands for all names with one label before it.
    wildcard: HashMap<Box<str>, Vec<Arc<CertifiedKey>>>,
}

impl Certificates {
    /// `default`, which is for no name yet.
    pub fn new(default: Arc<CertifiedKey>) -> Self {
        Self { default, exact: HashMap::new(), wildcard: HashMap::new() }
    }

    /// Shows `key` to those who ask for `name`, or for one that fits it (`*.example.com`), unless one that was added before
    /// suits them.
    pub fn add(&mut self, name: &str, key: &Arc<CertifiedKey>) {
        let name = name.to_ascii_lowercase();
        let (names, name) = match name.strip_prefix("*.") {
            Some(rest) => (&mut self.wildcard, rest),
            None => (&mut self.exact, &*name),
        };
        names.entry(name.into()).or_default().push(Arc::clone(key));
    }

    /// What is shown to a client that asks for `name`, in lower case, and can check these signatures.
    fn choose(&self, name: Option<&str>, schemes: &[SignatureScheme]) -> &Arc<CertifiedKey> {
        let found = name.and_then(|name| {
            let wildcard = || self.wildcard.get(name.split_once('.')?.1);
            self.exact.get(name).or_else(wildcard)
        });
        let suits = |key: &&Arc<CertifiedKey>| key.key.choose_scheme(schemes).is_some();
        found.and_then(|keys| keys.iter().find(suits).or(keys.first())).unwrap_or(&self.default)
    }
}

impl ResolvesServerCert for Certificates {
    fn resolve(&self, hello: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        Some(Arc::clone(self.choose(hello.server_name(), hello.signature_schemes())))
    }
}

impl fmt::Debug for Certificates {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Certificates")
            .field("exact", &self.exact.keys())
            .field("wildcard", &self.wildcard.keys())
            .finish_non_exhaustive()
    }
}
