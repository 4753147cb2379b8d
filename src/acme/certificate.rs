//! Certificates as PEM texts and as what handshakes show: those of an authority, self-signed ones, and those that answer
//! a challenge.

use std::fmt;
use std::sync::Arc;

use base64::Engine as _;
use base64::prelude::BASE64_URL_SAFE_NO_PAD;
use rcgen::{CertificateParams, CustomExtension, DistinguishedName, DnType, KeyPair};
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, PrivatePkcs8KeyDer};
use rustls::sign::CertifiedKey;
use time::OffsetDateTime;
use x509_parser::extensions::ParsedExtension;
use x509_parser::prelude::{FromDer as _, GeneralName, X509Certificate};

use super::schedule::Validity;
use crate::limit::units::Micros;
use crate::limit::wall_clock::WallTime;
use crate::net::crypto;

/// The most certificates of a chain.
const MAX_CHAIN: usize = 10;
/// How far the begin of a certificate's validity may be ahead of this machine's clock.
const MAX_AHEAD: Micros = Micros(5 * 60 * Micros::SECOND.0);
/// How long a self-signed certificate is valid.
const SELF_SIGNED_DAYS: i64 = 90;
/// How long before now the certificates that are made here begin: clocks differ.
const BEFORE: i64 = 3_600;
const DAY: i64 = 86_400;
/// The longest common name (RFC 5280, ub-common-name).
const MAX_COMMON_NAME: usize = 64;

/// A certificate with its chain and its key.
#[derive(Clone)]
pub struct StoredCertificate {
    /// The chain, then the key, as PEM.
    pub pem: String,
    /// What handshakes show.
    pub key: Arc<CertifiedKey>,
    /// Its DNS names, in lower case.
    pub names: Vec<String>,
    /// When it is valid.
    pub validity: Validity,
    /// What the authority calls it (RFC 9773 §4.1), if that is known.
    pub id: Option<String>,
    /// The common name of its issuer, or the organisation.
    pub issuer: String,
}

impl fmt::Debug for StoredCertificate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { names, validity, .. } = self;
        f.debug_struct("StoredCertificate")
            .field("names", names)
            .field("validity", validity)
            .finish_non_exhaustive()
    }
}

/// Why a text is not a usable certificate.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CertificateFault {
    /// There are no certificates, too many, or malformed ones.
    #[error("it is not a chain of 1 to {MAX_CHAIN} certificates in PEM")]
    Chain,
    /// There is no private key, or one of an unknown kind.
    #[error("it has no usable private key")]
    Key,
    /// The key is another certificate's.
    #[error("the private key is another certificate's")]
    OtherKey,
    /// The certificate lacks this name.
    #[error("it is not for `{0}`")]
    LacksName(String),
    /// It has expired, or is not valid yet.
    #[error("it is not valid now: look at this machine's clock")]
    NotCurrent,
}

impl StoredCertificate {
    /// Reads a chain with its key, in PEM.
    ///
    /// # Errors
    ///
    /// See [`CertificateFault`]. Names and validity are not checked.
    pub fn from_pem(pem: &str) -> Result<Self, CertificateFault> {
        let chain: Result<Vec<_>, _> =
            CertificateDer::pem_slice_iter(pem.as_bytes()).take(MAX_CHAIN + 1).collect();
        let chain = chain.map_err(|_| CertificateFault::Chain)?;
        let key = PrivateKeyDer::from_pem_slice(pem.as_bytes()).map_err(|_| CertificateFault::Key)?;
        Self::new(pem.to_owned(), chain, key)
    }

    fn new(
        pem: String,
        chain: Vec<CertificateDer<'static>>,
        key: PrivateKeyDer<'static>,
    ) -> Result<Self, CertificateFault> {
        let first = chain.first().filter(|_| chain.len() <= MAX_CHAIN).ok_or(CertificateFault::Chain)?;
        let (_, parsed) = X509Certificate::from_der(first).map_err(|_| CertificateFault::Chain)?;
        let (names, validity) = (names_of(&parsed), validity_of(&parsed));
        let (id, issuer) = (id_of(&parsed), issuer_of(&parsed));
        let certified = certified(chain, key)?;
        match certified.keys_match() {
            Ok(()) => Ok(Self { pem, key: Arc::new(certified), names, validity, id, issuer }),
            Err(rustls::Error::InconsistentKeys(_)) => Err(CertificateFault::OtherKey),
            Err(_) => Err(CertificateFault::Chain),
        }
    }

    /// Whether it can be shown for all these names at `now`.
    ///
    /// # Errors
    ///
    /// It lacks a name, or is not valid at `now`.
    pub fn check(&self, names: &[String], now: WallTime) -> Result<(), CertificateFault> {
        if let Some(lacking) = names.iter().find(|name| !self.names.contains(name)) {
            return Err(CertificateFault::LacksName(lacking.clone()));
        }
        let Validity { begin, end } = self.validity;
        match begin < end && now < end && begin <= now.plus(MAX_AHEAD) {
            true => Ok(()),
            false => Err(CertificateFault::NotCurrent),
        }
    }
}

fn names_of(parsed: &X509Certificate<'_>) -> Vec<String> {
    let listed = parsed.subject_alternative_name().ok().flatten();
    let listed = listed.iter().flat_map(|listed| &listed.value.general_names);
    let names = listed.filter_map(|name| match name {
        GeneralName::DNSName(name) => Some(name.to_ascii_lowercase()),
        _ => None,
    });
    names.collect()
}

fn validity_of(parsed: &X509Certificate<'_>) -> Validity {
    let micros = |seconds: i64| {
        let seconds = u64::try_from(seconds).unwrap_or_default();
        WallTime(seconds.saturating_mul(Micros::SECOND.0))
    };
    let validity = parsed.validity();
    Validity { begin: micros(validity.not_before.timestamp()), end: micros(validity.not_after.timestamp()) }
}

/// The key id of the authority and the serial number, as RFC 9773 §4.1 writes them.
fn id_of(parsed: &X509Certificate<'_>) -> Option<String> {
    let authority = parsed.iter_extensions().find_map(|extension| match extension.parsed_extension() {
        ParsedExtension::AuthorityKeyIdentifier(authority) => authority.key_identifier.as_ref(),
        _ => None,
    })?;
    let authority = BASE64_URL_SAFE_NO_PAD.encode(authority.0);
    let serial = BASE64_URL_SAFE_NO_PAD.encode(parsed.tbs_certificate.raw_serial());
    Some(format!("{authority}.{serial}"))
}

fn issuer_of(parsed: &X509Certificate<'_>) -> String {
    let issuer = parsed.issuer();
    let name =
        issuer.iter_common_name().chain(issuer.iter_organization()).find_map(|name| name.as_str().ok());
    plain(name.unwrap_or("an unnamed authority"), MAX_COMMON_NAME)
}

/// A text of others for a log line: without control characters, at most so many characters.
pub fn plain(text: &str, max: usize) -> String {
    text.chars().take(max).map(|c| if c.is_control() { ' ' } else { c }).collect()
}

fn certified(
    chain: Vec<CertificateDer<'static>>,
    key: PrivateKeyDer<'static>,
) -> Result<CertifiedKey, CertificateFault> {
    let provider = crypto::tls::default_provider();
    let signing = provider.key_provider.load_private_key(key).map_err(|_| CertificateFault::Key)?;
    Ok(CertifiedKey::new(chain, signing))
}

/// Why a certificate or a request for one cannot be made.
#[derive(Debug, thiserror::Error)]
#[error("a certificate cannot be made: {0}")]
pub struct CannotMake(String);

impl From<rcgen::Error> for CannotMake {
    fn from(error: rcgen::Error) -> Self {
        Self(error.to_string())
    }
}

impl From<CertificateFault> for CannotMake {
    fn from(fault: CertificateFault) -> Self {
        Self(fault.to_string())
    }
}

/// A self-signed certificate for these names, valid from now on.
///
/// # Errors
///
/// A name is none, or the system has no random numbers.
pub fn self_signed(names: &[String], now: WallTime) -> Result<StoredCertificate, CannotMake> {
    let mut params = CertificateParams::new(names.to_vec())?;
    params.distinguished_name = DistinguishedName::new();
    if let Some(name) = names.first().filter(|name| name.len() <= MAX_COMMON_NAME) {
        params.distinguished_name.push(DnType::CommonName, name.as_str());
    }
    let (pem, chain, key) = made(params, now, SELF_SIGNED_DAYS * DAY)?;
    Ok(StoredCertificate::new(pem, chain, key)?)
}

/// The certificate that answers a challenge of tls-alpn-01 (RFC 8737 §3) for this name.
///
/// # Errors
///
/// See [`self_signed`].
pub fn challenge(name: &str, digest: &[u8; 32], now: WallTime) -> Result<Arc<CertifiedKey>, CannotMake> {
    let mut params = CertificateParams::new([name.to_owned()])?;
    params.distinguished_name = DistinguishedName::new();
    params.custom_extensions = vec![CustomExtension::new_acme_identifier(digest)];
    // Its extension is critical and known to authorities only, so that it is not read again here.
    let (_, chain, key) = made(params, now, 7 * DAY)?;
    Ok(Arc::new(certified(chain, key)?))
}

/// The text, the chain and the private key of a self-signed certificate.
type SelfSigned = (String, Vec<CertificateDer<'static>>, PrivateKeyDer<'static>);

fn made(mut params: CertificateParams, now: WallTime, seconds: i64) -> Result<SelfSigned, CannotMake> {
    let now = i64::try_from(now.seconds()).unwrap_or_default();
    let moment =
        |at: i64| OffsetDateTime::from_unix_timestamp(at).map_err(|_| CannotMake("the clock is off".into()));
    (params.not_before, params.not_after) = (moment(now.saturating_sub(BEFORE))?, moment(now + seconds)?);
    let key = KeyPair::generate()?;
    let certificate = params.self_signed(&key)?;
    let pem = format!("{}{}", certificate.pem(), key.serialize_pem());
    let private = PrivateKeyDer::Pkcs8(PrivatePkcs8KeyDer::from(key.serialize_der()));
    Ok((pem, vec![certificate.der().clone()], private))
}

/// A request for a certificate for these names (DER), and its private key (PEM).
///
/// # Errors
///
/// See [`self_signed`].
pub fn request(names: &[String]) -> Result<(Vec<u8>, String), CannotMake> {
    let mut params = CertificateParams::new(names.to_vec())?;
    params.distinguished_name = DistinguishedName::new();
    let key = KeyPair::generate()?;
    let request = params.serialize_request(&key)?;
    Ok((request.der().to_vec(), key.serialize_pem()))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use proptest::sample::Index;

    use super::*;

    const NOW: WallTime = WallTime(1_790_000_000_000_000);

    fn names(names: &[&str]) -> Vec<String> {
        names.iter().map(|name| (*name).to_owned()).collect()
    }

    #[test]
    fn a_certificate_is_read_as_it_was_written() {
        let made = self_signed(&names(&["a.example", "b.example"]), NOW).unwrap();
        let read = StoredCertificate::from_pem(&made.pem).unwrap();
        assert_eq!((&read.names, read.validity), (&made.names, made.validity));
        assert_eq!(read.names, ["a.example", "b.example"]);
        assert_eq!(read.check(&names(&["b.example"]), NOW), Ok(()));
        let lacking = CertificateFault::LacksName("c.example".to_owned());
        assert_eq!(read.check(&names(&["a.example", "c.example"]), NOW), Err(lacking));
        let later = made.validity.end;
        assert_eq!(read.check(&names(&["a.example"]), later), Err(CertificateFault::NotCurrent));
        let earlier = WallTime(made.validity.begin.0 - MAX_AHEAD.0 - 1);
        assert_eq!(read.check(&names(&["a.example"]), earlier), Err(CertificateFault::NotCurrent));
        assert!(!format!("{read:?}").contains("PRIVATE"));
    }

    #[test]
    fn a_text_that_is_cut_anywhere_or_has_another_key_is_no_certificate() {
        let made = self_signed(&names(&["a.example"]), NOW).unwrap();
        let whole = made.pem.trim_end().len();
        for end in (0..whole).filter(|end| made.pem.is_char_boundary(*end)) {
            assert!(StoredCertificate::from_pem(&made.pem[..end]).is_err(), "cut at {end}");
        }
        let other = self_signed(&names(&["a.example"]), NOW).unwrap();
        let key_of = |pem: &str| pem[pem.find("-----BEGIN PRIVATE").unwrap()..].to_owned();
        let mixed = made.pem.replace(&key_of(&made.pem), &key_of(&other.pem));
        assert_eq!(StoredCertificate::from_pem(&mixed).unwrap_err(), CertificateFault::OtherKey);
        let long = format!("{}{}", made.pem.repeat(MAX_CHAIN + 1), key_of(&made.pem));
        assert_eq!(StoredCertificate::from_pem(&long).unwrap_err(), CertificateFault::Chain);
    }

    #[test]
    fn a_challenge_is_answered_by_a_certificate_with_its_digest() {
        let key = challenge("a.example", &[7; 32], NOW).unwrap();
        let (_, parsed) = X509Certificate::from_der(&key.cert[0]).unwrap();
        assert_eq!(names_of(&parsed), ["a.example"]);
        let extension = parsed.extensions().iter().find(|one| one.oid.to_id_string() == "1.3.6.1.5.5.7.1.31");
        let extension = extension.unwrap();
        assert!(extension.critical);
        assert_eq!(extension.value, [&[4, 32][..], &[7; 32]].concat());
    }

    #[test]
    fn texts_of_others_have_no_control_characters_in_logs() {
        assert_eq!(plain("a\nb\u{1b}[31mc", 5), "a b [");
    }

    proptest! {
        /// What an authority sends, and what the state directory and the shared store hold, is any text.
        #[test]
        fn any_text_is_read_without_a_panic(text in "\\PC{0,300}", at in any::<Index>(), byte: u8) {
            StoredCertificate::from_pem(&text).ok();
            let mut bytes = PEM.with(String::clone).into_bytes();
            let at = at.index(bytes.len());
            bytes[at] = byte;
            StoredCertificate::from_pem(&String::from_utf8_lossy(&bytes)).ok();
            bytes.splice(at..at, text.bytes());
            StoredCertificate::from_pem(&String::from_utf8_lossy(&bytes)).ok();
        }
    }

    thread_local! {
        static PEM: String = self_signed(&names(&["a.example"]), NOW).unwrap().pem;
    }
}
