//! `tollgate health`: asks a running gateway.

use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::path::Path;
use std::process::ExitCode;
use std::time::Duration;

use bytes::Bytes;
use http::{Request, StatusCode};
use http_body_util::Empty;
use hyper::client::conn::http1;
use hyper_util::rt::TokioIo;
use tokio::net::TcpStream;

use super::output::fault;
use super::{FAILED, MISTAKE};

/// For connecting, asking and answering together.
const PATIENCE: Duration = Duration::from_secs(2);

/// Asks `/healthz` of the admin listener that `file` names.
pub(super) fn ask(file: &Path) -> ExitCode {
    let address = match admin_address(file) {
        Ok(address) => address,
        Err(message) => return fault(MISTAKE, message),
    };
    match status(address) {
        Ok(StatusCode::OK) => ExitCode::SUCCESS,
        Ok(status) => fault(FAILED, format_args!("the gateway at {address} answers {status}")),
        Err(error) => fault(FAILED, format_args!("no gateway answers at {address}: {error}")),
    }
}

/// Where the admin listener is, as seen from this machine.
///
/// Only this one value is read: while somebody edits the file, a fault elsewhere in it must not make the gateway that
/// runs seem dead.
fn admin_address(file: &Path) -> Result<SocketAddr, String> {
    let name = file.display();
    let text = std::fs::read_to_string(file).map_err(|error| format!("can not read `{name}`: {error}"))?;
    let table: toml::Table = text
        .parse()
        .map_err(|error: toml::de::Error| format!("`{name}` is not TOML: {}", error.message()))?;
    let listen = table.get("admin").and_then(|admin| admin.get("listen")).and_then(toml::Value::as_str);
    let listen = listen.ok_or_else(|| {
        format!(
            "`{name}` names no admin listener\n  = help: add `[admin]` with `listen = \"127.0.0.1:9900\"`"
        )
    })?;
    let address: SocketAddr = listen
        .parse()
        .map_err(|_| format!("`{}` in `{name}` is not an address with a port", listen.escape_debug()))?;
    if address.port() == 0 {
        return Err(format!("the admin listener in `{name}` picks its port, so it is not known here"));
    }
    Ok(reachable(address))
}

/// A listener on all addresses is asked on loopback.
fn reachable(address: SocketAddr) -> SocketAddr {
    let ip = match address.ip() {
        IpAddr::V4(Ipv4Addr::UNSPECIFIED) => Ipv4Addr::LOCALHOST.into(),
        IpAddr::V6(Ipv6Addr::UNSPECIFIED) => Ipv6Addr::LOCALHOST.into(),
        ip => ip,
    };
    SocketAddr::new(ip, address.port())
}

fn status(address: SocketAddr) -> io::Result<StatusCode> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(async {
        tokio::time::timeout(PATIENCE, request(address))
            .await
            .unwrap_or_else(|_| Err(io::Error::other(format!("no answer within {PATIENCE:?}"))))
    })
}

async fn request(address: SocketAddr) -> io::Result<StatusCode> {
    let stream = TcpStream::connect(address).await?;
    let (mut sender, connection) = http1::handshake(TokioIo::new(stream)).await.map_err(io::Error::other)?;
    // Ends with the runtime.
    tokio::spawn(connection);
    let request = Request::get("/healthz")
        .header(http::header::HOST, address.to_string())
        .body(Empty::<Bytes>::new())
        .map_err(io::Error::other)?;
    Ok(sender.send_request(request).await.map_err(io::Error::other)?.status())
}
