//! The admin listener of a running gateway, as the configuration names it.

use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::path::Path;
use std::time::Duration;

use bytes::Bytes;
use http::{Method, Request, StatusCode, header};
use http_body_util::{BodyExt as _, Full, Limited};
use hyper::client::conn::http1;
use hyper_util::rt::TokioIo;
use tokio::net::TcpStream;

/// Bytes of an answer.
const MOST_ANSWER: usize = 4 << 20;

/// Where it is, and what it asks for.
pub(super) struct Admin {
    pub(super) address: SocketAddr,
    /// The environment variable that holds the token, if there is one.
    token_env: Option<String>,
}

impl Admin {
    /// As seen from this machine. The error is for people.
    ///
    /// Only these values are read: while somebody edits the file, a fault elsewhere in it must not make the gateway that
    /// runs seem dead.
    pub(super) fn named_in(file: &Path) -> Result<Self, String> {
        let name = file.display();
        let text =
            std::fs::read_to_string(file).map_err(|error| format!("can not read `{name}`: {error}"))?;
        let table: toml::Table = text
            .parse()
            .map_err(|error: toml::de::Error| format!("`{name}` is not TOML: {}", error.message()))?;
        let word = |key| table.get("admin").and_then(|admin| admin.get(key)).and_then(toml::Value::as_str);
        let listen = word("listen").ok_or_else(|| {
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
        Ok(Self { address: reachable(address), token_env: word("token_env").map(ToOwned::to_owned) })
    }

    /// What the gateway wants to be told by who asks; nothing where it wants nothing. The error is for people.
    pub(super) fn authorization(&self) -> Result<Option<String>, String> {
        let token = |name: &String| {
            let token = std::env::var(name).ok().filter(|token| !token.is_empty());
            let token = token.ok_or_else(|| {
                format!("the admin listener wants a token, and the environment variable `{name}` holds none")
            });
            Ok(format!("Bearer {}", token?))
        };
        self.token_env.as_ref().map(token).transpose()
    }

    /// Sends one request and reads the answer, within `patience`.
    pub(super) fn ask(
        &self,
        method: Method,
        path: &str,
        authorization: Option<String>,
        body: String,
        patience: Duration,
    ) -> io::Result<(StatusCode, Bytes)> {
        let mut request =
            Request::builder().method(method).uri(path).header(header::HOST, self.address.to_string());
        if !body.is_empty() {
            request = request.header(header::CONTENT_TYPE, "application/json");
        }
        if let Some(authorization) = authorization {
            request = request.header(header::AUTHORIZATION, authorization);
        }
        let request = request.body(Full::from(body)).map_err(io::Error::other)?;
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        runtime.block_on(async {
            tokio::time::timeout(patience, exchange(self.address, request))
                .await
                .unwrap_or_else(|_| Err(io::Error::other(format!("no answer within {patience:?}"))))
        })
    }
}

async fn exchange(address: SocketAddr, request: Request<Full<Bytes>>) -> io::Result<(StatusCode, Bytes)> {
    let stream = TcpStream::connect(address).await?;
    let (mut sender, connection) = http1::handshake(TokioIo::new(stream)).await.map_err(io::Error::other)?;
    // Ends with the runtime.
    tokio::spawn(connection);
    let response = sender.send_request(request).await.map_err(io::Error::other)?;
    let status = response.status();
    let body = Limited::new(response.into_body(), MOST_ANSWER).collect().await.map_err(io::Error::other)?;
    Ok((status, body.to_bytes()))
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
