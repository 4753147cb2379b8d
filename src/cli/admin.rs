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

use crate::config::{self, is_variable_name};

/// Maximum bytes of a response.
const MAX_RESPONSE: usize = 4 << 20;

/// Its address, and the token that it requires.
pub(super) struct AdminClient {
    pub(super) address: SocketAddr,
    /// The environment variable that holds the token, if there is one.
    token_env: Option<String>,
}

impl AdminClient {
    /// As reached from this machine. The error is for users.
    pub(super) fn named_in(file: &Path) -> Result<Self, String> {
        let table = config::peek(file)?;
        Self::of(&table, file)?.ok_or_else(|| {
            format!(
                "`{}` names no admin listener\n  = help: add `[admin]` with `listen = \"127.0.0.1:9900\"`",
                file.display()
            )
        })
    }

    /// The one named in a file's table, if there is one.
    pub(super) fn of(table: &toml::Table, file: &Path) -> Result<Option<Self>, String> {
        let word = |key| table.get("admin").and_then(|admin| admin.get(key)).and_then(toml::Value::as_str);
        let Some(listen) = word("listen") else { return Ok(None) };
        let address = address(listen, "admin listener", file)?;
        Ok(Some(Self { address, token_env: word("token_env").map(ToOwned::to_owned) }))
    }

    /// The `authorization` header that the gateway requires; none if it requires no token. The error is for users.
    pub(super) fn authorization(&self) -> Result<Option<String>, String> {
        let token = |name: &String| {
            let token = std::env::var(name).ok().filter(|token| !token.is_empty());
            let token = token.ok_or_else(|| {
                let which =
                    if is_variable_name(name) { format!("`{name}`") } else { "of `token_env`".into() };
                format!("the admin listener wants a token, and the environment variable {which} holds none")
            });
            Ok(format!("Bearer {}", token?))
        };
        self.token_env.as_ref().map(token).transpose()
    }

    /// Sends one request and reads the answer, within `timeout`.
    pub(super) fn ask(
        &self,
        method: Method,
        path: &str,
        authorization: Option<String>,
        body: String,
        timeout: Duration,
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
            tokio::time::timeout(timeout, exchange(self.address, request))
                .await
                .unwrap_or_else(|_| Err(io::Error::other(format!("no answer within {timeout:?}"))))
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
    let body = Limited::new(response.into_body(), MAX_RESPONSE).collect().await.map_err(io::Error::other)?;
    Ok((status, body.to_bytes()))
}

/// An address as reached from this machine. The error is for users.
pub(super) fn address(text: &str, what: &str, file: &Path) -> Result<SocketAddr, String> {
    let name = file.display();
    let address: SocketAddr = text
        .parse()
        .map_err(|_| format!("`{}` in `{name}` is not an address with a port", text.escape_debug()))?;
    match address.port() {
        0 => Err(format!("the {what} in `{name}` picks its port, so it is not known here")),
        _ => Ok(reachable(address)),
    }
}

/// A listener on all addresses is reached on loopback.
fn reachable(address: SocketAddr) -> SocketAddr {
    let ip = match address.ip() {
        IpAddr::V4(Ipv4Addr::UNSPECIFIED) => Ipv4Addr::LOCALHOST.into(),
        IpAddr::V6(Ipv6Addr::UNSPECIFIED) => Ipv6Addr::LOCALHOST.into(),
        ip => ip,
    };
    SocketAddr::new(ip, address.port())
}
