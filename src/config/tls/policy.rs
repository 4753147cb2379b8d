//! `min_version`, `ciphers` and `crl` of `[[server.tls]]`: what is spoken with clients, and which of their certificates are
//! withdrawn.

use rustls::crypto::CryptoProvider;
use rustls::pki_types::CertificateRevocationListDer;
use rustls::pki_types::pem::PemObject as _;
use rustls::version::{TLS12, TLS13};
use rustls::{SupportedCipherSuite, SupportedProtocolVersion};
use x509_parser::prelude::{ASN1Time, CertificateRevocationList, FromDer as _};

use super::Files;
use crate::clock::Clock;
use crate::config::keys::{SOME, Schema, choice, keys};
use crate::config::report::quoted;
use crate::config::table::ConfigTable;
use crate::config::text::SyntaxError;
use crate::config::value::ConfigValue;

keys! {
    /// What is spoken with clients.
    pub(in crate::config) POLICY: PolicyKeys = "policy of TLS" {
        /// The lowest version of TLS. The same in all [[server.tls]].
        min_version: MinVersion = choice(&VERSIONS) => MinVersion::Tls12;
        /// Cipher suites by their names at IANA, the best first: the gateway chooses. The same in all [[server.tls]].
        /// Default: all that are known to be sound, and the client chooses.
        ciphers = Schema::Set(SOME, &Schema::Matching(r"^TLS_|\$\{"));
        /// A PEM file with the lists of withdrawn certificates of the authorities in client_ca. The same in all
        /// [[server.tls]]. Default: none.
        crl = Schema::Text;
    }
}

static BOTH: [&SupportedProtocolVersion; 2] = [&TLS13, &TLS12];
static NEW: [&SupportedProtocolVersion; 1] = [&TLS13];
const VERSIONS: [(&str, MinVersion); 2] = [("1.2", MinVersion::Tls12), ("1.3", MinVersion::Tls13)];

/// The lowest version of TLS.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::config) enum MinVersion {
    Tls12,
    Tls13,
}

/// What is spoken with clients.
#[derive(Clone, PartialEq)]
pub(super) struct TlsPolicy {
    min_version: MinVersion,
    /// The suites, the best first; `None`: those of the library.
    pub(super) ciphers: Option<Vec<SupportedCipherSuite>>,
    /// Lists of withdrawn certificates.
    pub(super) revoked: Vec<CertificateRevocationListDer<'static>>,
}

impl TlsPolicy {
    /// The versions that are spoken.
    pub(super) fn versions(&self) -> &'static [&'static SupportedProtocolVersion] {
        match self.min_version {
            MinVersion::Tls12 => &BOTH,
            MinVersion::Tls13 => &NEW,
        }
    }
}

/// Reads the keys. `asks_clients`: clients are asked for certificates. `None` if there are faults.
pub(super) fn read(
    table: &mut ConfigTable<'_>,
    asks_clients: bool,
    provider: &CryptoProvider,
    files: &mut Files,
) -> Option<TlsPolicy> {
    let errors_before = table.diagnostics().errors();
    let min_version = table.value(&POLICY.min_version);
    files.0.update(&[u8::from(min_version == MinVersion::Tls13)]);
    let ciphers = table.optional(&POLICY.ciphers, |value| ciphers(&value, min_version, provider));
    for suite in ciphers.iter().flatten() {
        files.0.update(name_of(*suite).as_bytes());
    }
    let revoked = table.optional(&POLICY.crl, |value| {
        if !asks_clients {
            let help = "name the authorities of clients' certificates in `client_ca`";
            value.fault("`crl` has no effect: clients are asked for no certificate", help);
        }
        revoked(&value, files)
    });
    let is_sound = table.diagnostics().errors() == errors_before;
    is_sound.then(|| TlsPolicy { min_version, ciphers, revoked: revoked.unwrap_or_default() })
}

/// The name of a suite at IANA, such as `TLS_AES_128_GCM_SHA256`.
fn name_of(suite: SupportedCipherSuite) -> String {
    format!("{:?}", suite.suite()).replacen("TLS13_", "TLS_", 1)
}

fn ciphers(
    value: &ConfigValue<'_>,
    min_version: MinVersion,
    provider: &CryptoProvider,
) -> Option<Vec<SupportedCipherSuite>> {
    let mut found: Vec<SupportedCipherSuite> = Vec::new();
    value.some_of(|item| {
        let suite = item.text()?.parse("a cipher suite", |text| {
            provider.cipher_suites.iter().find(|suite| name_of(**suite) == text).copied().ok_or_else(|| {
                let names: Vec<_> =
                    provider.cipher_suites.iter().map(|suite| quoted(&name_of(*suite))).collect();
                let message = format!("{} is not a cipher suite that is spoken", quoted(text));
                SyntaxError::new(message, format!("the suites are {}", names.join(", ")))
            })
        })?;
        if found.contains(&suite) {
            item.fault("`ciphers` names this suite twice", "leave one of the two out");
        }
        if min_version == MinVersion::Tls13 && suite.tls13().is_none() {
            let help = "leave it out, or write `min_version = \"1.2\"`";
            item.fault("this suite is one of TLS 1.2, which `min_version` excludes", help);
        }
        found.push(suite);
        Some(())
    })?;
    Some(found)
}

/// The lists of a file, none of which has ended: after its end a list says nothing, and all clients are refused.
fn revoked(value: &ConfigValue<'_>, files: &mut Files) -> Option<Vec<CertificateRevocationListDer<'static>>> {
    let found: Result<Vec<_>, _> =
        CertificateRevocationListDer::pem_slice_iter(&files.read(value)?).collect();
    let Some(found) = found.ok().filter(|found| !found.is_empty()) else {
        let message = format!("{} holds no list of withdrawn certificates", value.label());
        value.fault(message, "name a PEM file: `-----BEGIN X509 CRL-----`");
        return None;
    };
    let now = i64::try_from(Clock::system().wall_now().seconds()).unwrap_or(i64::MAX);
    for list in &found {
        let Ok((_, parsed)) = CertificateRevocationList::from_der(list) else {
            value.fault("a list of withdrawn certificates is malformed", "fetch it anew from the authority");
            return None;
        };
        if let Some(end) = parsed.next_update().filter(|end| end.timestamp() < now) {
            let message = format!("the list of withdrawn certificates ended on {}", day(end));
            value.fault(message, "fetch a new one from the authority: without one all clients are refused");
            return None;
        }
    }
    Some(found)
}

/// The day of a time, for people.
pub(super) fn day(time: ASN1Time) -> String {
    time.to_datetime().date().to_string()
}
