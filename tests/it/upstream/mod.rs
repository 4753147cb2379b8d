//! Backends: balance, health checks, ejection, connections.

mod balance;
mod bounds;
mod eject;
mod health;
mod http2;
mod http2_faults;
mod names;
mod outage;
mod private;
mod tls;
