//! tollgate: a reverse proxy that stops excess traffic at the edge.
//!
//! > A limit is a pure function of *(state, now, cost)* → *(state', decision)*.
//! > Everything else exists to fetch a state, supply the time, and act on the answer.
//!
//! This page is the map; there is no logic here. Imports only go down (`tests/it/structure/imports.rs` fences it):
//!
//! ```text
//!  cli                     the command line; one function per command
//!  serve                   starts the gateway and controls it
//!  config · proxy · admin  the edges; none imports another
//!  suggest · witness       limits proposed from the requests of a log · requests that ought to reach a route
//!  policy_test             tests of limits: requests in virtual time, and the answers that they are to get
//!  import                  configurations of other programs as TOML
//!  explain · replay        the route and limits of a request, with reasons · a log in virtual time
//!  shared                  state shared by workers, admin and control thread
//!  telemetry               counters, access records, traces, key stats, top keys, history
//!  upstream                the backends
//!  plan                    the compiled plan; resolve; admission
//!  auth · acme · http3     credentials that have to be verified: tokens, passwords, sessions that a service knows ·
//!                          certificates that an authority issues · HTTP/3 frames and streams
//!  route · store · http2   routes and keys · counters · HTTP/2 frames and streams (`log_reader`: requests of access logs)
//!  clock · net · counter   the clock (`time_zones`: calendars) · sockets and TLS · counters of one thread
//!                          (`boxed_cold`: rare futures; `labels`: enums whose variants have a word each;
//!                          `admin_api`: the values of the admin API; `rate_limit_service`: Envoy's messages)
//!  limit · http1 · measure the core: only std; no clock, no I/O, no async, no logging · HTTP/1.1 messages as bytes ·
//!                          values of a body that streams past (both with crates, and without I/O)
//! ```

pub mod acme;
pub mod admin;
pub mod admin_api;
pub mod auth;
pub mod boxed_cold;
pub mod cli;
pub mod clock;
pub mod config;
pub mod counter;
pub mod explain;
pub mod http1;
pub mod http2;
#[cfg(feature = "http3")]
pub mod http3;
pub mod import;
pub mod labels;
pub mod limit;
pub mod log_reader;
pub mod measure;
pub mod net;
pub mod plan;
pub mod policy_test;
pub mod proxy;
pub mod rate_limit_service;
pub mod replay;
pub mod route;
pub mod serve;
pub mod shared;
pub mod store;
pub mod suggest;
pub mod telemetry;
pub mod time_zones;
pub mod upstream;
pub mod witness;
