//! HTTP/1.1 messages as bytes (RFC 9110, RFC 9112): what a head says, where a body ends. Pure: no sockets, no waiting.
//!
//! Heads are read where they stand: a parsed head borrows the bytes that came, and its fields are places in them. So a
//! proxied head is copied once, from one socket's buffer to the other's, and nothing is allocated for it.
//!
//! Requests are read strictly, because whatever has two readings is the raw material of request smuggling; of responses
//! only what is ambiguous is refused, since backends are ours.

// An error that was dropped here let requests be smuggled: none is dropped without a word.
#![warn(clippy::let_underscore_must_use)]

pub mod body;
pub mod chunks;
pub mod fields;
pub mod login;
pub mod mentioned;
pub mod name;
pub mod request;
pub mod response;
pub mod scanner;
pub mod syntax;
pub mod trailers;
