//! HPACK, the compression of header fields in HTTP/2 (RFC 7541).
//!
//! The decoder supports all of HPACK: the static table, the dynamic table and the Huffman code. The encoder keeps no
//! state: it uses the static table only, and strings are not Huffman coded. Names and values are bytes: which of them a
//! message may have is not decided here.

mod dynamic_table;
mod huffman;
#[cfg(test)]
mod oracle_tests;
mod static_table;

pub mod decoder;
pub mod encoder;

/// A block breaks the rules of HPACK.
///
/// The dynamic table is unknown from there on, so the connection must end with the error `COMPRESSION_ERROR` (RFC 9113
/// §4.3).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CompressionError;
