//! HTTP/2 (RFC 9113): connections of clients and to backends, and their streams as requests use them.
//!
//! Frames, HPACK and flow control are implemented here. A received head is rewritten as HTTP/1.1 and parsed by the same
//! grammar as every head. A head to be sent is encoded field by field ([`head_sink`]). Bodies are data and trailers. This
//! module has no timers: its callers have them.
//!
//! For example, a request comes as a HEADERS frame. The connection decodes its block into `GET /a HTTP/1.1` and lines, and
//! a task gets the stream. The response of its backend becomes a block and DATA frames in the buffer of the connection,
//! within the window that the client has opened, and one task writes that buffer to the socket.

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
pub mod traffic;
