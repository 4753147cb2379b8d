//! The admin listener of a running gateway, as the configuration names it.

use std::io;
use std::net::{self, IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, ToSocketAddrs as _};
use std::path::Path;
use std::time::Duration;

use bytes::Bytes;
use http::{Method, Request, StatusCode, Uri, header};
use http_body_util::{BodyExt as _, Full, Limited};
use hyper::client::conn::http1;
use hyper_util::rt::TokioIo;
use tokio::net::TcpStream;

use crate::config::{self, is_variable_name};

/// Maximum bytes of a response.
const MAX_RESPONSE: usize = 16 << 20;

/// The timeout of a trial connection, if the host of a URL has several addresses.
const TRIAL_TIMEOUT: Duration = Duration::from_secs(1);

/// Its address, and the tokens that it accepts.
pub(super) struct AdminClient {
    pub(super) address: SocketAddr,
    tokens: TokenVariables,
}

/// The environment variables that hold tokens.
enum TokenVariables {
    /// The listener requires no token.
    None,
    /// `token_env`.
    Main(String),
    /// Of `[admin.tokens]`, those that may read.
    Reading(Vec<String>),
}

impl AdminClient {
    /// The one at this address. No token is known for it.
    fn at(address: SocketAddr) -> Self {
        Self { address, tokens: TokenVariables::None }
    }

    /// The one at an `http` URL without a path. The error is for users.
    pub(super) fn at_url(url: &str) -> Result<Self, String> {
        address_of_url(url).map(Self::at)
    }

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
        let named = table.get("admin").and_then(|admin| admin.get("tokens")).and_then(toml::Value::as_table);
        let tokens = match (word("token_env"), named) {
            (Some(variable), _) => TokenVariables::Main(variable.to_owned()),
            (None, Some(named)) => TokenVariables::Reading(named.values().filter_map(reading).collect()),
            (None, None) => TokenVariables::None,
        };
        Ok(Some(Self { address, tokens }))
    }

    /// The `authorization` header for reading that the gateway requires; none if it requires no token. The error is for
    /// users.
    pub(super) fn authorization(&self) -> Result<Option<String>, String> {
        let held = |name: &String| std::env::var(name).ok().filter(|token| !token.is_empty());
        let token = match &self.tokens {
            TokenVariables::None => return Ok(None),
            TokenVariables::Main(name) => held(name).ok_or_else(|| {
                let which =
                    if is_variable_name(name) { format!("`{name}`") } else { "of `token_env`".into() };
                format!("the admin listener wants a token, and the environment variable {which} holds none")
            }),
            TokenVariables::Reading(names) if names.is_empty() => {
                let why = "the admin listener wants a token, and no token of `[admin.tokens]` may `read`";
                Err(format!("{why}\n  = help: add one, or set `token_env` in `[admin]`"))
            }
            TokenVariables::Reading(names) => names.iter().find_map(held).ok_or_else(|| {
                "the admin listener wants a token, and no environment variable of a token of `[admin.tokens]` that may \
                 `read` holds one"
                    .to_owned()
            }),
        };
        token.map(|token| Some(format!("Bearer {token}")))
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
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        runtime.block_on(self.send(method, path, authorization.as_deref(), body, timeout))
    }

    /// As [`Self::ask`], on the runtime of the caller.
    pub(super) async fn send(
        &self,
        method: Method,
        path: &str,
        authorization: Option<&str>,
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
        tokio::time::timeout(timeout, exchange(self.address, request))
            .await
            .unwrap_or_else(|_| Err(io::Error::other(format!("no answer within {timeout:?}"))))
    }
}

/// The variable of an entry of `[admin.tokens]` that may read.
fn reading(entry: &toml::Value) -> Option<String> {
    let may = entry.get("may")?.as_array()?;
    let reads = may.iter().filter_map(toml::Value::as_str).any(|right| matches!(right, "read" | "operate"));
    entry.get("token_env")?.as_str().filter(|_| reads).map(ToOwned::to_owned)
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

/// The address of an `http` URL without a path. The error is for users.
fn address_of_url(url: &str) -> Result<SocketAddr, String> {
    let wrong = || {
        let shown = url.escape_debug();
        format!(
            "`--url {shown}` is not the URL of an admin listener\n  = help: write `--url http://127.0.0.1:9900`"
        )
    };
    let uri: Uri = url.parse().map_err(|_| wrong())?;
    let authority =
        uri.authority().filter(|authority| !authority.as_str().contains('@')).ok_or_else(wrong)?;
    match uri.scheme_str() {
        Some("http") => {}
        Some("https") => {
            let host = authority.host();
            return Err(format!(
                "`--url` takes http only: the admin listener has no TLS\n  = help: open a tunnel, `ssh -L \
                 9900:127.0.0.1:9900 {host}`, then write `--url http://127.0.0.1:9900`"
            ));
        }
        _ => return Err(wrong()),
    }
    if !matches!(uri.path(), "" | "/") || uri.query().is_some() {
        return Err(wrong());
    }
    let host = authority.host().trim_start_matches('[').trim_end_matches(']');
    let found = (host, authority.port_u16().unwrap_or(80)).to_socket_addrs();
    let found: Vec<_> = found.map_err(|error| format!("`{host}` has no address: {error}"))?.collect();
    accepting(&found).ok_or_else(|| format!("`{host}` has no address"))
}

/// The first address that accepts a connection, else the first.
fn accepting(addresses: &[SocketAddr]) -> Option<SocketAddr> {
    let accepts = |address: &&SocketAddr| net::TcpStream::connect_timeout(address, TRIAL_TIMEOUT).is_ok();
    match addresses {
        [only] => Some(*only),
        several => several.iter().find(accepts).or(several.first()).copied(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_url_is_http_with_a_host_and_perhaps_a_port() {
        assert_eq!(address_of_url("http://127.0.0.1:9900/"), Ok(([127, 0, 0, 1], 9900).into()));
        assert_eq!(address_of_url("http://[::1]:9900"), Ok("[::1]:9900".parse().unwrap()));
        assert_eq!(address_of_url("http://192.0.2.1"), Ok(([192, 0, 2, 1], 80).into()));
        for wrong in [
            "",
            "127.0.0.1:9900",
            "http://",
            "http://a:b@127.0.0.1",
            "http://127.0.0.1/api",
            "ftp://127.0.0.1",
            "/",
        ] {
            let message = address_of_url(wrong).unwrap_err();
            assert!(message.contains("= help: write `--url http://"), "{wrong}: {message}");
        }
        assert!(
            address_of_url("https://gateway:9900")
                .unwrap_err()
                .contains("ssh -L 9900:127.0.0.1:9900 gateway")
        );
    }
}
