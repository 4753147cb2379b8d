//! tollgate: a reverse proxy that stops excess traffic at the edge.
//!
//! > A limit is a pure function of *(state, now, cost)* → *(state', decision)*.
//! > Everything else exists to fetch a state, supply the time, and act on the answer.
//!
//! This page is the map; there is no logic here. Imports only go down (`tests/it/imports.rs` fences it):
//!
//! ```text
//!  cli                                what a person types; one function per command
//!  serve                              starts and steers the gateway
//!  config · proxy · admin             the edges; they never see each other
//!  explain                            says why: of a request as a person describes it
//!  shared                             what workers, admin and control thread share while running
//!  telemetry                          what happened: counters and access records
//!  upstream                           the backends
//!  gateway                            the waist: the compiled, immutable plan; from a request to its charges
//!  route · store · http2              whose allowance, which rule · where counters live · streams of HTTP/2
//!  clock · socket · counter · aside   what time it is · bytes in and out · what one thread counts · rare futures
//!  limit · http1                      the core: std only; no clock, no I/O, no async, no logging · HTTP/1.1 messages as bytes
//! ```

pub mod admin;
pub mod aside;
pub mod cli;
pub mod clock;
pub mod config;
pub mod counter;
pub mod explain;
pub mod gateway;
pub mod http1;
pub mod http2;
pub mod limit;
pub mod proxy;
pub mod route;
pub mod serve;
pub mod shared;
pub mod socket;
pub mod store;
pub mod telemetry;
pub mod upstream;
