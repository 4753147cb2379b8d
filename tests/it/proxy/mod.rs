//! Requests and responses on their way through the gateway.

mod behind_proxies;
mod client_address;
mod connection_life;
mod connections;
mod cors;
mod cut_responses;
mod every_answer;
mod forward;
mod headers;
mod identity;
mod integrity;
mod loops;
mod max_duration;
mod max_duration_waits;
mod passage;
mod proxy_protocol;
mod redirect;
mod request_ids;
mod retry;
mod statuses;
mod streaming;
mod unidentified;
mod upgrade;
