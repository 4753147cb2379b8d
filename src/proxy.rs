//! The data plane: receives requests, asks the plan and the store, forwards or refuses.
//!
//! One worker is one thread: its own listeners, its own connections to backends, its own counters. On the request path,
//! workers share only the store and the plan.
//!
//! A request's path: [`listen`] → `connection` (TLS handshake; waits at the `request_reader` for a head) →
//! `service` (resolves the request and checks the limits) → `forward` (`upstream_head`, `request_body`,
//! `response_body`) or `local_response_writer` → `response_writer`; `request_context` and `accounting` count and log.

// A dropped error once allowed request smuggling, so no error is dropped silently.
#![warn(clippy::let_underscore_must_use)]

mod accept;
mod accounting;
mod admin_commands;
mod buffer_pool;
mod connection;
mod connection_handle;
mod consumer_headers;
mod cors;
mod credentials;
mod decide;
mod drain;
mod echo;
mod fd_reserve;
mod fixed_response;
#[cfg(test)]
mod fixtures;
mod forward;
mod forward_request;
mod grpc;
mod http2;
mod idle_list;
mod linger;
mod listen;
mod local_response;
mod local_response_writer;
mod log_capture;
mod log_sampling;
mod next_action;
mod noted_values;
mod passing_fields;
mod peer;
pub mod proxy_protocol;
mod ratelimit_fields;
mod read_content;
mod refusal_sample;
mod refusal_template;
mod request_body;
mod request_context;
mod request_handler;
mod request_reader;
mod respond;
mod response_body;
mod response_fields;
mod response_options;
mod response_writer;
#[cfg(test)]
mod segmentation;
mod service;
mod session;
mod settlement;
mod trace;
mod tracer;
mod trailer_rules;
mod tunnel;
mod undecided;
mod upstream_head;
mod worker;

pub use accept::run;
pub use listen::{Listeners, bind, take};
