//! Responses of the gateway itself: refusals, redirects, error pages, preflights.
//!
//! A caller says what to write, and `respond` sends it in the form that the client needs. For example, a refusal is the
//! same problem document for all clients, but a gRPC call gets a status of gRPC, and a HEAD gets no body.

pub(super) mod cors;
pub(super) mod drain;
pub(super) mod fixed_response;
pub(super) mod local_response;
pub(super) mod local_response_writer;
pub(super) mod next_action;
pub(super) mod respond;
pub(super) mod response_fields;
pub(super) mod usage;
