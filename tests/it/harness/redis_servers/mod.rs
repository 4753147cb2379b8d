//! Redis servers that the tests start, kill and restart.

pub(crate) mod redis;
pub(crate) mod redis_cluster;
pub(crate) mod redis_sentinel;
pub(crate) mod redis_tls;
pub(crate) mod script;
