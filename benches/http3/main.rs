//! The client of `benches/http3/compare.py`: requests, handshakes or idle connections over HTTP/3, by the crate `h3`.

use std::error::Error;
use std::io::{self, Read as _, Write as _};
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;

use bytes::{Buf as _, Bytes};
use clap::{Parser, ValueEnum};
use http::Request;
use quinn::crypto::rustls::QuicClientConfig;
use quinn::{ClientConfig, Connection, Endpoint};
use rustls::RootCertStore;
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject as _;
use tokio::task::JoinSet;

type Failure = Box<dyn Error + Send + Sync>;
type Sender = h3::client::SendRequest<h3_quinn::OpenStreams, Bytes>;

#[derive(Parser)]
struct Options {
    /// What is done.
    what: Load,
    /// Where the server listens.
    address: SocketAddr,
    /// A PEM file with the certificate that the server shows for `localhost`.
    #[arg(long)]
    certificate: PathBuf,
    /// Requests in all, handshakes, or connections that stay open.
    #[arg(long)]
    count: usize,
    /// Connections at a time.
    #[arg(long, default_value_t = 8)]
    connections: usize,
    /// Requests at a time on each connection.
    #[arg(long, default_value_t = 8)]
    streams: usize,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Load {
    /// Small GETs, each answered with 200.
    Requests,
    /// Connections with one GET each, without resumption.
    Handshakes,
    /// Connections with one GET each, which stay open until standard input ends.
    Idle,
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Failure> {
    let options = Options::parse();
    let endpoint = endpoint(&options)?;
    match options.what {
        Load::Requests => requests(&endpoint, &options).await,
        Load::Handshakes => handshakes(&endpoint, &options).await,
        Load::Idle => idle(&endpoint, &options).await,
    }
}

fn endpoint(options: &Options) -> Result<Endpoint, Failure> {
    let mut roots = RootCertStore::empty();
    roots.add(CertificateDer::from_pem_file(&options.certificate)?)?;
    let mut tls = rustls::ClientConfig::builder().with_root_certificates(roots).with_no_client_auth();
    tls.alpn_protocols = vec![b"h3".to_vec()];
    tls.resumption = rustls::client::Resumption::disabled();
    let mut endpoint = Endpoint::client("127.0.0.1:0".parse()?)?;
    endpoint.set_default_client_config(ClientConfig::new(Arc::new(QuicClientConfig::try_from(tls)?)));
    Ok(endpoint)
}

/// A connection on which HTTP/3 has begun. It ends with its last sender.
async fn connect(endpoint: &Endpoint, address: SocketAddr) -> Result<(Connection, Sender), Failure> {
    let connection = endpoint.connect(address, "localhost")?.await?;
    let http3 = h3_quinn::Connection::new(connection.clone());
    // nginx 1.31.5 resets a request that ends with a frame of an unknown type.
    let (mut driver, sender) = h3::client::builder().send_grease(false).build(http3).await?;
    drop(tokio::spawn(async move { driver.wait_idle().await }));
    Ok((connection, sender))
}

async fn get(sender: &mut Sender) -> Result<(), Failure> {
    let mut stream = sender.send_request(Request::get("https://localhost/").body(())?).await?;
    stream.finish().await?;
    let response = stream.recv_response().await?;
    while let Some(mut part) = stream.recv_data().await? {
        part.advance(part.remaining());
    }
    if response.status() != 200 {
        return Err(format!("{} instead of 200", response.status()).into());
    }
    Ok(())
}

async fn requests(endpoint: &Endpoint, options: &Options) -> Result<(), Failure> {
    let each = options.count / options.connections / options.streams;
    let mut tasks = JoinSet::new();
    for _ in 0..options.connections {
        let (_, sender) = connect(endpoint, options.address).await?;
        for _ in 0..options.streams {
            let mut sender = sender.clone();
            tasks.spawn(async move {
                for _ in 0..each {
                    get(&mut sender).await?;
                }
                Ok::<_, Failure>(())
            });
        }
    }
    while let Some(ended) = tasks.join_next().await {
        ended??;
    }
    Ok(())
}

async fn handshakes(endpoint: &Endpoint, options: &Options) -> Result<(), Failure> {
    let mut tasks = JoinSet::new();
    for _ in 0..options.connections {
        let (endpoint, address, each) =
            (endpoint.clone(), options.address, options.count / options.connections);
        tasks.spawn(async move {
            for _ in 0..each {
                let (connection, mut sender) = connect(&endpoint, address).await?;
                get(&mut sender).await?;
                connection.close(0x100_u32.into(), b"");
            }
            Ok::<_, Failure>(())
        });
    }
    while let Some(ended) = tasks.join_next().await {
        ended??;
    }
    Ok(())
}

async fn idle(endpoint: &Endpoint, options: &Options) -> Result<(), Failure> {
    let mut open = Vec::with_capacity(options.count);
    for _ in 0..options.count {
        let (connection, mut sender) = connect(endpoint, options.address).await?;
        get(&mut sender).await?;
        open.push((connection, sender));
    }
    writeln!(io::stdout(), "open")?;
    // Meanwhile the connections are kept alive by this task's runtime.
    tokio::task::spawn_blocking(|| io::stdin().read(&mut [0])).await??;
    Ok(())
}
