//! Backends: balance, health checks, ejection, connections.

mod balance;
mod bounds;
mod breaker;
mod chaos;
mod drain;
mod eject;
mod health;
mod health_grpc;
mod health_requests;
mod http2;
mod http2_faults;
mod http2_stress;
mod in_flight;
mod names;
mod outage;
mod precedence;
mod private;
mod send_proxy_protocol;
mod sessions;
mod slow_start;
mod split;
mod split_cookie;
mod statuses;
mod sticky;
mod tls;
mod unix_sockets;
