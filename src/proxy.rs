//! The data plane: receives requests, asks the plan and the store, forwards or refuses.
//!
//! One worker is one thread: its own listeners, its own connections to backends, its own counters. On the request path,
//! workers share only the store and the plan.
//!
//! Its rooms, from top to bottom; each imports from those below it only:
//!
//! | room | |
//! |---|---|
//! | `connection` | a client's connection, from accept to close |
//! | `decisions` | what other proxies and applications ask |
//! | `decide` | the steps of a request |
//! | `forward` | to the backend and back |
//! | `answer` | responses of the gateway itself |
//! | `record` | what is known of a request, counted and logged |
//! | `session` | the client's side of a request, for both versions of HTTP |
//! | `worker` | a thread, and what it keeps for its connections |

// A dropped error once allowed request smuggling, so no error is dropped silently.
#![warn(clippy::let_underscore_must_use)]

mod answer;
mod connection;
mod decide;
mod decisions;
#[cfg(test)]
mod fixtures;
mod forward;
mod record;
#[cfg(test)]
mod segmentation;
mod session;
mod worker;

pub use connection::accept::run;
pub use connection::proxy_protocol;
#[cfg(feature = "http3")]
pub use worker::datagrams::{QuicListener, bind_datagrams, datagrams_fault, shared_datagrams};
pub use worker::listen::{Listeners, bind, take};
pub use worker::worker_listeners::WorkerListeners;
