//! The URL of a Redis or Valkey server: `redis://[[USER]:PASSWORD@]HOST[:PORT][/DATABASE]`, `rediss://` for TLS,
//! `redis+sentinel://HOST[:PORT]/MASTER[/DATABASE]` for a sentinel, `unix://[[USER]:PASSWORD@]/PATH[?db=DATABASE]` for a
//! Unix socket.
//!
//! No message repeats the text: it may hold a password.

use std::sync::Arc;

use percent_encoding::percent_decode_str;

use super::endpoint;
use super::text::SyntaxError;
use crate::store::redis::settings::{Login, RedisServer};

/// The longest path of a Unix socket (unix(7)).
const MAX_SOCKET_PATH: usize = 107;
/// The maximum number of a database.
const MAX_DATABASE: u32 = 1_000_000;

/// The content of a URL.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct RedisUrl {
    pub(super) server: RedisServer,
    /// The part that is the same for all servers that belong together.
    pub(super) common: Common,
}

/// The part that is the same for all servers that belong together.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Common {
    pub(super) tls: bool,
    pub(super) login: Option<Login>,
    pub(super) database: u32,
    /// The master's name, if the server is a sentinel.
    pub(super) master: Option<Arc<str>>,
}

/// Parses a URL.
pub(super) fn parse(text: &str) -> Result<RedisUrl, SyntaxError> {
    let (scheme, rest) = text.split_once("://").ok_or_else(no_url)?;
    let (tls, sentinel) = match scheme {
        "redis" | "valkey" => (false, false),
        "rediss" | "valkeys" => (true, false),
        "redis+sentinel" => (false, true),
        "rediss+sentinel" => (true, true),
        "unix" | "redis+unix" => return unix_socket(rest),
        "redis+cluster" | "rediss+cluster" | "redis-cluster" | "rediss-cluster" | "valkey+cluster" => {
            return Err(SyntaxError::new(
                "a cluster has no URL of its own",
                "write a list with some of its nodes: `url = [\"redis://HOST:PORT\", \"redis://HOST:PORT\"]`",
            ));
        }
        _ => return Err(no_url()),
    };
    if rest.contains(['?', '#']) {
        return Err(SyntaxError::new(
            "the URL of the store has a query or a fragment",
            "write what belongs there as keys of `[store]`; `?` and `#` in a password are `%3F` and `%23`",
        ));
    }
    let (authority, path) = rest.split_once('/').unwrap_or((rest, ""));
    let (user, host) =
        authority.rsplit_once('@').map_or((None, authority), |(user, host)| (Some(user), host));
    let default_port = if sentinel { 26_379 } else { 6_379 };
    let endpoint = endpoint::authority(host, default_port).map_err(|_| no_host())?;
    let (master, database) = if sentinel { master(path)? } else { (None, database(path)?) };
    Ok(RedisUrl {
        server: RedisServer { host: endpoint.host.into(), port: endpoint.port },
        common: Common { tls, login: user.map(login).transpose()?, database, master },
    })
}

/// `[[USER]:PASSWORD@]/PATH[?db=DATABASE]`.
fn unix_socket(rest: &str) -> Result<RedisUrl, SyntaxError> {
    let (rest, query) = rest.split_once('?').map_or((rest, None), |(rest, query)| (rest, Some(query)));
    let begin = rest.find('/').unwrap_or(rest.len());
    let (user, path) = rest.split_at(begin);
    let login = match user {
        "" => None,
        user => Some(login(user.strip_suffix('@').ok_or_else(no_path)?)?),
    };
    if path.len() < 2 || path.len() > MAX_SOCKET_PATH || path.contains(['#', '\0', '@']) {
        return Err(no_path());
    }
    let number = match query {
        Some(query) => database(query.strip_prefix("db=").ok_or_else(no_path)?)?,
        None => 0,
    };
    Ok(RedisUrl {
        server: RedisServer { host: path.into(), port: 0 },
        common: Common { tls: false, login, database: number, master: None },
    })
}

fn no_path() -> SyntaxError {
    SyntaxError::new(
        "the URL of the store names no valid Unix socket",
        "write its absolute path of at most 107 bytes: `unix:///run/redis/redis.sock`, or with a database `…?db=2`",
    )
}

fn no_url() -> SyntaxError {
    SyntaxError::new(
        "this is not the URL of a Redis or Valkey server",
        "write `redis://HOST:PORT`, `rediss://HOST:PORT` for TLS, `redis+sentinel://HOST:PORT/MASTER`, or `unix:///PATH`",
    )
}

fn no_host() -> SyntaxError {
    SyntaxError::new(
        "the URL of the store names no valid host and port",
        "write `redis://HOST:PORT`; `@`, `/` and `:` in a password are `%40`, `%2F` and `%3A`",
    )
}

fn master(path: &str) -> Result<(Option<Arc<str>>, u32), SyntaxError> {
    let (name, rest) = path.split_once('/').unwrap_or((path, ""));
    if name.is_empty() {
        return Err(SyntaxError::new(
            "the URL of a sentinel does not name the master",
            "write `redis+sentinel://HOST:PORT/MASTER`, with the name that the sentinels monitor",
        ));
    }
    Ok((Some(name.into()), database(rest)?))
}

fn database(path: &str) -> Result<u32, SyntaxError> {
    let is_number = path.bytes().all(|byte| byte.is_ascii_digit());
    match path.trim_start_matches('0') {
        "" if is_number => Ok(0),
        digits => {
            digits.parse().ok().filter(|number| is_number && *number <= MAX_DATABASE).ok_or_else(|| {
                SyntaxError::new(
                    "the URL of the store has a path that is not a database",
                    "write its number: `redis://HOST:PORT/2`",
                )
            })
        }
    }
}

fn login(text: &str) -> Result<Login, SyntaxError> {
    let (user, password) = text.split_once(':').ok_or_else(|| {
        let help = "write `redis://USER:PASSWORD@HOST:PORT`, or `redis://:PASSWORD@HOST:PORT`";
        SyntaxError::new("the URL of the store has a user without a password", help)
    })?;
    let decode = |part: &str| percent_decode_str(part).decode_utf8().map(|text| Arc::<str>::from(&*text));
    let no_text =
        |_| SyntaxError::new("the user or password in the URL of the store is not UTF-8", "look at its `%`");
    let (user, password) = (decode(user).map_err(no_text)?, decode(password).map_err(no_text)?);
    if password.is_empty() {
        let help = "write it after the `:`, or leave out all up to the `@`";
        return Err(SyntaxError::new("the URL of the store has an empty password", help));
    }
    Ok(Login { user: Some(user).filter(|user| !user.is_empty()), password })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn urls_are_read() {
        let read = |text: &str| {
            let RedisUrl { server, common: Common { tls, login, database, master } } = parse(text).unwrap();
            let login =
                login.map(|login| format!("{}/{}", login.user.as_deref().unwrap_or("-"), login.password));
            format!(
                "{server} {tls} {} {database} {}",
                login.as_deref().unwrap_or("-"),
                master.as_deref().unwrap_or("-")
            )
        };
        assert_eq!(read("redis://localhost"), "localhost:6379 false - 0 -");
        assert_eq!(read("redis://10.0.0.1:7000/"), "10.0.0.1:7000 false - 0 -");
        assert_eq!(read("rediss://:p%40ss@[::1]:7000/3"), "[::1]:7000 true -/p@ss 3 -");
        assert_eq!(read("redis://gate:a:b@redis.internal"), "redis.internal:6379 false gate/a:b 0 -");
        assert_eq!(read("unix:///run/redis.sock"), "unix:/run/redis.sock false - 0 -");
        assert_eq!(read("redis+unix://u:p%40@/run/redis.sock?db=3"), "unix:/run/redis.sock false u/p@ 3 -");
        assert_eq!(read("redis+sentinel://s1/mymaster"), "s1:26379 false - 0 mymaster");
        assert_eq!(read("redis+sentinel://s1:1/mymaster/2"), "s1:1 false - 2 mymaster");
    }

    #[test]
    fn what_is_no_url_is_refused_without_a_word_of_it() {
        for text in [
            "",
            "secret",
            "http://secret",
            "redis:secret",
            "redis://",
            "redis://secret@h",
            "redis://:@secret",
            "redis://u:secret@h:99999",
            "redis://u:secret@h/x",
            "redis://u:secret@h/1/2",
            "redis://u:se/cret@h",
            "redis://u:secret@h?x=1",
            "redis+sentinel://secret",
            "redis://u:%ffsecret@h",
            "redis://h/9999999",
            "unix://secret",
            "unix://secret/run/redis.sock",
            "unix:///",
            "unix://u:secret@",
            "unix://u:secret@host/run/redis.sock",
            "unix:///run/redis.sock?secret=1",
            "unix:///run/redis.sock?db=secret",
            "unix:///run/secret#1",
        ] {
            let refusal = parse(text).unwrap_err();
            assert!(!format!("{refusal:?}").contains("secret"), "{refusal:?}");
        }
    }
}
