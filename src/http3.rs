//! HTTP/3 (RFC 9114): frames, field sections and streams. QUIC itself is `quinn`'s.
//!
//! The crate `h3` is not used. Of a pseudo-header field that comes twice it keeps the last, it accepts pseudo-header fields
//! after others, and it holds a HEADERS frame of any length. Here a head is turned into the text of HTTP/1.1, which the
//! gateway's only parser of heads checks, as one of HTTP/2 is.
//!
//! The field sections have no dynamic table (RFC 9204), so no stream waits for another.

pub mod control;
mod error_code;
pub mod frame;
pub mod qpack;
pub mod request;
pub mod stream;
pub mod varint;

pub use error_code::Http3ErrorCode;

#[cfg(test)]
mod tests;
