//! The shared store: counters in a Redis or Valkey server, for a fleet of gateways.
//!
//! A worker's [`RedisClient`] first looks in its cache of denials (`denial_cache`). Then it calls, of all its servers
//! (`nodes`), the one that has the counters, over the worker's one connection to it (`pipeline`). If that server is
//! unavailable, each limit's `on_error` decides (`fallback`). Counters on several nodes of a cluster are decided by
//! `cross_slot`.
//!
//! In the server, the [`script`] decides by its arguments ([`call`]), and replies ([`reply`]). One call decides all
//! charges of a request, all or none, on the server's clock. Its decisions equal those of the Rust core and
//! [`MemoryStore`](super::memory::MemoryStore), to the µs.
//!
//! # Data in Redis
//!
//! One string for each key, little-endian. Only states are stored: a call contains the limits' parameters. Every key
//! expires, a second after its state equals that of an unused counter.
//!
//! | state of a | bytes | what | of the server's memory |
//! |---|---|---|---|
//! | token bucket, GCRA, leaky bucket | 40 | five doubles: time of the state (µs), ticks; `unit`, `drain`, `step` of the meter of the ticks | 213 B |
//! | fixed window | 12 | start (double, µs); count (32 bits) | 181 B |
//! | sliding window | 16 | time of the last charge (double, µs); this window's count and the one before's (32 bits each) | 197 B |
//! | sliding log | 48 + 16 an event | see `redis/log.lua` | 325 B + up to 32 B an event |
//!
//! The last column was measured with 200,000 keys of 57 characters in Redis 7.0, including all of the server's own
//! overhead. A value that is not a state, since another program wrote it, is treated as an unused counter.
//!
//! # Changes of a limit's parameters
//!
//! Old and new gateways may run side by side. The key itself determines which states may share it ([`key::Version`]):
//! the format, the algorithm, and for windows and logs the period. So another algorithm or period starts afresh under a
//! key of its own, and neither gateway resets the other's counters. Other parameters of a window or a log change
//! nothing in its state. A bucket's ticks on another meter are converted when they are read, as
//! [`Algorithm::convert`](crate::limit::Algorithm::convert) does, and written back even by a refusal: otherwise they
//! would go on draining at the old rate, and the wait sent to the client would be wrong. Gateways that use one bucket
//! alternately at different rates each round it up to whole ticks: against the client, by less than one tick each time.
//!
//! # Costs of a call for the server
//!
//! A call reads each key once and writes those that change. A refusal writes nothing (except for `count_denied`); a
//! call that fails has written nothing. A sliding log is read and written in pieces: a request of cost c touches about
//! c events, and each event once more when it expires, so a log of n events may take n steps at once after a lull. No
//! log can exceed the server's longest string (512 MiB).

mod acme_values;
mod adaptive;
mod ban_list;
mod bans;
mod breaker;
pub mod call;
mod client;
mod client_context;
mod cluster;
mod cross_slot;
pub mod denial_cache;
mod endpoint;
pub mod errors;
mod fallback;
mod fleet_list;
mod fleet_member;
mod handshake;
pub mod health;
pub mod key;
mod leased;
mod leased_key;
mod leases;
pub mod nodes;
mod override_list;
mod pipeline;
mod renewal;
pub mod reply;
mod reporter;
pub mod resp;
mod rights;
pub mod script;
mod script_client;
pub mod server_error;
pub mod settings;
mod shared;
pub mod slot;
pub mod slots;
mod topology;
mod transport;
mod turn;
mod usage;
mod written_usage;

pub use client::RedisClient;
pub use reporter::PlaceLease;
pub use script_client::RedisCounts;
pub use shared::SharedStore;
