//! The data plane: takes requests, asks the plan and the store, forwards or refuses.
//!
//! One worker is one thread: its own listeners, its own connections to backends, its own counters. Nothing in the
//! request path is shared but the store and the plan.
//!
//! A request's way: [`listen`] → `handshake` where TLS is spoken → `connection` (waits at the `reader` for a head) → `service` (the story: what is it resolved to,
//! what do the limits say) → `forward` (`headers`, `upload`, `download`) or `refuse` → `writer`; `turn` and
//! `accounting` count and log.

// An error that was dropped here let requests be smuggled: none is dropped without a word.
#![warn(clippy::let_underscore_must_use)]

mod accept;
mod accounting;
mod answer;
mod body_fault;
mod buffers;
mod clerk;
mod connection;
mod cors;
mod date;
mod delivery;
mod descriptors;
mod download;
mod drain;
mod echo;
#[cfg(test)]
mod fixtures;
mod forward;
mod grpc;
mod handshake;
mod headers;
mod http2;
mod idle_list;
mod lifetime;
mod linger;
mod listen;
mod next_action;
mod peer;
pub mod preamble;
mod presence;
mod proxied;
mod reader;
mod recorder;
mod refuse;
mod respond;
#[cfg(test)]
mod segmentation;
mod service;
mod session;
mod trace;
mod tracer;
mod tunnel;
mod turn;
mod upload;
mod witness;
mod worker;
mod writer;

pub use accept::run;
pub use listen::{Listeners, bind, take};
