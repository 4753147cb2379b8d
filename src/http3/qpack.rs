//! QPACK, the compression of header fields in HTTP/3 (RFC 9204), without a dynamic table: neither side may use one here.
//!
//! The encoder uses the static table, and strings are not Huffman coded, as that of HPACK.

mod decoder;
mod encoder;
mod static_table;

pub use decoder::{DecompressionFailed, decode};
pub use encoder::{put_response, put_trailers};

#[cfg(test)]
mod tests;
