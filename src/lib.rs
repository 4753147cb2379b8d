//! tollgate: a reverse proxy that stops excess traffic at the edge.
//!
//! > A limit is a pure function of *(state, now, cost)* → *(state', decision)*.
//! > Everything else exists to fetch a state, supply the time, and act on the answer.
//!
//! This page is the map; there is no logic here. Imports only go down (`tests/it/structure/imports.rs` fences it):
//!
//! ```text
//!  cli                     what a person types; one function per command
//!  serve                   starts the gateway and controls it
//!  config · proxy · admin  the edges; they never see each other
//!  explain                 what would happen to a request, and why
//!  shared                  what workers, admin and control thread share while running
//!  telemetry               counters, access records, traces, key stats, top keys, history
//!  upstream                the backends
//!  plan                    the compiled, immutable plan; resolve; admission
//!  route · store · http2   whose allowance, which rule · where counters live · HTTP/2 frames and streams
//!  clock · net · counter   what time it is · bytes in and out · what one thread counts (`boxed_cold`: rare futures)
//!  limit · http1           the core: std only; no clock, no I/O, no async, no logging · HTTP/1.1 messages as bytes
//! ```

pub mod admin;
pub mod boxed_cold;
pub mod cli;
pub mod clock;
pub mod config;
pub mod counter;
pub mod explain;
pub mod http1;
pub mod http2;
pub mod limit;
pub mod net;
pub mod plan;
pub mod proxy;
pub mod route;
pub mod serve;
pub mod shared;
pub mod store;
pub mod telemetry;
pub mod upstream;
