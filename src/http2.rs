//! HTTP/2 at the edges (RFC 9113). Within, every request is HTTP/1.1.
//!
//! A stream is a connection of one request: its head is written down as HTTP/1.1 and read again as strictly as any other,
//! its body is framed in chunks, and what comes back is put into frames. So there is one grammar that all requests must
//! pass, one story of a request, and nothing that HTTP/2 brings (fields of a connection, lengths that lie, crumbs of
//! cookies) reaches a backend in a form of its own. Frames, HPACK and flow control are the `h2` crate's.

// An error that was dropped here let requests be smuggled: none is dropped without a word.
#![warn(clippy::let_underscore_must_use)]

pub mod data;
pub mod duplex;
pub mod fragments;
pub mod frames;
pub mod head;
pub mod hpack;
pub mod huffman;
pub mod open_block;
pub mod overhead;
pub mod server_stream;
