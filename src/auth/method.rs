//! How an auth checks credentials, as the file has it.

use std::sync::Arc;

use super::forward::ForwardSettings;
use super::htpasswd::Users;
use super::tokens::TokenSettings;
use crate::route::consumers::Consumers;

/// How a credential is checked.
#[derive(Clone, Debug)]
pub enum AuthMethod {
    /// `api-key`: it is looked up.
    ApiKeys(ApiKeys),
    /// `jwt`: its signature is verified.
    Tokens(Arc<TokenSettings>),
    /// `basic`: the hash of its password is computed.
    Passwords(Arc<Users>),
    /// `forward`: a service decides.
    Forward(Arc<ForwardSettings>),
}

impl AuthMethod {
    /// What its `failures` counts, in words.
    pub fn failures(&self) -> &'static str {
        match self {
            Self::ApiKeys(_) => "wrong API keys",
            Self::Tokens(_) => "wrong tokens",
            Self::Passwords(_) => "wrong passwords",
            Self::Forward(_) => "wrong credentials",
        }
    }
}

/// API keys of a file.
#[derive(Clone, Debug)]
pub struct ApiKeys {
    /// The consumers by key.
    pub consumers: Arc<Consumers>,
    /// A hash of their file.
    pub version: [u8; 32],
}
