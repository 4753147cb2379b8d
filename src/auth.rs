//! Credentials that have to be verified: tokens, by the signature of their issuer, passwords, and requests that
//! a service decides about. API keys are looked up instead: [`crate::route::consumers`].
//!
//! A worker never computes a signature of a public key, nor the hash of a password. A credential that was verified is
//! remembered by a keyed hash, so that the next request with it costs a look-up.

pub mod fetch;
pub mod forward;
pub mod htpasswd;
pub mod issuer;
pub mod jwt;
pub mod method;
pub mod password_lanes;
pub mod passwords;
pub mod remembered;
pub mod runtime;
pub mod tokens;
pub mod verification_pool;
