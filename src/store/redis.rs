//! The shared store: counters in a Redis or Valkey server, for a fleet of gateways.
//!
//! A worker's [`Client`] first asks what it remembers of refusals; then, of all its servers (`nodes`), the one that has the counters,
//! over the one connection it has there (`link`); and where that can't be asked, what each limit says of it (`unasked`). Counters on
//! several nodes of a cluster are decided in `turns`.
//!
//! In the server, the [`script`] decides by what it is handed ([`call`]), and answers ([`reply`]). One call decides all charges of a
//! request, all or none, on the server's clock, and gives the same answers as the Rust core and
//! [`MemoryStore`](super::memory::MemoryStore) give, to the µs.
//!
//! # What stands in Redis
//! One string for each key, little-endian. Nothing but states is kept there: a call brings the limits' numbers along. Every key
//! expires, a second after its state has come to say nothing.
//!
//! | state of a | bytes | what | of the server's memory |
//! |---|---|---|---|
//! | token bucket, GCRA, leaky bucket | 40 | five doubles: when it stood so (µs), ticks; `unit`, `drain`, `step` of the meter they were counted on | 213 B |
//! | fixed window | 12 | start (double, µs); count (32 bits) | 181 B |
//! | sliding window | 16 | when it was last charged (double, µs); this window's count and the one before's (32 bits each) | 197 B |
//! | sliding log | 48 + 16 an event | see `redis/log.lua` | 325 B + up to 32 B an event |
//!
//! The last column was measured with 200,000 keys of 57 characters in Redis 7.0, all of the server's own included. A value that is no
//! state, as something else wrote it, is taken for a fresh one.
//!
//! # When a limit's numbers change
//! Old and new gateways may run side by side. Which states may share a key is said by the key itself ([`key::Version`]): the format, the
//! algorithm, and for windows and logs the period. So another algorithm or period starts afresh under a key of its own, and neither
//! gateway resets what the other counts. Other numbers of a window or a log change nothing in its state. A bucket's ticks are
//! converted when they are found on another meter, as [`Algorithm::convert`](crate::limit::Algorithm::convert) does it, and written
//! back even by a refusal: otherwise they would go on draining at the old rate, and the wait that was told would be wrong.
//! Gateways that take turns on one bucket at different rates each round it up to whole units: against the client, by less than
//! one unit a turn.
//!
//! # What a call costs the server
//! It reads each key once and writes those that change; a refusal writes nothing (but for `count_denied`), a call that fails has written
//! nothing. A sliding log is read and written in pieces: a request of cost c touches about c events, and each event once more when
//! it expires, so a log of n events may take n steps at once after a lull. None can exceed the server's longest string (512 MiB).

mod backoff;
mod bans;
mod breaker;
pub mod call;
mod client;
mod cluster;
mod counts;
mod cross_slot;
pub mod denial_cache;
mod endpoint;
pub mod errors;
mod fallback;
mod handshake;
pub mod health;
pub mod key;
pub mod nodes;
mod pipeline;
pub mod reply;
pub mod resp;
pub mod script;
mod script_client;
mod sentinel;
pub mod server_error;
pub mod settings;
mod shared;
mod shared_slots;
pub mod slot;
pub mod slots;
mod topology;
mod transport;

pub use client::RedisClient;
pub use counts::RedisCounts;
pub use shared::SharedStore;
