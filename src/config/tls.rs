//! `tls = { ca, cert, key, server_name }`: TLS to a server; `server`: TLS to clients.

mod policy;
pub(super) mod server;

use std::sync::Arc;

use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use rustls::{ClientConfig, RootCertStore};

use super::keys::{Schema, keys};
use super::report::quoted;
use super::table::ConfigTable;
use super::text::SyntaxError;
use super::value::ConfigValue;
use crate::net::{TlsClientConfig, crypto};

keys! {
    /// How TLS is spoken to a server.
    pub(super) TRUST: TrustKeys = "tls" {
        /// A PEM file with the authorities to trust, in place of the system's.
        ca = Schema::Text;
        /// A PEM file with our own certificate; goes with key.
        cert = Schema::Text;
        /// A PEM file with its private key.
        key = Schema::Text;
        /// The name that the server's certificate carries. Default: the host of the URL.
        server_name = Schema::Text;
    }
}

/// TLS with the settings of the table; without one, the system's roots and no client certificate. `None` if it has
/// errors. `protocols` are offered by ALPN, the best first.
pub(super) fn client(
    value: Option<&ConfigValue<'_>>,
    wanted: &ConfigValue<'_>,
    protocols: &[&[u8]],
) -> Option<TlsClientConfig> {
    let mut files = Files::default();
    let Some(value) = value else {
        let roots = system_roots(wanted, &mut files)?;
        let config = Arc::new(config(roots, None, protocols, wanted)?);
        return Some(TlsClientConfig { config, server_name: None, files: files.0.finalize().into() });
    };
    let mut table = value.table("`tls`")?;
    let roots = match table.take(&TRUST.ca) {
        Some(ca) => authorities(&ca, &mut files).map(Arc::new),
        None => system_roots(wanted, &mut files),
    };
    let server_name =
        table.optional(&TRUST.server_name, |value| value.text()?.parse("the name of a server", server_name));
    let identity = identity(&mut table, &mut files);
    table.finish().then_some(())?;
    let config = Arc::new(config(roots?, identity?, protocols, value)?);
    Some(TlsClientConfig { config, server_name, files: files.0.finalize().into() })
}

/// A hash of all files that were read, so that a reload sees when one has changed.
#[derive(Default)]
struct Files(blake3::Hasher);

impl Files {
    fn read(&mut self, value: &ConfigValue<'_>) -> Option<Vec<u8>> {
        let bytes = value.file()?;
        self.0.update(&(bytes.len() as u64).to_le_bytes()).update(&bytes);
        Some(bytes)
    }
}

/// The gateway's certificate with its key.
type GatewayCertificate = (Vec<CertificateDer<'static>>, PrivateKeyDer<'static>);

/// `Some(None)` if neither is given, `None` if there are faults.
fn identity(table: &mut ConfigTable<'_>, files: &mut Files) -> Option<Option<GatewayCertificate>> {
    match (table.take(&TRUST.cert), table.take(&TRUST.key)) {
        (None, None) => Some(None),
        (Some(cert), Some(key)) => {
            let (certificates, key) = (certificates(&cert, files), private_key(&key, files));
            Some(Some((certificates?, key?)))
        }
        (Some(lone), None) => lone_half(&lone, "key"),
        (None, Some(lone)) => lone_half(&lone, "cert"),
    }
}

fn lone_half<T>(lone: &ConfigValue<'_>, other: &str) -> Option<T> {
    lone.fault(
        format!("{} stands without `{other}`", lone.label()),
        format!("add `{other} = \"…\"`: the two go together"),
    );
    None
}

fn config(
    roots: Arc<RootCertStore>,
    identity: Option<GatewayCertificate>,
    protocols: &[&[u8]],
    value: &ConfigValue<'_>,
) -> Option<ClientConfig> {
    let provider = Arc::new(crypto::tls::default_provider());
    let refuse = |error: rustls::Error| {
        value.fault(
            format!("TLS cannot be spoken so: {error}"),
            "look whether `cert` and `key` belong together",
        );
    };
    let builder = ClientConfig::builder_with_provider(provider).with_safe_default_protocol_versions();
    let builder = builder.map_err(refuse).ok()?.with_root_certificates(roots);
    let mut config = match identity {
        None => builder.with_no_client_auth(),
        Some((certificates, key)) => builder.with_client_auth_cert(certificates, key).map_err(refuse).ok()?,
    };
    config.alpn_protocols = protocols.iter().map(|name| name.to_vec()).collect();
    Some(config)
}

fn system_roots(wanted: &ConfigValue<'_>, files: &mut Files) -> Option<Arc<RootCertStore>> {
    let (roots, hash) = wanted.diagnostics().system_roots();
    files.0.update(hash);
    if roots.is_empty() && wanted.diagnostics().is_without_environment() {
        wanted.diagnostics().skip(wanted.span(), "this machine trusts no certificate authority");
        return None;
    }
    if roots.is_empty() {
        wanted.fault(
            "this machine trusts no certificate authority",
            "install `ca-certificates`, or name the authority: `tls = { ca = \"ca.pem\" }`",
        );
        return None;
    }
    Some(Arc::clone(roots))
}

fn authorities(value: &ConfigValue<'_>, files: &mut Files) -> Option<RootCertStore> {
    let mut roots = RootCertStore::empty();
    let (added, _) = roots.add_parsable_certificates(certificates(value, files)?);
    if added == 0 {
        value.fault(
            format!("{} holds no certificate of an authority", value.label()),
            "name a PEM file with the authority's certificate",
        );
        return None;
    }
    Some(roots)
}

fn certificates(value: &ConfigValue<'_>, files: &mut Files) -> Option<Vec<CertificateDer<'static>>> {
    let found: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(&files.read(value)?).collect();
    let found = found.ok().filter(|found| !found.is_empty());
    if found.is_none() {
        value.fault(
            format!("{} holds no certificate", value.label()),
            "name a PEM file: `-----BEGIN CERTIFICATE-----`",
        );
    }
    found
}

fn private_key(value: &ConfigValue<'_>, files: &mut Files) -> Option<PrivateKeyDer<'static>> {
    let found = PrivateKeyDer::from_pem_slice(&files.read(value)?).ok();
    if found.is_none() {
        value.fault(
            format!("{} holds no private key", value.label()),
            "name a PEM file with an unencrypted key: `-----BEGIN PRIVATE KEY-----`",
        );
    }
    found
}

fn server_name(text: &str) -> Result<ServerName<'static>, SyntaxError> {
    let refused = |_| {
        SyntaxError::new(
            format!("{} is not the name of a server", quoted(text)),
            "write the name that its certificate carries",
        )
    };
    ServerName::try_from(text.to_owned()).map_err(refused)
}
