//! TLS on the side of the client.

mod alpn;
mod certificates;
mod clients;
mod handshake;
mod policy;
mod reload;
mod traffic;
