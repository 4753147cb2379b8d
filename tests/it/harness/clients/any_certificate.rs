//! Handshakes that take any certificate, to see which one is shown.

use std::io::{self, Read as _};
use std::net::{SocketAddr, TcpStream};
use std::sync::Arc;

use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::{ClientConfig, ClientConnection, DigitallySignedStruct, SignatureScheme};
use x509_parser::prelude::{FromDer as _, GeneralName, X509Certificate};

use crate::harness::TIMEOUT;

/// What a handshake came to.
#[derive(Clone, Debug)]
pub(crate) struct Shown {
    /// The common name of the issuer.
    pub(crate) issuer: String,
    /// The DNS names.
    pub(crate) names: Vec<String>,
    /// The certificate.
    pub(crate) certificate: CertificateDer<'static>,
    /// The end of its validity, seconds since 1970.
    pub(crate) expires: i64,
    /// What ALPN came to.
    pub(crate) protocol: Option<String>,
    /// What was sent after the handshake, up to the end, where nothing was said.
    pub(crate) rest: Option<Vec<u8>>,
}

#[derive(Debug)]
struct AnyCertificate;

impl ServerCertVerifier for AnyCertificate {
    fn verify_server_cert(
        &self,
        _: &CertificateDer<'_>,
        _: &[CertificateDer<'_>],
        _: &ServerName<'_>,
        _: &[u8],
        _: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        _: &[u8],
        _: &CertificateDer<'_>,
        _: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        Ok(HandshakeSignatureValid::assertion())
    }

    fn verify_tls13_signature(
        &self,
        _: &[u8],
        _: &CertificateDer<'_>,
        _: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        Ok(HandshakeSignatureValid::assertion())
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        vec![
            SignatureScheme::ECDSA_NISTP256_SHA256,
            SignatureScheme::ED25519,
            SignatureScheme::RSA_PSS_SHA256,
        ]
    }
}

/// A handshake for this name, offering these protocols. After that of a challenge, it reads to the end.
pub(crate) fn shown(address: SocketAddr, name: &str, protocols: &[&str]) -> io::Result<Shown> {
    let builder = ClientConfig::builder().dangerous();
    let builder = builder.with_custom_certificate_verifier(Arc::new(AnyCertificate));
    let mut config = builder.with_no_client_auth();
    config.alpn_protocols = protocols.iter().map(|name| name.as_bytes().to_vec()).collect();
    let name = ServerName::try_from(name.to_owned()).map_err(io::Error::other)?;
    let mut session = ClientConnection::new(Arc::new(config), name).map_err(io::Error::other)?;
    let mut stream = TcpStream::connect(address)?;
    stream.set_read_timeout(Some(TIMEOUT))?;
    while session.is_handshaking() {
        session.complete_io(&mut stream)?;
    }
    let certificate =
        session.peer_certificates().and_then(|chain| chain.first()).expect("a certificate").clone();
    let protocol = session.alpn_protocol().map(|name| String::from_utf8_lossy(name).into_owned());
    let rest = (protocol.as_deref() == Some("acme-tls/1")).then(|| {
        let mut rest = Vec::new();
        let mut both = rustls::Stream::new(&mut session, &mut stream);
        both.read_to_end(&mut rest).expect("an end with close_notify");
        rest
    });
    let (_, parsed) = X509Certificate::from_der(&certificate).expect("a certificate");
    let issuer = parsed.issuer().iter_common_name().next().and_then(|name| name.as_str().ok());
    let names = parsed.subject_alternative_name().expect("well-formed").expect("names");
    let names = names.value.general_names.iter().map(|name| match name {
        GeneralName::DNSName(name) => (*name).to_owned(),
        other => format!("{other:?}"),
    });
    Ok(Shown {
        issuer: issuer.unwrap_or_default().to_owned(),
        names: names.collect(),
        expires: parsed.validity().not_after.timestamp(),
        protocol,
        rest,
        certificate: certificate.clone(),
    })
}
