//! Selects the certificate for a client by the server name that it asks for (SNI).

use std::collections::HashMap;
use std::fmt;
use std::sync::Arc;

use rustls::SignatureScheme;
use rustls::server::{ClientHello, ResolvesServerCert};
use rustls::sign::CertifiedKey;

/// Certificates with their keys, by server name.
pub struct Certificates {
    /// All certificates, in the order of the file. The first is the default: for a client that asks for no name, or for
    /// a name without a certificate.
    all: Vec<Arc<CertifiedKey>>,
    /// Lower case. Several for one name differ in the type of their key: the first that the client supports is
    /// selected.
    exact: HashMap<Box<str>, Vec<Arc<CertifiedKey>>>,
    /// By the part after `*.`: `example.com` stands for all names with one label before it.
    wildcard: HashMap<Box<str>, Vec<Arc<CertifiedKey>>>,
}

impl Certificates {
    /// The first of `all` is the default. No certificate has a name yet.
    pub fn new(all: Vec<Arc<CertifiedKey>>) -> Self {
        Self { all, exact: HashMap::new(), wildcard: HashMap::new() }
    }

    /// Selects `key` for clients that ask for `name`, or for a name that matches it (`*.example.com`), unless an
    /// earlier one is suitable.
    pub fn add(&mut self, name: &str, key: &Arc<CertifiedKey>) {
        let name = name.to_ascii_lowercase();
        let (names, name) = match name.strip_prefix("*.") {
            Some(rest) => (&mut self.wildcard, rest),
            None => (&mut self.exact, &*name),
        };
        names.entry(name.into()).or_default().push(Arc::clone(key));
    }

    /// The certificate for a client that asks for `name`, in lower case, and supports these signatures. It is the first
    /// with a suitable key of those for the name, then of those for a matching wildcard, or of all if none is for the
    /// name. Without a suitable key the first of them is selected, since the client may support more than it announces.
    fn choose(&self, name: Option<&str>, schemes: &[SignatureScheme]) -> Option<&Arc<CertifiedKey>> {
        let exact = name.and_then(|name| self.exact.get(name));
        let wildcard = name.and_then(|name| self.wildcard.get(name.split_once('.')?.1));
        let named: Vec<_> = [exact, wildcard].into_iter().flatten().flatten().collect();
        let fitting = if named.is_empty() { self.all.iter().collect() } else { named };
        let suits = |key: &&&Arc<CertifiedKey>| key.key.choose_scheme(schemes).is_some();
        fitting.iter().find(suits).or(fitting.first()).copied()
    }
}

impl ResolvesServerCert for Certificates {
    fn resolve(&self, hello: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        self.choose(hello.server_name(), hello.signature_schemes()).cloned()
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
