//! Why a call has no reply, and why a server is unavailable.

use std::fmt::{self, Display};
use std::io;
use std::time::Duration;

use super::resp::MalformedReply;
use super::server_error::ErrorKind;

/// Why a call has no reply.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CallError {
    /// The server is known to be down: nothing was sent, and the call did not wait.
    #[error("the store is away")]
    Down,
    /// Too many calls are pending: nothing was sent.
    #[error("too many calls wait for the store")]
    Busy,
    /// No reply in time. Whether the call was executed, and charged, is unknown.
    #[error("the store did not answer in time")]
    Timeout,
    /// The connection broke before the reply. Whether the call was executed, and charged, is unknown.
    #[error("the connection to the store broke")]
    Lost,
    /// The server returned an error; nothing was charged.
    #[error("the store refused: {0}")]
    Refused(ErrorKind),
    /// The reply does not have the script's format.
    #[error("the store's answer is not the script's")]
    Unreadable,
}

/// Why a server is unavailable, as text for the log. It contains no password, no key and no text of the server.
#[derive(Debug)]
pub(crate) enum ConnectionTrouble {
    /// The server is unreachable, or the connection broke.
    Connection(io::Error),
    /// The server closed the connection.
    Closed,
    /// The server closed a connection without TLS before it had sent a byte.
    Wordless,
    /// No bytes in time.
    Silence(Duration),
    /// The server returned an error.
    Refused(ErrorKind),
    /// The reply is not valid RESP2.
    Malformed(MalformedReply),
    /// The reply is of an unexpected kind.
    Odd(&'static str),
    /// The host's name is not valid as the name of a certificate.
    CertificateName,
    /// No node returns the cluster's slots; the last node's fault.
    NoMap(Box<ConnectionTrouble>),
    /// No sentinel names the master; the last sentinel's fault.
    NoMaster(Box<ConnectionTrouble>),
}

impl Display for ConnectionTrouble {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            // The system's own errors by their kind: "connection refused", without a number.
            Self::Connection(error) if error.raw_os_error().is_some() => write!(f, "{}", error.kind()),
            Self::Connection(error) => write!(f, "{error}"),
            Self::Closed => f.write_str("it closed the connection"),
            Self::Wordless => {
                f.write_str("it closed the connection without a word; perhaps it wants TLS (`rediss://`)")
            }
            Self::Silence(span) => write!(f, "no answer within {span:?}"),
            Self::Refused(code) => write!(f, "{} ({code})", code.in_words()),
            Self::Malformed(malformed) => write!(f, "it does not speak the protocol of Redis: {malformed}"),
            Self::Odd(what) => f.write_str(what),
            Self::CertificateName => {
                f.write_str("its host is not a name for a certificate: set `server_name`")
            }
            Self::NoMap(last) => write!(f, "no node of the cluster returned the slot map: {last}"),
            Self::NoMaster(last) => write!(f, "no sentinel tells where the master is: {last}"),
        }
    }
}

impl From<io::Error> for ConnectionTrouble {
    fn from(error: io::Error) -> Self {
        Self::Connection(error)
    }
}

impl From<MalformedReply> for ConnectionTrouble {
    fn from(malformed: MalformedReply) -> Self {
        Self::Malformed(malformed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn troubles_are_told_in_words() {
        let refused = ConnectionTrouble::Connection(io::Error::from_raw_os_error(111));
        for (trouble, words) in [
            (refused, "connection refused"),
            (ConnectionTrouble::Silence(Duration::from_millis(20)), "no answer within 20ms"),
            (
                ConnectionTrouble::Refused(ErrorKind::READONLY),
                "it is a replica, which takes no writes (READONLY)",
            ),
            (
                ConnectionTrouble::Malformed(MalformedReply::Mark(b'H')),
                "it does not speak the protocol of Redis: a value begins with byte 72",
            ),
        ] {
            assert_eq!(trouble.to_string(), words);
        }
    }
}
