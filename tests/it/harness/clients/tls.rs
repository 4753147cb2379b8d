//! Certificates for the gateway, and clients that speak TLS to it.

use std::path::PathBuf;
use std::sync::Arc;

use rcgen::{
    BasicConstraints, CertificateParams, CertificateRevocationListParams, DnType, ExtendedKeyUsagePurpose,
    IsCa, Issuer, KeyIdMethod, KeyPair, KeyUsagePurpose, RevokedCertParams, SerialNumber, SignatureAlgorithm,
    date_time_ymd,
};
use rustls::crypto::CryptoProvider;
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use rustls::server::WebPkiClientVerifier;
use rustls::{ClientConfig, ClientConnection, RootCertStore, ServerConfig, SupportedProtocolVersion};

/// An authority, and a directory with `ca.pem` and what it has signed.
pub(crate) struct Authority {
    directory: tempfile::TempDir,
    issuer: Issuer<'static, KeyPair>,
    roots: Arc<RootCertStore>,
}

impl Authority {
    /// A new one.
    pub(crate) fn new() -> Self {
        let directory = tempfile::tempdir().expect("a temporary directory");
        let mut params = CertificateParams::new([]).expect("no names");
        params.distinguished_name.push(DnType::CommonName, "tollgate's tests");
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
        let key = KeyPair::generate().expect("a key");
        let certificate = params.self_signed(&key).expect("a certificate");
        std::fs::write(directory.path().join("ca.pem"), certificate.pem()).expect("it can be written");
        let mut roots = RootCertStore::empty();
        roots.add(certificate.der().clone()).expect("an authority");
        Self { directory, issuer: Issuer::new(params, key), roots: Arc::new(roots) }
    }

    /// Where a file stands.
    pub(crate) fn path(&self, file: &str) -> PathBuf {
        self.directory.path().join(file)
    }

    /// Writes `file`: the list of the certificates with these serial numbers, which are withdrawn. It ends at the begin of
    /// this year.
    pub(crate) fn revoke(&self, file: &str, serials: &[u64], ends: i32) {
        let revoked = |serial: &u64| RevokedCertParams {
            serial_number: SerialNumber::from(*serial),
            revocation_time: date_time_ymd(2025, 1, 1),
            reason_code: None,
            invalidity_date: None,
        };
        let list = CertificateRevocationListParams {
            this_update: date_time_ymd(2025, 1, 1),
            next_update: date_time_ymd(ends, 1, 1),
            crl_number: SerialNumber::from(1),
            issuing_distribution_point: None,
            revoked_certs: serials.iter().map(revoked).collect(),
            key_identifier_method: KeyIdMethod::Sha256,
        };
        let list = list.signed_by(&self.issuer).expect("a list");
        std::fs::write(self.path(file), list.pem().expect("text")).expect("it can be written");
    }

    /// Writes `file.pem` and `file.key`, for these names.
    pub(crate) fn certify(&self, file: &str, names: &[&str]) {
        self.certify_with(file, names, |_| {});
    }

    /// As [`Self::certify`], with a key of this kind.
    pub(crate) fn certify_for(&self, file: &str, names: &[&str], kind: &'static SignatureAlgorithm) {
        let key = KeyPair::generate_for(kind).expect("a key");
        self.sign(file, names, &key, |_| {});
    }

    /// As [`Self::certify`], with changes.
    pub(crate) fn certify_with(
        &self,
        file: &str,
        names: &[&str],
        change: impl FnOnce(&mut CertificateParams),
    ) {
        self.sign(file, names, &KeyPair::generate().expect("a key"), change);
    }

    fn sign(&self, file: &str, names: &[&str], key: &KeyPair, change: impl FnOnce(&mut CertificateParams)) {
        let names: Vec<String> = names.iter().map(|name| (*name).to_owned()).collect();
        let mut params = CertificateParams::new(names).expect("good names");
        params.distinguished_name.push(DnType::CommonName, file);
        params.extended_key_usages =
            vec![ExtendedKeyUsagePurpose::ServerAuth, ExtendedKeyUsagePurpose::ClientAuth];
        change(&mut params);
        let certificate = params.signed_by(key, &self.issuer).expect("a certificate");
        std::fs::write(self.path(&format!("{file}.pem")), certificate.pem()).expect("it can be written");
        std::fs::write(self.path(&format!("{file}.key")), key.serialize_pem()).expect("it can be written");
    }

    /// The lines of a `[[server.tls]]` for what [`Self::certify`] wrote.
    pub(crate) fn server(&self, file: &str) -> String {
        let (cert, key) = (self.path(&format!("{file}.pem")), self.path(&format!("{file}.key")));
        format!("[[server.tls]]\ncert = \"{}\"\nkey = \"{}\"\n", cert.display(), key.display())
    }

    /// How a client that trusts this authority and speaks HTTP/1.1 speaks TLS.
    pub(crate) fn client(&self) -> Arc<ClientConfig> {
        self.client_of(None, rustls::ALL_VERSIONS)
    }

    /// As [`Self::client`], offering these protocols (ALPN).
    pub(crate) fn client_offering(&self, protocols: &[&str]) -> Arc<ClientConfig> {
        let mut config = (*self.client()).clone();
        config.alpn_protocols = protocols.iter().map(|name| name.as_bytes().to_vec()).collect();
        Arc::new(config)
    }

    /// As [`Self::client`], with these algorithms only.
    pub(crate) fn client_by(&self, provider: CryptoProvider) -> Arc<ClientConfig> {
        let builder = ClientConfig::builder_with_provider(Arc::new(provider));
        let builder = builder.with_safe_default_protocol_versions().expect("versions");
        Arc::new(builder.with_root_certificates(Arc::clone(&self.roots)).with_no_client_auth())
    }

    /// As [`Self::client`], in these versions, with a certificate of its own.
    pub(crate) fn client_of(
        &self,
        own: Option<&str>,
        versions: &[&'static SupportedProtocolVersion],
    ) -> Arc<ClientConfig> {
        let builder = ClientConfig::builder_with_protocol_versions(versions)
            .with_root_certificates(Arc::clone(&self.roots));
        let mut config = match own {
            None => builder.with_no_client_auth(),
            Some(file) => {
                let chain = CertificateDer::from_pem_file(self.path(&format!("{file}.pem"))).expect("PEM");
                let key = PrivateKeyDer::from_pem_file(self.path(&format!("{file}.key"))).expect("PEM");
                builder.with_client_auth_cert(vec![chain], key).expect("they belong together")
            }
        };
        config.alpn_protocols = vec![b"http/1.1".to_vec()];
        Arc::new(config)
    }

    /// How a backend with this certificate speaks TLS.
    pub(crate) fn backend(&self, file: &str) -> Arc<ServerConfig> {
        Arc::new(self.backend_of(file, rustls::ALL_VERSIONS, false))
    }

    /// As [`Self::backend`], in these versions; `asking`: clients must show a certificate of this authority.
    pub(crate) fn backend_of(
        &self,
        file: &str,
        versions: &[&'static SupportedProtocolVersion],
        asking: bool,
    ) -> ServerConfig {
        let builder = ServerConfig::builder_with_protocol_versions(versions);
        let builder = if asking {
            let verifier = WebPkiClientVerifier::builder(Arc::clone(&self.roots)).build();
            builder.with_client_cert_verifier(verifier.expect("roots"))
        } else {
            builder.with_no_client_auth()
        };
        let chain = CertificateDer::from_pem_file(self.path(&format!("{file}.pem"))).expect("PEM");
        let key = PrivateKeyDer::from_pem_file(self.path(&format!("{file}.key"))).expect("PEM");
        let mut config = builder.with_single_cert(vec![chain], key).expect("they belong together");
        config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
        config
    }

    /// The line of an upstream's table that trusts this authority, with further keys.
    pub(crate) fn trusted(&self, more: &str) -> String {
        format!("tls = {{ ca = \"{}\"{more} }}\n", self.path("ca.pem").display())
    }
}

/// A client's session, before its first byte.
pub(crate) fn session(config: &Arc<ClientConfig>, name: &str) -> ClientConnection {
    let name = ServerName::try_from(name.to_owned()).expect("a name");
    ClientConnection::new(Arc::clone(config), name).expect("a session")
}
