//! TLS to the admin listener: which certificate is trusted, and what a failure means for an operator.

use std::error::Error;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rustls::client::WebPkiServerVerifier;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::{
    CryptoProvider, WebPkiSupportedAlgorithms, verify_tls12_signature, verify_tls13_signature,
};
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName, UnixTime};
use rustls::{
    AlertDescription, CertificateError, ClientConfig, DigitallySignedStruct, RootCertStore, SignatureScheme,
};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;

use crate::net::crypto;

/// Which certificates are trusted and shown.
#[derive(Debug, Default, clap::Args)]
pub(super) struct AdminTlsArguments {
    /// Over https, trust only this PEM file: the gateway's certificate, or the authority that signed it
    ///
    /// Default: with `--url`, the authorities that this machine trusts; else the certificate that `[admin] tls` names.
    #[arg(long, value_name = "FILE")]
    pub(super) ca: Option<PathBuf>,
    /// Over https, show the certificate in this PEM file: for a gateway whose `[admin] tls` has `client_ca`
    #[arg(long, value_name = "FILE", requires = "key")]
    cert: Option<PathBuf>,
    /// The PEM file with the private key of `--cert`
    #[arg(long, value_name = "FILE", requires = "cert")]
    key: Option<PathBuf>,
}

impl AdminTlsArguments {
    /// The first of these arguments that is given.
    pub(super) fn first(&self) -> Option<&'static str> {
        [("--ca", &self.ca), ("--cert", &self.cert), ("--key", &self.key)]
            .into_iter()
            .find_map(|(name, given)| given.is_some().then_some(name))
    }
}

/// The certificates that are trusted.
#[derive(Clone, Debug)]
pub(super) enum AdminTrust {
    /// Any: nothing is sent that an impostor could use.
    Any,
    /// The first certificate of this file, which `[admin] tls` names, whatever name it carries.
    Own(PathBuf),
    /// Those of this file, whatever name they carry, and those that they have signed for the name.
    File(PathBuf),
    /// Those that an authority of this machine has signed for the name.
    System,
}

/// TLS to one admin listener.
pub(super) struct AdminTls {
    config: Arc<ClientConfig>,
    name: ServerName<'static>,
    trust: AdminTrust,
}

impl AdminTls {
    /// `host`: the name or address that the certificate should carry. The error is for users.
    pub(super) fn new(host: &str, trust: AdminTrust, own: &AdminTlsArguments) -> Result<Self, String> {
        let name = ServerName::try_from(host.to_owned())
            .map_err(|_| format!("no certificate can be for `{}`", host.escape_debug()))?;
        let provider = Arc::new(crypto::tls::default_provider());
        let verifier = GatewayVerifier::new(&trust, &provider)?;
        let unusable = |error: rustls::Error| format!("TLS cannot be spoken so: {error}");
        let builder = ClientConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .map_err(unusable)?
            .dangerous()
            .with_custom_certificate_verifier(Arc::new(verifier));
        let mut config = match (&own.cert, &own.key) {
            (Some(cert), Some(key)) => {
                let shown = builder.with_client_auth_cert(certificates(cert, "--cert")?, private_key(key)?);
                shown.map_err(|error| {
                    let help = "the first certificate of `--cert` has to belong to the key of `--key`";
                    format!("`--cert` and `--key` cannot be used: {error}\n  = help: {help}")
                })?
            }
            _ => builder.with_no_client_auth(),
        };
        config.alpn_protocols = vec![b"http/1.1".to_vec()];
        Ok(Self { config: Arc::new(config), name, trust })
    }

    /// Performs the handshake. The caller bounds the time. The error is for users.
    pub(super) async fn connect(&self, stream: TcpStream) -> io::Result<TlsStream<TcpStream>> {
        let connecting = TlsConnector::from(Arc::clone(&self.config)).connect(self.name.clone(), stream);
        connecting.await.map_err(|error| {
            let plain = matches!(error.kind(), io::ErrorKind::UnexpectedEof | io::ErrorKind::ConnectionReset);
            match plain && rustls_error(&error).is_none() {
                true => with_help("the connection ended in the handshake of TLS", &self.without_tls()),
                false => self.explained(error),
            }
        })
    }

    /// The same failure in words for an operator, if it is one of TLS.
    pub(super) fn explained(&self, error: io::Error) -> io::Error {
        use CertificateError as Refused;
        let Some(failure) = rustls_error(&error) else { return error };
        match failure {
            rustls::Error::InvalidCertificate(
                Refused::NotValidForName | Refused::NotValidForNameContext { .. },
            ) => {
                let what = format!("its certificate is not for `{}`", self.name.to_str());
                let help = "write a name that it carries into `--url`, or name the gateway's own certificate: `--ca FILE`";
                with_help(&what, help)
            }
            rustls::Error::InvalidCertificate(Refused::Expired | Refused::ExpiredContext { .. }) => {
                with_help("its certificate has expired", "have it renewed, and reload the gateway")
            }
            rustls::Error::InvalidCertificate(reason) => self.untrusted(reason),
            rustls::Error::InvalidMessage(_) => with_help("it speaks no TLS", &self.without_tls()),
            rustls::Error::AlertReceived(
                AlertDescription::CertificateRequired
                | AlertDescription::BadCertificate
                | AlertDescription::UnknownCA
                | AlertDescription::CertificateUnknown,
            ) => with_help(
                "it refuses clients without a certificate that its `client_ca` has signed",
                "name such a certificate and its key: `--cert FILE --key FILE`",
            ),
            other => io::Error::other(format!("TLS failed: {other}")),
        }
    }

    fn untrusted(&self, reason: &CertificateError) -> io::Error {
        const CA: &str = "name a PEM file with the gateway's certificate, or with the authority that signed it: `--ca FILE`";
        match &self.trust {
            AdminTrust::Own(file) => with_help(
                &format!("it shows another certificate than `{}`, which `[admin] tls` names", file.display()),
                "reload the gateway if that file is newer; for another certificate, name it or its authority: `--ca FILE`",
            ),
            AdminTrust::File(file) => with_help(
                &format!(
                    "`{}` holds neither its certificate nor the authority that signed it",
                    file.display()
                ),
                CA,
            ),
            // `Other`: a certificate of an authority, which most that are self-signed are.
            AdminTrust::System
                if matches!(reason, CertificateError::UnknownIssuer | CertificateError::Other(_)) =>
            {
                with_help("its certificate is signed by no authority that this machine trusts", CA)
            }
            AdminTrust::System | AdminTrust::Any => {
                with_help(&format!("its certificate is not trusted: {reason}"), CA)
            }
        }
    }

    /// What to do where the listener speaks no TLS.
    fn without_tls(&self) -> String {
        match self.trust {
            AdminTrust::System => "write `http://` if its `[admin]` has no `tls`".to_owned(),
            _ => "reload the gateway if `tls` is new in its `[admin]`; write `http://` if there is none"
                .to_owned(),
        }
    }
}

fn with_help(what: &str, help: &str) -> io::Error {
    io::Error::other(format!("{what}\n  = help: {help}"))
}

/// The error of the library of TLS from which this one arose.
fn rustls_error<'a>(error: &'a (dyn Error + 'static)) -> Option<&'a rustls::Error> {
    let mut error = error;
    loop {
        if let Some(found) = error.downcast_ref() {
            return Some(found);
        }
        // The source of an I/O error is that of the error which it holds.
        let held = error.downcast_ref::<io::Error>().and_then(io::Error::get_ref);
        error = match held {
            Some(held) => held as &'a (dyn Error + 'static),
            None => error.source()?,
        };
    }
}

/// The certificates of a PEM file, at least one. `argument` names it. The error is for users.
fn certificates(file: &Path, argument: &str) -> Result<Vec<CertificateDer<'static>>, String> {
    let bytes = read(file, argument)?;
    let found: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(&bytes).collect();
    found.ok().filter(|found| !found.is_empty()).ok_or_else(|| {
        let name = file.display();
        format!("{argument}: `{name}` holds no certificate\n  = help: name a PEM file: `-----BEGIN CERTIFICATE-----`")
    })
}

fn private_key(file: &Path) -> Result<PrivateKeyDer<'static>, String> {
    PrivateKeyDer::from_pem_slice(&read(file, "--key")?).map_err(|_| {
        let name = file.display();
        format!("--key: `{name}` holds no private key\n  = help: name a PEM file with an unencrypted key: `-----BEGIN PRIVATE KEY-----`")
    })
}

fn read(file: &Path, argument: &str) -> Result<Vec<u8>, String> {
    std::fs::read(file).map_err(|error| format!("{argument}: cannot read `{}`: {error}", file.display()))
}

/// Decides whether a certificate is the gateway's.
#[derive(Debug)]
struct GatewayVerifier {
    trusts_all: bool,
    /// Certificates that are trusted whatever name they carry.
    known: Vec<CertificateDer<'static>>,
    /// Trusts what authorities have signed for the name.
    signed: Option<Arc<WebPkiServerVerifier>>,
    algorithms: WebPkiSupportedAlgorithms,
}

impl GatewayVerifier {
    fn new(trust: &AdminTrust, provider: &Arc<CryptoProvider>) -> Result<Self, String> {
        let (mut known, mut roots) = (Vec::new(), None);
        match trust {
            AdminTrust::Any => {}
            AdminTrust::Own(file) => {
                let argument = "`cert` of `[admin] tls`";
                let help = "run this as a user who may read it, or name the certificate or its authority: `--ca FILE`";
                let found = certificates(file, argument).map_err(|error| {
                    let what = error.lines().next().unwrap_or_default();
                    format!("{what}\n  = help: {help}")
                })?;
                known.extend(found.into_iter().next());
            }
            AdminTrust::File(file) => {
                known = certificates(file, "--ca")?;
                roots = Some(known.clone());
            }
            AdminTrust::System => roots = Some(rustls_native_certs::load_native_certs().certs),
        }
        let signed = roots.map(|roots| signed_by(roots, provider)).transpose()?;
        Ok(Self {
            trusts_all: matches!(trust, AdminTrust::Any),
            known,
            signed: signed.flatten(),
            algorithms: provider.signature_verification_algorithms,
        })
    }
}

/// Trusts what these authorities have signed. `None` if none of them is an authority.
fn signed_by(
    authorities: Vec<CertificateDer<'static>>,
    provider: &Arc<CryptoProvider>,
) -> Result<Option<Arc<WebPkiServerVerifier>>, String> {
    let mut roots = RootCertStore::empty();
    roots.add_parsable_certificates(authorities);
    if roots.is_empty() {
        return Ok(None);
    }
    let builder = WebPkiServerVerifier::builder_with_provider(Arc::new(roots), Arc::clone(provider));
    builder.build().map(Some).map_err(|error| format!("TLS cannot be spoken so: {error}"))
}

impl ServerCertVerifier for GatewayVerifier {
    fn verify_server_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        server_name: &ServerName<'_>,
        ocsp_response: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        if self.trusts_all || self.known.contains(end_entity) {
            return Ok(ServerCertVerified::assertion());
        }
        match &self.signed {
            Some(signed) => {
                signed.verify_server_cert(end_entity, intermediates, server_name, ocsp_response, now)
            }
            None => Err(CertificateError::UnknownIssuer.into()),
        }
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        verify_tls12_signature(message, cert, dss, &self.algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        verify_tls13_signature(message, cert, dss, &self.algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.algorithms.supported_schemes()
    }
}
