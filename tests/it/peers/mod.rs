//! Tests beside programs of others that `make test` does not install: `make test-peers` runs them.

mod client_libraries;
mod openapi;
