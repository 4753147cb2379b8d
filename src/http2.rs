//! HTTP/2 (RFC 9113): streams of clients and to backends, as requests use them.
//!
//! A head is written down as its fields are kept, and read by the grammar that every head must pass, so nothing that HTTP/2
//! brings (fields of a connection, crumbs of cookies) has a reading of its own. Bodies are data and trailers. Frames, HPACK and
//! flow control are the `h2` crate's; what that crate lets pass is seen in the frames before it reads them.

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
