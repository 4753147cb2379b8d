//! What a client's certificate says (RFC 5280). Its chain was verified in the handshake.

use std::net::{Ipv4Addr, Ipv6Addr};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use rustls::pki_types::CertificateDer;
use x509_parser::extensions::GeneralName;
use x509_parser::prelude::{FromDer as _, X509Certificate};

use super::crypto::digest::{SHA256, digest};

/// A verified certificate of a client.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClientCertificate {
    /// The subject, as `CN=a, O=b`; may be empty.
    pub subject: Box<str>,
    /// The first common name of the subject, if it is a text that is not empty.
    pub common_name: Option<Box<str>>,
    /// The first subject alternative name, of a URI if there is one, else of a DNS name, an e-mail address or an IP address.
    pub alternative_name: Option<Box<str>>,
    /// The SHA-256 of the certificate in DER: 64 hexadecimal digits in lower case.
    pub fingerprint: Box<str>,
    /// The value of `client-cert` (RFC 9440 §2.2): the certificate in DER as a byte sequence of structured fields.
    pub field_value: Box<str>,
}

impl ClientCertificate {
    /// Reads a certificate. `None`: it cannot be read, although the handshake has accepted it.
    pub fn read(certificate: &CertificateDer<'_>) -> Option<Self> {
        let (_, read) = X509Certificate::from_der(certificate).ok()?;
        let common_name = read.subject().iter_common_name().find_map(|name| name.as_str().ok());
        let digest = digest(&SHA256, certificate);
        Some(Self {
            subject: read.subject().to_string().into(),
            common_name: common_name.filter(|name| !name.is_empty()).map(Into::into),
            alternative_name: alternative_name(&read),
            fingerprint: digest.as_ref().iter().map(|byte| format!("{byte:02x}")).collect::<String>().into(),
            field_value: format!(":{}:", STANDARD.encode(certificate)).into(),
        })
    }
}

/// The kinds of names, the most telling first: a workload's identity is a URI (SPIFFE).
fn alternative_name(certificate: &X509Certificate<'_>) -> Option<Box<str>> {
    let extension = certificate.subject_alternative_name().ok()??;
    let ranked = extension.value.general_names.iter().filter_map(|name| {
        let (rank, text) = match name {
            GeneralName::URI(text) => (0, (*text).to_owned()),
            GeneralName::DNSName(text) => (1, text.to_ascii_lowercase()),
            GeneralName::RFC822Name(text) => (2, (*text).to_owned()),
            GeneralName::IPAddress(bytes) => (3, address(bytes)?),
            _ => return None,
        };
        (!text.is_empty()).then_some((rank, text))
    });
    // Of equal ranks the first.
    ranked.min_by_key(|(rank, _)| *rank).map(|(_, text)| text.into())
}

fn address(bytes: &[u8]) -> Option<String> {
    let v4 = || Some(Ipv4Addr::from(<[u8; 4]>::try_from(bytes).ok()?).to_string());
    let v6 = || Some(Ipv6Addr::from(<[u8; 16]>::try_from(bytes).ok()?).to_string());
    v4().or_else(v6)
}
