//! What the clients of all workers have in common.

use std::sync::Arc;
use std::sync::atomic::AtomicU64;

use super::health::ServerHealths;
use super::leases::Leases;
use super::rights::MissingRights;
use super::script::Script;
use crate::store::fleet::Fleet;

/// What the clients of all workers have in common. One for each `[store]` of a process.
#[derive(Debug, Default)]
pub(super) struct ClientContext {
    pub(super) script: Arc<Script>,
    pub(super) health: Arc<ServerHealths>,
    pub(super) rights: Arc<MissingRights>,
    pub(super) fleet: Arc<Fleet>,
    pub(super) leases: Arc<Leases>,
    /// The number of changes of counters by operators: a denial that was cached before one may be wrong.
    pub(super) changes: Arc<AtomicU64>,
}
