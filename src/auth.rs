//! Credentials that have to be verified: tokens, by the signature of their issuer. API keys are looked up instead:
//! [`crate::route::consumers`].
//!
//! A worker never computes a signature of a public key. A token that was verified is remembered by a keyed hash, so that
//! the next request with it costs a look-up.

pub mod fetch;
pub mod issuer;
pub mod jwt;
pub mod remembered;
pub mod tokens;
pub mod verification_pool;
