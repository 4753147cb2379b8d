//! HTTP/2 (RFC 9113): connections of clients and to backends, and their streams as requests use them.
//!
//! Frames, HPACK and flow control are this room's own. A head that comes is written as HTTP/1.1 has it and read by the grammar that
//! every head must pass; a head that goes out is such text, too. Bodies are data and trailers. The room has no timers: its callers do.

// An error that was dropped here let requests be smuggled: none is dropped without a word.
#![warn(clippy::let_underscore_must_use)]

pub mod connection;
pub mod flow;
pub mod frame;
pub mod head;
pub mod hpack;
pub mod overhead;
pub mod server_stream;
pub mod traffic;
