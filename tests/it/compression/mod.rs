//! Compression of responses: `compress`.

mod fields;
mod integrity;
mod servers;
mod settings;
mod streams;

use crate::harness::{Backend, everything_to};

/// The codings, best first.
const CODINGS: [&str; 3] = ["zstd", "br", "gzip"];

/// A gateway's file with `compress` and further lines of the route.
fn compressing(backend: &Backend, compress: &str, rest: &str) -> String {
    everything_to(backend, &format!("compress = {compress}\n{rest}\n[admin]\nlisten = \"127.0.0.1:0\"\n"))
}

/// Text that compresses.
fn text(length: usize) -> Vec<u8> {
    (0..)
        .flat_map(|line: u32| format!("line {line} of {}\n", line.wrapping_mul(2_654_435_761)).into_bytes())
        .take(length)
        .collect()
}
