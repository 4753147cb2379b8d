//! What stands behind the gateway, or in its way.

pub(crate) mod acme_server;
pub(crate) mod backend;
pub(crate) mod collector;
pub(crate) mod drop_proxy;
pub(crate) mod front;
pub(crate) mod holding;
pub(crate) mod pebble;
pub(crate) mod servers;
pub(crate) mod unix_relay;
