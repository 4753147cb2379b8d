//! `[[server.tls]]`: TLS to clients.

use std::sync::Arc;

use rustls::crypto::CryptoProvider;
use rustls::pki_types::{CertificateDer, CertificateRevocationListDer, PrivateKeyDer};
use rustls::server::danger::ClientCertVerifier;
use rustls::server::{NoClientAuth, WebPkiClientVerifier};
use rustls::sign::CertifiedKey;
use rustls::{InconsistentKeys, RootCertStore, ServerConfig};
use x509_parser::prelude::{FromDer as _, GeneralName, X509Certificate};

use super::policy::{self, TlsPolicy, day};
use super::{Files, authorities, certificates, private_key};
use crate::acme::live::AcmeCertificate;
use crate::clock::Clock;
use crate::config::acme::{self, AcmeDraft};
use crate::config::keys::{SOME, Schema, choice, keys};
use crate::config::report::quoted;
use crate::config::value::ConfigValue;
use crate::limit::units::Micros;
use crate::limit::wall_clock::WallTime;
use crate::net::crypto;
use crate::plan::ListenerTls;
use crate::plan::certificates::{CertificateSource, Certificates, ServedCertificate, ServedKey};

keys! {
    /// A certificate for clients.
    pub(in crate::config) CERTIFICATE: CertificateKeys = "tls of a listener" {
        /// A PEM file: the certificate, then those that signed it. It is shown to clients that ask for one of its
        /// DNS names.
        cert = Schema::Text, required "\"cert.pem\"";
        /// A PEM file with the certificate's private key, unencrypted.
        key = Schema::Text, required "\"key.pem\"";
        + CLIENTS;
    }
}

keys! {
    /// A certificate for clients, from files or from an authority.
    pub(in crate::config) SERVER_CERTIFICATE: ServerCertificateKeys = "an item of tls" {
        /// The DNS names of a certificate that the authority of [acme] issues, instead of cert and key. At most 100 in
        /// the file, none twice.
        acme = Schema::Set(SOME, &Schema::Name);
        /// A PEM file: the certificate, then those that signed it. It is shown to clients that ask for one of its
        /// DNS names.
        cert = Schema::Text, example "\"cert.pem\"";
        /// A PEM file with the certificate's private key, unencrypted.
        key = Schema::Text, example "\"key.pem\"";
        + CLIENTS;
        one of "acme", "cert";
    }
}

keys! {
    /// What is asked of clients.
    pub(in crate::config) CLIENTS: ClientsKeys = "an item of tls" {
        /// A PEM file with the authorities that sign clients' certificates. The same in all [[server.tls]].
        /// Default: clients are asked for none.
        client_ca = Schema::Text;
        /// Whether clients without a certificate are refused.
        client_auth: Demand = choice(&CLIENT_AUTH) => Demand::Required;
        + policy::POLICY;
    }
}

/// The name of a certificate's table in messages.
const TITLE: &str = "`[[server.tls]]`";

/// Whether a client must send a certificate if `client_ca` is set.
const CLIENT_AUTH: [(&str, Demand); 2] = [("required", Demand::Required), ("optional", Demand::Optional)];

/// TLS of a listener with one certificate.
pub(in crate::config) struct TlsDraft {
    pub(in crate::config) tls: ListenerTls,
    /// Whether clients show a certificate, if they are asked for one.
    pub(in crate::config) demand: Option<Demand>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::config) enum Demand {
    Required,
    Optional,
}

/// One `[[server.tls]]`.
struct CertificateEntry {
    key: ServedKey,
    served: ServedCertificate,
    /// The authorities of clients' certificates.
    clients: Option<(RootCertStore, Demand)>,
    policy: TlsPolicy,
}

/// What `acme` of a `[[server.tls]]` depends on.
struct AcmeNames<'d> {
    draft: Option<&'d AcmeDraft>,
    /// The names so far.
    seen: Vec<String>,
}

/// All certificates, the first of which is the default. `None` if they have errors.
pub(in crate::config) fn read(value: &ConfigValue<'_>, acme: Option<&AcmeDraft>) -> Option<ListenerTls> {
    if !value.is_list() {
        let help = "each certificate stands below a header with two brackets: `[[server.tls]]`";
        return value.mismatch("a list", help);
    }
    let provider = Arc::new(crypto::tls::default_provider());
    let mut files = Files::default();
    let mut entries: Vec<CertificateEntry> = Vec::new();
    let (mut sound, mut names) = (true, AcmeNames { draft: acme, seen: Vec::new() });
    value.some_of(|item| {
        let is_first = entries.is_empty();
        let Some(entry) = entry(&item, TITLE, &provider, &mut files, is_first, Some(&mut names)) else {
            sound = false;
            return None;
        };
        if entries.first().is_some_and(|first| !ask_alike(first, &entry)) {
            item.fault(
                "this certificate asks clients for other certificates than the first",
                "a client may ask for one name and send requests for another: give all `[[server.tls]]` the same `client_ca` and `client_auth`",
            );
        }
        if entries.first().is_some_and(|first| first.policy != entry.policy) {
            item.fault(
                "this certificate has another policy of TLS than the first",
                "a handshake begins before the name is known: give all `[[server.tls]]` the same `min_version`, `ciphers` and `crl`",
            );
        }
        entries.push(entry);
        Some(())
    })?;
    if !sound {
        return None;
    }
    let asks_clients = entries.iter().any(|entry| entry.clients.is_some());
    let certificates = entries.iter().map(|entry| entry.served.clone()).collect();
    let config = Arc::new(config(entries, provider, value)?);
    Some(ListenerTls { config, files: files.0.finalize().into(), asks_clients, certificates })
}

/// One certificate. `title` is its table's name in messages.
pub(in crate::config) fn read_one(value: &ConfigValue<'_>, title: &str) -> Option<TlsDraft> {
    let provider = Arc::new(crypto::tls::default_provider());
    let mut files = Files::default();
    let entry = entry(value, title, &provider, &mut files, true, None)?;
    let certificates = vec![entry.served.clone()];
    let demand = entry.clients.as_ref().map(|(_, demand)| *demand);
    let config = Arc::new(config(vec![entry], provider, value)?);
    let tls = ListenerTls {
        config,
        files: files.0.finalize().into(),
        asks_clients: demand.is_some(),
        certificates,
    };
    Some(TlsDraft { tls, demand })
}

fn entry(
    value: &ConfigValue<'_>,
    title: &str,
    provider: &CryptoProvider,
    files: &mut Files,
    first: bool,
    acme: Option<&mut AcmeNames<'_>>,
) -> Option<CertificateEntry> {
    let mut table = value.table(title)?;
    let ordered = acme.and_then(|names| Some((table.take(&SERVER_CERTIFICATE.acme)?, names)));
    let own = match ordered {
        Some((value, names)) => ordered_certificate(&mut table, &value, names, files),
        None => certificate_of_files(&mut table, provider, files, first),
    };
    let clients = clients(&mut table, files);
    let asks_clients = clients.as_ref().is_none_or(Option::is_some);
    let policy = policy::read(&mut table, asks_clients, provider, files);
    table.finish().then_some(())?;
    let (key, served) = own?;
    Some(CertificateEntry { key, served, clients: clients?, policy: policy? })
}

/// A certificate that an authority issues for the names in `value`.
fn ordered_certificate(
    table: &mut super::ConfigTable<'_>,
    value: &ConfigValue<'_>,
    AcmeNames { draft, seen }: &mut AcmeNames<'_>,
    files: &mut Files,
) -> Option<(ServedKey, ServedCertificate)> {
    for key in [CERTIFICATE.cert.name, CERTIFICATE.key.name] {
        let message = format!("`{key}` has no effect beside `acme`: the authority issues the certificate");
        table.misplaced(key, &message, "leave one of the two out");
    }
    if draft.is_none() {
        let help = "add `[acme]` with `state = \"/var/lib/tollgate/acme\"` and `agree_tos = true`";
        value.fault("a certificate is to be ordered, but there is no `[acme]`", help);
    }
    let names = acme::names(value, seen)?;
    let directory = draft.as_ref()?.settings.as_ref().map_or("", |settings| settings.directory.as_str());
    for text in names.iter().map(String::as_str).chain([directory]) {
        files.0.update(&(text.len() as u64).to_le_bytes()).update(text.as_bytes());
    }
    let ordered = Arc::new(AcmeCertificate::new(names.clone()));
    let served = ServedCertificate { names, source: CertificateSource::Acme(Arc::clone(&ordered)) };
    Some((ServedKey::Live(ordered), served))
}

/// A certificate from `cert` and `key`.
fn certificate_of_files(
    table: &mut super::ConfigTable<'_>,
    provider: &CryptoProvider,
    files: &mut Files,
    first: bool,
) -> Option<(ServedKey, ServedCertificate)> {
    let chain = table.require(&CERTIFICATE.cert, |value| {
        let chain = certificates(&value, files)?;
        let (names, expiry) = names_and_expiry(chain.first()?, &value, first)?;
        Some((chain, names, expiry))
    });
    let key = table.require(&CERTIFICATE.key, |value| Some((private_key(&value, files)?, value)));
    let ((chain, names, expiry), (key, value)) = (chain?, key?);
    let key = ServedKey::Fixed(Arc::new(certified(chain, key, provider, &value)?));
    Some((key, ServedCertificate { names, source: CertificateSource::File(expiry) }))
}

/// The certificate with its key, which must be its own. `value`: `key`.
fn certified(
    chain: Vec<CertificateDer<'static>>,
    key: PrivateKeyDer<'static>,
    provider: &CryptoProvider,
    value: &ConfigValue<'_>,
) -> Option<CertifiedKey> {
    let signing = match provider.key_provider.load_private_key(key) {
        Ok(signing) => signing,
        Err(error) => {
            let help = "RSA from 2048 bits, ECDSA (P-256, P-384, P-521) and Ed25519 are known";
            value.fault(format!("this private key cannot be used: {error}"), help);
            return None;
        }
    };
    let certified = CertifiedKey::new(chain, signing);
    match certified.keys_match() {
        Ok(()) | Err(rustls::Error::InconsistentKeys(InconsistentKeys::Unknown)) => Some(certified),
        Err(_) => {
            value.fault(
                "this private key does not belong to the certificate in `cert`",
                "name the key that the certificate was made with; in `cert` the server's own certificate stands first, those that signed it follow",
            );
            None
        }
    }
}

/// The DNS names of a certificate, which must be valid now, and the end of its validity. `value`: `cert`.
fn names_and_expiry(
    certificate: &CertificateDer<'_>,
    value: &ConfigValue<'_>,
    first: bool,
) -> Option<(Vec<String>, WallTime)> {
    let Ok((_, parsed)) = X509Certificate::from_der(certificate) else {
        value.fault("the certificate in `cert` is malformed", "have it made anew");
        return None;
    };
    is_current(&parsed, value).then_some(())?;
    let listed = parsed.subject_alternative_name().ok().flatten();
    let listed = listed.iter().flat_map(|listed| &listed.value.general_names);
    let names: Vec<String> = listed
        .filter_map(|name| match name {
            GeneralName::DNSName(name) => Some((*name).to_owned()),
            _ => None,
        })
        .collect();
    if names.is_empty() && !first {
        let help = "put it first, so that it is the default, or have it made with subject alternative names";
        value.diagnostics().warn(
            value.span(),
            "the certificate in `cert` is for no DNS name, so only a client that cannot check the kind of key of those before it is shown it",
            help,
        );
    }
    let expiry = u64::try_from(parsed.validity().not_after.timestamp()).unwrap_or_default();
    Some((names, WallTime(expiry.saturating_mul(Micros::SECOND.0))))
}

fn is_current(certificate: &X509Certificate<'_>, value: &ConfigValue<'_>) -> bool {
    let now = i64::try_from(Clock::system().wall_now().seconds()).unwrap_or(i64::MAX);
    let validity = certificate.validity();
    if validity.not_after.timestamp() < now {
        let message = format!("the certificate in `cert` expired on {}", day(validity.not_after));
        value.fault(message, "have it renewed, or leave this certificate out");
        return false;
    }
    if now < validity.not_before.timestamp() {
        let message = format!("the certificate in `cert` is not valid before {}", day(validity.not_before));
        let help = "clients will refuse it until then: look at this machine's clock, too";
        value.diagnostics().warn(value.span(), message, help);
    }
    true
}

/// `client_ca` and `client_auth`. `Some(None)` if clients are not asked for a certificate, `None` if there are errors.
fn clients(table: &mut super::ConfigTable<'_>, files: &mut Files) -> Option<Option<(RootCertStore, Demand)>> {
    let ca = table.take(&CLIENTS.client_ca);
    let demand = table.take(&CLIENTS.client_auth);
    let chosen = demand.as_ref().map(|value| value.choice(&CLIENT_AUTH));
    match (ca, demand) {
        (None, None) => Some(None),
        (None, Some(lone)) => super::lone_half(&lone, "client_ca"),
        (Some(ca), _) => {
            let roots = authorities(&ca, files);
            let demand = chosen.unwrap_or(Some(CLIENTS.client_auth.default))?;
            files.0.update(&[u8::from(demand == Demand::Required)]);
            Some(Some((roots?, demand)))
        }
    }
}

/// Whether two have the same requirements for clients.
fn ask_alike(one: &CertificateEntry, other: &CertificateEntry) -> bool {
    match (&one.clients, &other.clients) {
        (None, None) => true,
        (Some((roots, demand)), Some((others, other))) => roots.roots == others.roots && demand == other,
        _ => false,
    }
}

/// `entries`: at least one, all with the same requirements for clients.
fn config(
    mut entries: Vec<CertificateEntry>,
    provider: Arc<CryptoProvider>,
    value: &ConfigValue<'_>,
) -> Option<ServerConfig> {
    let refuse = |error: &dyn std::fmt::Display| {
        let help = "look at what the files hold";
        value.fault(format!("TLS cannot be spoken so: {}", quoted(&error.to_string())), help);
    };
    let first = entries.first_mut()?;
    let policy = first.policy.clone();
    let verifier = verifier(first.clients.take(), policy.revoked.clone(), &provider);
    let verifier = verifier.map_err(|error| refuse(&error)).ok()?;
    let mut certificates = Certificates::new(entries.iter().map(|entry| entry.key.clone()).collect());
    for entry in &entries {
        entry.served.names.iter().for_each(|name| certificates.add(name, &entry.key));
    }
    let tickets = crypto::tls::Ticketer::new().map_err(|error| refuse(&error)).ok()?;
    let has_order = policy.ciphers.is_some();
    let provider = match policy.ciphers.clone() {
        Some(cipher_suites) => Arc::new(CryptoProvider { cipher_suites, ..CryptoProvider::clone(&provider) }),
        None => provider,
    };
    let builder = ServerConfig::builder_with_provider(provider).with_protocol_versions(policy.versions());
    let builder = builder.map_err(|error| refuse(&error)).ok()?;
    let mut config = builder.with_client_cert_verifier(verifier).with_cert_resolver(Arc::new(certificates));
    config.ignore_client_order = has_order;
    config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
    // The state of a session is kept by the client, so that no number of clients fills the gateway's memory.
    config.ticketer = tickets;
    Some(config)
}

/// A certificate whose authority has no list is refused where there are lists, and so are all after the end of a list.
fn verifier(
    clients: Option<(RootCertStore, Demand)>,
    revoked: Vec<CertificateRevocationListDer<'static>>,
    provider: &Arc<CryptoProvider>,
) -> Result<Arc<dyn ClientCertVerifier>, rustls::server::VerifierBuilderError> {
    let Some((roots, demand)) = clients else { return Ok(Arc::new(NoClientAuth)) };
    let builder = WebPkiClientVerifier::builder_with_provider(Arc::new(roots), Arc::clone(provider));
    let builder = match revoked.is_empty() {
        true => builder,
        false => builder.with_crls(revoked).enforce_revocation_expiration(),
    };
    match demand {
        Demand::Required => builder.build(),
        Demand::Optional => builder.allow_unauthenticated().build(),
    }
}
