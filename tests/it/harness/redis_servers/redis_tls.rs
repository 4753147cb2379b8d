//! A Redis that speaks TLS, and the certificates for it.

use std::net::{Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};

use rcgen::{
    BasicConstraints, CertificateParams, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair, KeyUsagePurpose,
};

use super::redis::{Redis, free_port, program};

/// A directory with `ca.pem`, `server.pem` and `server.key` (for `localhost`, 127.0.0.1 and `redis.internal`), `client.pem` and
/// `client.key`, all by this authority; and `other-ca.pem`, an authority that has signed nothing.
#[derive(Debug)]
pub(crate) struct Certificates {
    directory: tempfile::TempDir,
}

impl Certificates {
    /// Makes them all anew.
    pub(crate) fn make() -> Self {
        let directory = tempfile::tempdir().expect("a temporary directory");
        let it = Self { directory };
        let (authority, pem) = authority("tollgate's tests");
        it.write("ca.pem", &pem);
        it.write("other-ca.pem", &self::authority("unknown").1);
        it.sign("server", &authority, ExtendedKeyUsagePurpose::ServerAuth);
        it.sign("client", &authority, ExtendedKeyUsagePurpose::ClientAuth);
        it
    }

    /// Where a file stands.
    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    /// Where a file stands, as text for a configuration.
    pub(crate) fn place(&self, name: &str) -> String {
        self.path(name).display().to_string()
    }

    fn sign(&self, name: &str, authority: &Issuer<'_, KeyPair>, purpose: ExtendedKeyUsagePurpose) {
        let names = ["localhost", "127.0.0.1", "redis.internal"].map(str::to_owned);
        let mut params = CertificateParams::new(names).expect("good names");
        params.extended_key_usages = vec![purpose];
        let key = KeyPair::generate().expect("a key");
        let certificate = params.signed_by(&key, authority).expect("a certificate");
        self.write(&format!("{name}.pem"), &certificate.pem());
        self.write(&format!("{name}.key"), &key.serialize_pem());
    }

    fn write(&self, name: &str, pem: &str) {
        std::fs::write(self.path(name), pem).expect("the file can be written");
    }
}

/// A server with a TLS port, and a plain one for the test alone.
#[derive(Debug)]
pub(crate) struct TlsRedis {
    /// The server, as the test reaches it.
    pub(crate) redis: Redis,
    address: SocketAddr,
}

impl TlsRedis {
    /// Starts one that asks nothing of its clients, or a certificate.
    pub(crate) fn start(certificates: &Certificates, wants_client_certificate: bool) -> Self {
        let client = if wants_client_certificate { "yes" } else { "no" };
        let file = |name: &str| certificates.place(name);
        let files = [file("server.pem"), file("server.key"), file("ca.pem")];
        let [cert, key, ca] = files.each_ref().map(String::as_str);
        let started = (0..10).find_map(|_| {
            let (port, tls_port) = (free_port(), free_port());
            let tls = tls_port.to_string();
            let arguments = ["--tls-port", &tls, "--tls-cert-file", cert, "--tls-key-file", key];
            let more = ["--tls-ca-cert-file", ca, "--tls-auth-clients", client];
            let redis = Redis::start_on(&program(), port, &[&arguments[..], &more].concat())?;
            Some(Self { redis, address: SocketAddr::from((Ipv4Addr::LOCALHOST, tls_port)) })
        });
        started.expect("no Redis server starts; it must be built with TLS")
    }

    /// `rediss://ADDRESS`.
    pub(crate) fn url(&self) -> String {
        format!("rediss://{}", self.address)
    }

    /// Where it speaks TLS.
    pub(crate) fn addr(&self) -> SocketAddr {
        self.address
    }
}

fn authority(name: &str) -> (Issuer<'static, KeyPair>, String) {
    let mut params = CertificateParams::new([]).expect("no names");
    params.distinguished_name.push(rcgen::DnType::CommonName, name);
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
    let key = KeyPair::generate().expect("a key");
    let pem = params.self_signed(&key).expect("a certificate").pem();
    (Issuer::new(params, key), pem)
}

/// The harness against itself: a client that trusts the authority gets an answer, one that does not gets none.
#[test]
fn the_tls_server_answers_clients_that_trust_its_authority() {
    let certificates = Certificates::make();
    let server = TlsRedis::start(&certificates, false);
    assert!(ping(&server, &certificates.path("ca.pem")).starts_with("+PONG"));
    let told = ping(&server, &certificates.path("other-ca.pem"));
    assert!(told.contains("UnknownIssuer") || told.contains("certificate"), "{told}");
    let strict = TlsRedis::start(&certificates, true);
    assert!(!ping(&strict, &certificates.path("ca.pem")).contains("PONG"), "it wants a certificate");
}

/// What comes back for a PING, or the fault.
#[cfg(test)]
fn ping(server: &TlsRedis, ca: &Path) -> String {
    use rustls::pki_types::{CertificateDer, pem::PemObject};
    use std::io::{Read, Write};
    let mut roots = rustls::RootCertStore::empty();
    roots.add(CertificateDer::from_pem_file(ca).expect("PEM")).expect("a certificate");
    let config = rustls::ClientConfig::builder().with_root_certificates(roots).with_no_client_auth();
    let name = "localhost".try_into().expect("a name");
    let client = rustls::ClientConnection::new(std::sync::Arc::new(config), name).expect("a connection");
    let stream = std::net::TcpStream::connect(server.addr()).expect("it listens");
    let mut stream = rustls::StreamOwned::new(client, stream);
    let mut answer = [0; 7];
    match stream.write_all(b"PING\r\n").and_then(|()| stream.read_exact(&mut answer)) {
        Ok(()) => String::from_utf8_lossy(&answer).into_owned(),
        Err(fault) => fault.to_string(),
    }
}
