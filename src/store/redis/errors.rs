//! Why a call has no answer, and why a server can't be asked.

use std::fmt::{self, Display};
use std::io;
use std::time::Duration;

use super::resp::MalformedReply;
use super::server_error::ErrorKind;

/// Why a call has no answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CallError {
    /// The server is known to be away: nothing was sent, and nothing was waited for.
    #[error("the store is away")]
    Down,
    /// Too many calls wait already: nothing was sent.
    #[error("too many calls wait for the store")]
    Busy,
    /// No answer in time. Whether it was decided, and charged, is not known.
    #[error("the store did not answer in time")]
    Timeout,
    /// The connection broke before the answer came. Whether it was decided, and charged, is not known.
    #[error("the connection to the store broke")]
    Lost,
    /// The server refused to decide; nothing was charged.
    #[error("the store refused: {0}")]
    Refused(ErrorKind),
    /// The answer is not of the script's form.
    #[error("the store's answer is not the script's")]
    Unreadable,
}

/// Why a server can't be asked, in words for the log. No password, no key, no text of the server's is in it.
#[derive(Debug)]
pub(crate) enum ConnectionTrouble {
    /// It can't be reached, or the connection broke.
    Connection(io::Error),
    /// It closed the connection.
    Closed,
    /// It closed a connection without TLS before it had said anything.
    Wordless,
    /// Nothing came in time.
    Silence(Duration),
    /// It refuses.
    Refused(ErrorKind),
    /// What it says is not the protocol.
    Malformed(MalformedReply),
    /// It says something else than what the question allows.
    Odd(&'static str),
    /// The name of its certificate, which is its host's, is none.
    CertificateName,
    /// No node tells who has which slot: what the last that was asked said.
    NoMap(Box<ConnectionTrouble>),
    /// No sentinel tells where the master is: what the last that was asked said.
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
            Self::CertificateName => f.write_str("its host is no name for a certificate: set `server_name`"),
            Self::NoMap(last) => write!(f, "none of the cluster's nodes tells who has which keys: {last}"),
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
