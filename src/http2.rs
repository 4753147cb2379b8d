//! HTTP/2 (RFC 9113): connections of clients and to backends, and their streams as requests use them.
//!
//! Frames, HPACK and flow control are implemented here. A received head is rewritten as HTTP/1.1 and parsed by the same
//! grammar as every head; a head to be sent is given as such text, too. Bodies are data and trailers. This module has
//! no timers: its callers have them.

// A dropped error once allowed request smuggling, so no error is dropped silently.
#![warn(clippy::let_underscore_must_use)]

pub mod connection;
pub mod flow;
pub mod frame;
pub mod head;
pub mod head_sink;
pub mod hpack;
pub mod overhead;
pub mod reset_rate;
pub mod server_stream;
pub mod traffic;
