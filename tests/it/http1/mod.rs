//! HTTP/1.1: framing, grammar, smuggling, and the same reading under every cut.

mod framing;
mod grammar;
mod oracle_requests;
mod oracle_responses;
mod pipeline;
mod segmentation;
mod segmentation_wire;
mod smuggling;
mod vectors;

// `harness::corpus` is also part of the unit tests of `proxy`, where the codec stands at the root.
pub(crate) use tollgate::http1::{chunks, fields, request, response, scanner, trailers};
