//! Tests beside programs of others that `make test` does not install: `make test-peers` runs them.

mod acme;
mod asking;
mod axe;
mod client_libraries;
mod editor;
mod envoy_calls;
mod envoy_limits;
mod mcp;
mod mirroring;
mod openapi;
mod published;
mod websocket;

use std::net::SocketAddr;

use crate::harness::{Front, pages};

/// Envoy with each action of its rate limit filter (`tests/peers/envoy.yaml`), whose filter has these lines too.
fn envoy_of(shop: SocketAddr, service: SocketAddr, filter: &[&str]) -> Front {
    let yaml = std::fs::read_to_string(pages::root().join("tests/peers/envoy.yaml")).expect("it is there");
    Front::envoy_file(|address| {
        let ports = [("LISTEN", address), ("SHOP", shop), ("TOLLGATE", service)];
        let yaml = ports.into_iter().fold(yaml.clone(), |yaml, (name, address)| {
            yaml.replace(&format!("port_value: {name}"), &format!("port_value: {}", address.port()))
        });
        yaml.replace("FILTER\n", &(filter.join("\n              ") + "\n"))
    })
}
