//! The admin listener of a running gateway, as the configuration names it.

use std::io;
use std::net::{self, IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, ToSocketAddrs as _};
use std::path::{Path, PathBuf};
use std::time::Duration;

use bytes::Bytes;
use http::{Method, Request, StatusCode, Uri, header};
use http_body_util::{BodyExt as _, Full, Limited};
use hyper::client::conn::http1;
use hyper::rt::{Read, Write};
use hyper_util::rt::TokioIo;
use tokio::net::TcpStream;

use super::admin_tls::{AdminTls, AdminTlsArguments, AdminTrust};
use crate::config::{self, is_variable_name};

/// Maximum bytes of a response.
const MAX_RESPONSE: usize = 16 << 20;

/// The timeout of a trial connection, if the host of a URL has several addresses.
const TRIAL_TIMEOUT: Duration = Duration::from_secs(1);

/// Its address, the tokens that it accepts, and TLS.
pub(super) struct AdminClient {
    pub(super) address: SocketAddr,
    /// The header `host` of requests.
    host: String,
    tokens: TokenVariables,
    tls: Option<AdminTls>,
}

/// The environment variables that hold tokens.
pub(super) enum TokenVariables {
    /// The listener requires no token.
    None,
    /// `token_env`.
    Main(String),
    /// Of `[admin.tokens]`, those that may read.
    Reading(Vec<String>),
}

impl AdminClient {
    /// The one at an `http` or `https` URL without a path. No token is known for it. The error is for users.
    pub(super) fn at_url(url: &str, own: &AdminTlsArguments) -> Result<Self, String> {
        let AdminUrl { address, secure_host } = AdminUrl::read(url)?;
        let Some(name) = secure_host else {
            refuse_unused(own)?;
            return Ok(Self { address, host: address.to_string(), tokens: TokenVariables::None, tls: None });
        };
        let trust = own.ca.clone().map_or(AdminTrust::System, AdminTrust::File);
        let tls = Some(AdminTls::new(&name, trust, own)?);
        // A listener on a loopback address answers only to names of loopback.
        let is_name = name.parse::<IpAddr>().is_err() && !address.ip().is_loopback();
        let host = if is_name { format!("{name}:{}", address.port()) } else { address.to_string() };
        Ok(Self { address, host, tokens: TokenVariables::None, tls })
    }

    /// As reached from this machine. The error is for users.
    pub(super) fn named_in(file: &Path, own: &AdminTlsArguments) -> Result<Self, String> {
        let table = config::peek(file)?;
        Self::of(&table, file, own, AdminTrust::Own)?.ok_or_else(|| {
            format!(
                "`{}` names no admin listener\n  = help: add `[admin]` with `listen = \"127.0.0.1:9900\"`",
                file.display()
            )
        })
    }

    /// The one named in a file's table, if there is one. `trust`: the trust in TLS without `--ca`, made of the file that
    /// the table names. The error is for users.
    pub(super) fn of(
        table: &toml::Table,
        file: &Path,
        own: &AdminTlsArguments,
        trust: fn(PathBuf) -> AdminTrust,
    ) -> Result<Option<Self>, String> {
        let admin = table.get("admin");
        let Some(listen) = admin.and_then(|admin| admin.get("listen")).and_then(toml::Value::as_str) else {
            return refuse_unused(own).map(|()| None);
        };
        let address = address(listen, "admin listener", file)?;
        let tls = match admin.and_then(|admin| admin.get("tls")).filter(|tls| tls.is_table()) {
            Some(tls) => {
                let cert = tls.get("cert").and_then(toml::Value::as_str).unwrap_or_default();
                let trust = own.ca.clone().map_or_else(|| trust(cert.into()), AdminTrust::File);
                Some(AdminTls::new(&address.ip().to_string(), trust, own)?)
            }
            None => refuse_unused(own).map(|()| None)?,
        };
        let tokens = TokenVariables::of(table);
        Ok(Some(Self { address, host: address.to_string(), tokens, tls }))
    }

    /// The `authorization` header for reading that the gateway requires; none if it requires no token. The error is for
    /// users.
    pub(super) fn authorization(&self) -> Result<Option<String>, String> {
        self.tokens.authorization()
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
        let mut request = Request::builder().method(method).uri(path).header(header::HOST, &self.host);
        if !body.is_empty() {
            request = request.header(header::CONTENT_TYPE, "application/json");
        }
        if let Some(authorization) = authorization {
            request = request.header(header::AUTHORIZATION, authorization);
        }
        let request = request.body(Full::from(body)).map_err(io::Error::other)?;
        tokio::time::timeout(timeout, self.exchange(request))
            .await
            .unwrap_or_else(|_| Err(io::Error::other(format!("no answer within {timeout:?}"))))
    }

    async fn exchange(&self, request: Request<Full<Bytes>>) -> io::Result<(StatusCode, Bytes)> {
        let stream = TcpStream::connect(self.address).await?;
        match &self.tls {
            None => exchange(TokioIo::new(stream), request).await,
            Some(tls) => {
                let stream = tls.connect(stream).await?;
                exchange(TokioIo::new(stream), request).await.map_err(|error| tls.explained(error))
            }
        }
    }
}

impl TokenVariables {
    /// Those of `[admin]` in a file's table.
    pub(super) fn of(table: &toml::Table) -> Self {
        let value = |key| table.get("admin").and_then(|admin| admin.get(key));
        let main = value("token_env").and_then(toml::Value::as_str);
        let named = value("tokens").and_then(toml::Value::as_table);
        match (main, named) {
            (Some(variable), _) => Self::Main(variable.to_owned()),
            (None, Some(named)) => Self::Reading(named.values().filter_map(reading).collect()),
            (None, None) => Self::None,
        }
    }

    /// See [`AdminClient::authorization`].
    pub(super) fn authorization(&self) -> Result<Option<String>, String> {
        let held = |name: &String| std::env::var(name).ok().filter(|token| !token.is_empty());
        let token = match self {
            Self::None => return Ok(None),
            Self::Main(name) => held(name).ok_or_else(|| {
                let which =
                    if is_variable_name(name) { format!("`{name}`") } else { "of `token_env`".into() };
                format!("the admin listener wants a token, and the environment variable {which} holds none")
            }),
            Self::Reading(names) if names.is_empty() => {
                let why = "the admin listener wants a token, and no token of `[admin.tokens]` may `read`";
                Err(format!("{why}\n  = help: add one, or set `token_env` in `[admin]`"))
            }
            Self::Reading(names) => names.iter().find_map(held).ok_or_else(|| {
                "the admin listener wants a token, and no environment variable of a token of `[admin.tokens]` that may \
                 `read` holds one"
                    .to_owned()
            }),
        };
        token.map(|token| Some(format!("Bearer {token}")))
    }
}

/// Arguments for TLS where there is none. The error is for users.
fn refuse_unused(own: &AdminTlsArguments) -> Result<(), String> {
    own.first().map_or(Ok(()), |argument| {
        Err(format!(
            "`{argument}` is for an admin listener with TLS\n  = help: write `--url https://…`, or `tls` into `[admin]`"
        ))
    })
}

/// The variable of an entry of `[admin.tokens]` that may read.
fn reading(entry: &toml::Value) -> Option<String> {
    let may = entry.get("may")?.as_array()?;
    let reads = may.iter().filter_map(toml::Value::as_str).any(|right| matches!(right, "read" | "operate"));
    entry.get("token_env")?.as_str().filter(|_| reads).map(ToOwned::to_owned)
}

async fn exchange(
    stream: impl Read + Write + Unpin + Send + 'static,
    request: Request<Full<Bytes>>,
) -> io::Result<(StatusCode, Bytes)> {
    let (mut sender, connection) = http1::handshake(stream).await.map_err(io::Error::other)?;
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

/// The URL of an admin listener.
#[derive(Debug, PartialEq, Eq)]
struct AdminUrl {
    address: SocketAddr,
    /// The host of an `https` URL.
    secure_host: Option<String>,
}

impl AdminUrl {
    /// Reads an `http` or `https` URL without a path, and resolves its host. The error is for users.
    fn read(url: &str) -> Result<Self, String> {
        let wrong = || {
            let shown = url.escape_debug();
            format!(
                "`--url {shown}` is not the URL of an admin listener\n  = help: write `--url http://127.0.0.1:9900`, or \
                 `https://` if its `[admin]` has `tls`"
            )
        };
        let uri: Uri = url.parse().map_err(|_| wrong())?;
        let authority =
            uri.authority().filter(|authority| !authority.as_str().contains('@')).ok_or_else(wrong)?;
        let (is_secure, default_port) = match uri.scheme_str() {
            Some("http") => (false, 80),
            Some("https") => (true, 443),
            _ => return Err(wrong()),
        };
        if !matches!(uri.path(), "" | "/") || uri.query().is_some() {
            return Err(wrong());
        }
        let host = authority.host().trim_start_matches('[').trim_end_matches(']');
        let found = (host, authority.port_u16().unwrap_or(default_port)).to_socket_addrs();
        let found: Vec<_> = found.map_err(|error| format!("`{host}` has no address: {error}"))?.collect();
        let address = accepting(&found).ok_or_else(|| format!("`{host}` has no address"))?;
        Ok(Self { address, secure_host: is_secure.then(|| host.to_owned()) })
    }
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

    fn read(url: &str) -> Result<(SocketAddr, Option<String>), String> {
        AdminUrl::read(url).map(|url| (url.address, url.secure_host))
    }

    #[test]
    fn a_url_has_a_host_and_perhaps_a_port() {
        assert_eq!(read("http://127.0.0.1:9900/"), Ok((([127, 0, 0, 1], 9900).into(), None)));
        assert_eq!(read("http://[::1]:9900"), Ok(("[::1]:9900".parse().unwrap(), None)));
        assert_eq!(read("http://192.0.2.1"), Ok((([192, 0, 2, 1], 80).into(), None)));
        let secure = |host: &str| Some(host.to_owned());
        assert_eq!(read("https://192.0.2.1"), Ok((([192, 0, 2, 1], 443).into(), secure("192.0.2.1"))));
        assert_eq!(read("https://[::1]:9900/"), Ok(("[::1]:9900".parse().unwrap(), secure("::1"))));
        for wrong in [
            "",
            "127.0.0.1:9900",
            "http://",
            "http://a:b@127.0.0.1",
            "http://127.0.0.1/api",
            "https://127.0.0.1/api",
            "ftp://127.0.0.1",
            "/",
        ] {
            let message = read(wrong).unwrap_err();
            assert!(message.contains("= help: write `--url http://"), "{wrong}: {message}");
        }
    }
}
