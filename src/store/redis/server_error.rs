//! An error reply of a server, of which only the error code is kept.
//!
//! The rest of the line may name keys or users, so it is discarded.

use std::fmt;
use std::sync::Arc;

use super::settings::RedisServer;
use super::slot::HashSlot;

/// An error reply of a server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ServerError {
    /// The server does not know the script, or has lost it.
    NoScript,
    /// Another node has the slot now.
    Moved(HashSlot, ClusterRedirect),
    /// Another node is about to take the slot over, and has this key already.
    Ask(ClusterRedirect),
    /// Anything else.
    Other(ErrorKind),
}

/// A node named in a redirect.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClusterRedirect {
    /// `None`: the host of the node that redirects.
    host: Option<Arc<str>>,
    port: u16,
}

impl ServerError {
    /// Reads an error line, without its first byte and its line end.
    pub(super) fn read(line: &[u8]) -> Self {
        let text = String::from_utf8_lossy(line);
        let (word, rest) = text.split_once(' ').unwrap_or((&text, ""));
        let elsewhere = || {
            let (slot, redirect) = rest.split_once(' ')?;
            Some((HashSlot::new(slot.parse().ok()?)?, ClusterRedirect::read(redirect)?))
        };
        match (word, elsewhere()) {
            ("NOSCRIPT", _) => Self::NoScript,
            ("MOVED", Some((slot, redirect))) => Self::Moved(slot, redirect),
            ("ASK", Some((_, redirect))) => Self::Ask(redirect),
            // Redis 6.2 wraps errors of commands in a script: `ERR Error running script (…): …: -OOM command …`.
            ("ERR", _) => {
                Self::Other(ErrorKind::read(rest.split_once(": -").map_or(word, |(_, inner)| inner)))
            }
            _ => Self::Other(ErrorKind::read(word)),
        }
    }
}

impl ClusterRedirect {
    /// Reads `host:port`; the host may be missing, or be an IPv6 address without brackets.
    fn read(redirect: &str) -> Option<Self> {
        let (host, port) = redirect.rsplit_once(':')?;
        let host = Some(host).filter(|host| !host.is_empty()).map(Arc::from);
        Some(Self { host, port: port.trim_end().parse().ok()? })
    }

    /// The node, as named by `teller`.
    pub(super) fn seen_from(&self, teller: &RedisServer) -> RedisServer {
        RedisServer { host: self.host.as_ref().unwrap_or(&teller.host).clone(), port: self.port }
    }
}

/// The error code, such as `READONLY`: at most 15 capital letters, digits and `_`; any other is `ERR`.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct ErrorKind([u8; 15]);

impl ErrorKind {
    /// The server is a replica that accepts no writes.
    pub(super) const READONLY: Self = Self(*b"READONLY\0\0\0\0\0\0\0");
    /// Another node has the slot.
    pub(super) const MOVED: Self = Self(*b"MOVED\0\0\0\0\0\0\0\0\0\0");
    /// No node has the slot.
    pub(super) const CLUSTERDOWN: Self = Self(*b"CLUSTERDOWN\0\0\0\0");
    /// The user may not do this.
    pub(super) const NOPERM: Self = Self(*b"NOPERM\0\0\0\0\0\0\0\0\0");
    /// The script is lost.
    pub(super) const NOSCRIPT: Self = Self(*b"NOSCRIPT\0\0\0\0\0\0\0");
    /// Any error without a code of its own.
    pub(super) const ERR: Self = Self(*b"ERR\0\0\0\0\0\0\0\0\0\0\0\0");

    fn read(text: &str) -> Self {
        let word = text.split(' ').next().unwrap_or_default().as_bytes();
        let is_code = |byte: &u8| matches!(byte, b'A'..=b'Z' | b'0'..=b'9' | b'_');
        let mut code = [0; 15];
        match code.get_mut(..word.len()) {
            Some(letters) if !word.is_empty() && word.iter().all(is_code) => letters.copy_from_slice(word),
            _ => return Self::ERR,
        }
        Self(code)
    }

    /// The code.
    pub fn as_str(&self) -> &str {
        let end = self.0.iter().position(|byte| *byte == 0).unwrap_or(self.0.len());
        // Only ASCII is kept.
        std::str::from_utf8(self.0.get(..end).unwrap_or_default()).unwrap_or_default()
    }

    /// Whether only this call is refused, since its key has the wrong type or is moving to another node: the error is
    /// no evidence about other calls.
    pub(super) fn is_of_the_call(self) -> bool {
        matches!(self.as_str(), "WRONGTYPE" | "TRYAGAIN" | "CROSSSLOT" | "MOVED" | "NOSCRIPT")
    }

    /// The meaning of a code that does not explain itself.
    pub(super) fn in_words(self) -> &'static str {
        match self.as_str() {
            "READONLY" => "it is a replica, which takes no writes",
            "OOM" => "its memory is full",
            "LOADING" => "it is still loading its data",
            "NOAUTH" => "it wants a password",
            "WRONGPASS" => "the user or the password is wrong",
            "NOPERM" => "the user may not run the commands or use the keys it takes",
            "MISCONF" => "it can't save its data to disk, and so takes no writes",
            "NOREPLICAS" => "it has too few replicas to take writes",
            "CLUSTERDOWN" => "the cluster does not serve the slot",
            "MASTERDOWN" => "its master is away",
            "BUSY" => "a script runs for too long",
            "CROSSSLOT" | "MOVED" => "it is a node of a cluster: give the cluster's nodes as a list",
            _ => "it refuses",
        }
    }
}

impl fmt::Display for ErrorKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl fmt::Debug for ErrorKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_errors_line_comes_down_to_its_code_word() {
        for (line, code) in [
            ("READONLY You can't write against a read only replica.", "READONLY"),
            (
                "ERR Error running script (call to f_1): @user_script:1: @user_script: 1: -OOM command not allowed",
                "OOM",
            ),
            ("ERR unknown command 'EVALSHA'", "ERR"),
            ("LOADING", "LOADING"),
            ("", "ERR"),
            ("what is this", "ERR"),
            ("SIXTEEN_LETTERS_", "ERR"),
            ("MOVED 16384 a:1", "MOVED"),
            ("ASK 1 nowhere", "ASK"),
        ] {
            let ServerError::Other(found) = ServerError::read(line.as_bytes()) else { panic!("{line}") };
            assert_eq!(found.as_str(), code, "{line}");
        }
        assert_eq!(ServerError::read(b"NOSCRIPT No matching script."), ServerError::NoScript);
        let codes = [
            ErrorKind::READONLY,
            ErrorKind::MOVED,
            ErrorKind::CLUSTERDOWN,
            ErrorKind::NOSCRIPT,
            ErrorKind::NOPERM,
            ErrorKind::ERR,
        ];
        assert!(codes.iter().all(|code| ErrorKind::read(code.as_str()) == *code));
    }

    #[test]
    fn another_node_is_named_by_the_asked_one() {
        let asked = RedisServer { host: "10.0.0.1".into(), port: 1 };
        for (line, expected) in [
            ("ASK 3999 127.0.0.1:6381", "127.0.0.1:6381"),
            ("ASK 3999 :6381", "10.0.0.1:6381"),
            ("ASK 3999 ::1:6381", "[::1]:6381"),
            ("ASK 3999 redis.internal:6381", "redis.internal:6381"),
        ] {
            let ServerError::Ask(redirect) = ServerError::read(line.as_bytes()) else { panic!("{line}") };
            assert_eq!(redirect.seen_from(&asked).to_string(), expected);
        }
        assert!(
            matches!(ServerError::read(b"MOVED 3999 a:1"), ServerError::Moved(slot, _) if Some(slot) == HashSlot::new(3_999))
        );
    }
}
