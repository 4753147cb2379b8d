//! `[admin]`: the address, the tokens, and what each token may do.

use std::net::SocketAddr;

use super::ListenerTls;

/// `[admin]`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Admin {
    /// The address to listen on.
    pub listen: SocketAddr,
    /// The bearer token with all rights, read from the environment variable `token_env` when the file was loaded.
    pub token: Option<Token>,
    /// `[admin.tokens]` in the order of their names.
    pub tokens: Vec<AdminToken>,
    /// TLS there, with HTTP/1.1 as its only protocol.
    pub tls: Option<ListenerTls>,
}

/// A secret that neither `Debug` nor `Display` shows.
#[derive(Clone, PartialEq, Eq)]
pub struct Token(pub String);

/// An entry of `[admin.tokens]`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AdminToken {
    /// Its name, which is logged with each change.
    pub name: Box<str>,
    /// The secret.
    pub token: Token,
    /// What a request with this token may do.
    pub rights: AdminRights,
}

/// What a request to the admin listener may do.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct AdminRights {
    /// Read everything.
    pub read: bool,
    /// Read and change everything.
    pub operate: bool,
    /// The names of the limits whose keys it may charge.
    pub charge: Vec<Box<str>>,
}

/// The right that a request needs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AdminRight<'a> {
    /// To read.
    Read,
    /// To change anything.
    Operate,
    /// To charge keys of the limit with this name.
    Charge(&'a str),
}

impl Admin {
    /// The scheme of its URLs.
    pub fn scheme(&self) -> &'static str {
        if self.tls.is_some() { "https" } else { "http" }
    }

    /// Whether requests need a token.
    pub fn needs_token(&self) -> bool {
        self.token.is_some() || !self.tokens.is_empty()
    }
}

impl AdminRights {
    /// Those of `token_env`, and of a listener without tokens.
    pub const ALL: Self = Self { read: true, operate: true, charge: Vec::new() };

    /// Whether a request that needs this right is allowed.
    pub fn allow(&self, right: AdminRight<'_>) -> bool {
        self.operate
            || match right {
                AdminRight::Read => self.read,
                AdminRight::Operate => false,
                AdminRight::Charge(limit) => self.charge.iter().any(|name| **name == *limit),
            }
    }
}

impl std::fmt::Debug for Token {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Token(…)")
    }
}

impl std::fmt::Display for AdminRight<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Read => f.write_str("read"),
            Self::Operate => f.write_str("operate"),
            Self::Charge(limit) => write!(f, "charge:{}", limit.escape_debug()),
        }
    }
}
