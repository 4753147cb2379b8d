//! What is known of a request, and how it is counted, logged, traced and settled.
//!
//! A `RequestContext` is begun with the head and is filled on the way. When it is dropped, for whatever reason, the request
//! is counted and logged once. For example, a client that leaves in the middle of a response drops the future of its
//! request, and the access log has its line with the bytes that were sent until then.

pub(super) mod access_record;
pub(super) mod accounting;
pub(super) mod log_capture;
pub(super) mod noted_values;
pub(super) mod policy_numbers;
pub(super) mod ratelimit_fields;
pub(super) mod refusal_sample;
pub(super) mod request_context;
pub(super) mod settlement;
mod shadow;
pub(super) mod trace;
pub(super) mod usage;
