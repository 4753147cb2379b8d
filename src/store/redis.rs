//! The shared store: counters in a Redis or Valkey server, for a fleet of gateways.
//!
//! So far what is said to the server and how its answer is read, as pure functions ([`call`], [`reply`]); and the [`script`] that
//! decides there, on the server's clock, all charges of a request, all or none: the same decisions to the µs as the Rust core's.
//!
//! # What stands in Redis
//! One string for each key. Nothing but states is kept there: a call brings the limits' numbers along. Every key expires, a
//! second after its state has come to say nothing. Doubles and integers are little-endian.
//!
//! | state of a | bytes | what |
//! |---|---|---|
//! | token bucket, GCRA, leaky bucket | 40 | five doubles: when it stood so (µs), ticks, and `unit`, `drain`, `step` of the meter they were counted on |
//! | fixed window | 12 | start (double, µs), count (32 bits) |
//! | sliding window | 16 | last charged (double, µs), this window's count and the one before's (32 bits each) |
//! | sliding log | 48 + 16 an event | see `redis/log.lua` |
//!
//! With key and expiry a bucket takes some 170 B of Redis' memory, under a key of 60 characters.
//!
//! # When a limit's numbers change
//! Old and new gateways may run side by side. Which states may share a key is said by the key itself ([`key::Version`]): the format, the
//! algorithm, and for windows and logs the period. Another algorithm or another period starts afresh, under a key of its own, so
//! neither gateway overwrites the other's counters. Other numbers of a window or log change nothing in its state. A
//! bucket's ticks are converted when they are found on another meter, as [`Algorithm::convert`](crate::limit::Algorithm::convert)
//! does it, and written back even by a refusal. Gateways that take turns on one bucket with different rates each round it up to whole
//! units, against the client, by less than one unit a turn.
//!
//! # What it costs the server
//! A call reads each key once and writes those that change. A sliding log is read and written in pieces, so that a request of cost c
//! touches about c events, and each event once more when it expires: a log of n events may cost n steps at once after a lull. No
//! log can exceed the longest string of the server (512 MiB by default).

pub mod call;
pub mod key;
pub mod reply;
pub mod script;
