//! Limits: the algorithms by themselves, and what clients see of limits through the gateway.

mod answers;
mod ban;
mod bounds;
mod charge;
mod concurrency;
mod convert;
mod definitions;
mod exact;
mod grant;
mod keys;
mod leases;
mod listed_policies;
mod packed;
mod promises;
mod repeated;
mod resume;
mod seed;
mod settle;
mod tiers;
mod traces;
mod vectors;

// Files of the store that `store::loom` builds name these of the library from the root.
pub(crate) use tollgate::limit::{Packed, units};
