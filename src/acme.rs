//! Certificates from an authority (ACME, RFC 8555): what they are, when they are due, and how they are ordered.
//!
//! Nothing here decides when something happens: `serve::acme` does. For example, it finds by [`schedule`] that the
//! certificate for `example.com` is due, makes an [`order`], publishes the answers to its [`challenges`], and puts the
//! new certificate into the [`live`] one, which handshakes read, and into the [`state`] directory.

pub mod certificate;
pub mod challenges;
pub mod http;
pub mod live;
pub mod order;
pub mod renewal_info;
pub mod runtime;
pub mod schedule;
pub mod sealed;
pub mod settings;
pub mod state;
