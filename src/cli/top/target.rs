//! Where the gateway is, and the token for it.

use std::net::{SocketAddr, TcpStream, ToSocketAddrs as _};
use std::path::Path;
use std::time::Duration;

use http::Uri;

use crate::cli::admin::AdminClient;
use crate::config;

/// The variable that holds the token for `--url`.
const TOKEN_VARIABLE: &str = "TOLLGATE_ADMIN_TOKEN";
/// The timeout of a trial connection, if the host has several addresses.
const TRIAL_TIMEOUT: Duration = Duration::from_secs(1);

/// The admin listener of one gateway.
pub(super) struct AdminTarget {
    pub(super) client: AdminClient,
    /// The value of the header `authorization`, if a token is known.
    pub(super) authorization: Option<String>,
}

impl AdminTarget {
    /// The one at `url`, else the one that `file` names. The error is for users.
    pub(super) fn find(file: &Path, url: Option<&str>) -> Result<Self, String> {
        let Some(url) = url else {
            let client = AdminClient::named_in(file)?;
            let authorization = client.authorization()?;
            return Ok(Self { client, authorization });
        };
        let client = AdminClient::at(address(url)?);
        Ok(Self { client, authorization: authorization(file)? })
    }
}

/// The token for `--url`: of its own variable, else as the file says, if there is a file with `[admin]`.
fn authorization(file: &Path) -> Result<Option<String>, String> {
    let token = std::env::var(TOKEN_VARIABLE).ok().filter(|token| !token.is_empty());
    if let Some(token) = token {
        return Ok(Some(format!("Bearer {token}")));
    }
    if !file.exists() {
        return Ok(None);
    }
    let named = config::peek(file).and_then(|table| AdminClient::of(&table, file))?;
    named.map_or(Ok(None), |admin| admin.authorization())
}

/// The address of an `http` URL without a path.
fn address(url: &str) -> Result<SocketAddr, String> {
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
    reachable(&found).ok_or_else(|| format!("`{host}` has no address"))
}

/// The first address that accepts a connection, else the first.
fn reachable(addresses: &[SocketAddr]) -> Option<SocketAddr> {
    let accepts = |address: &&SocketAddr| TcpStream::connect_timeout(address, TRIAL_TIMEOUT).is_ok();
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
        assert_eq!(address("http://127.0.0.1:9900/"), Ok(([127, 0, 0, 1], 9900).into()));
        assert_eq!(address("http://[::1]:9900"), Ok("[::1]:9900".parse().unwrap()));
        assert_eq!(address("http://192.0.2.1"), Ok(([192, 0, 2, 1], 80).into()));
        for wrong in [
            "",
            "127.0.0.1:9900",
            "http://",
            "http://a:b@127.0.0.1",
            "http://127.0.0.1/api",
            "ftp://127.0.0.1",
            "/",
        ] {
            let message = address(wrong).unwrap_err();
            assert!(message.contains("= help: write `--url http://"), "{wrong}: {message}");
        }
        assert!(address("https://gateway:9900").unwrap_err().contains("ssh -L 9900:127.0.0.1:9900 gateway"));
    }
}
