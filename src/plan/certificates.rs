//! Selects the certificate for a client by the server name that it asks for (SNI).

use std::collections::HashMap;
use std::fmt;
use std::sync::Arc;

use rustls::SignatureScheme;
use rustls::server::{ClientHello, ResolvesServerCert};
use rustls::sign::CertifiedKey;

use crate::acme::live::AcmeCertificate;
use crate::limit::wall_clock::WallTime;

/// A certificate with its key.
#[derive(Clone)]
pub enum ServedKey {
    /// It stays the same while the plan is active.
    Fixed(Arc<CertifiedKey>),
    /// It is replaced meanwhile.
    Live(Arc<AcmeCertificate>),
}

impl ServedKey {
    /// What is shown now.
    fn key(&self) -> Option<Arc<CertifiedKey>> {
        match self {
            Self::Fixed(key) => Some(Arc::clone(key)),
            Self::Live(certificate) => certificate.live().map(|live| live.key()),
        }
    }
}

/// A `[[server.tls]]`, as it is told to people.
#[derive(Clone, Debug)]
pub struct ServedCertificate {
    /// The DNS names of the certificate.
    pub names: Vec<String>,
    /// Where it is from.
    pub source: CertificateSource,
}

/// Where a certificate is from.
#[derive(Clone, Debug)]
pub enum CertificateSource {
    /// From files. It expires then.
    File(WallTime),
    /// From an authority.
    Acme(Arc<AcmeCertificate>),
}

impl ServedCertificate {
    /// When it expires.
    pub fn expiry(&self) -> Option<WallTime> {
        match &self.source {
            CertificateSource::File(expiry) => Some(*expiry),
            CertificateSource::Acme(certificate) => certificate.live().map(|live| live.validity().end),
        }
    }
}

/// Certificates with their keys, by server name.
pub struct Certificates {
    /// All certificates, in the order of the file. The first is the default: for a client that asks for no name, or for
    /// a name without a certificate.
    all: Vec<ServedKey>,
    /// Lower case. Several for one name differ in the type of their key: the first that the client supports is
    /// selected.
    exact: HashMap<Box<str>, Vec<ServedKey>>,
    /// By the part after `*.`: `example.com` stands for all names with one label before it.
    wildcard: HashMap<Box<str>, Vec<ServedKey>>,
}

impl Certificates {
    /// The first of `all` is the default. No certificate has a name yet.
    pub fn new(all: Vec<ServedKey>) -> Self {
        Self { all, exact: HashMap::new(), wildcard: HashMap::new() }
    }

    /// Selects `key` for clients that ask for `name`, or for a name that matches it (`*.example.com`), unless an
    /// earlier one is suitable.
    pub fn add(&mut self, name: &str, key: &ServedKey) {
        let name = name.to_ascii_lowercase();
        let (names, name) = match name.strip_prefix("*.") {
            Some(rest) => (&mut self.wildcard, rest),
            None => (&mut self.exact, &*name),
        };
        names.entry(name.into()).or_default().push(key.clone());
    }

    /// The certificate for a client that asks for `name`, in lower case, and supports these signatures. It is the first
    /// with a suitable key of those for the name, then of those for a matching wildcard, or of all if none is for the
    /// name. Without a suitable key the first of them is selected, since the client may support more than it announces.
    fn choose(&self, name: Option<&str>, schemes: &[SignatureScheme]) -> Option<Arc<CertifiedKey>> {
        let exact = name.and_then(|name| self.exact.get(name));
        let wildcard = name.and_then(|name| self.wildcard.get(name.split_once('.')?.1));
        let named: Vec<_> = [exact, wildcard].into_iter().flatten().flatten().collect();
        let fitting = if named.is_empty() { self.all.iter().collect() } else { named };
        let keys = || fitting.iter().filter_map(|served| served.key());
        keys().find(|key| key.key.choose_scheme(schemes).is_some()).or_else(|| keys().next())
    }
}

impl ResolvesServerCert for Certificates {
    fn resolve(&self, hello: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        self.choose(hello.server_name(), hello.signature_schemes())
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
