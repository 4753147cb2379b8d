//! The memory store: exactness, bounds, eviction, and what it keeps of bans and refusals.

mod adopt;
mod bans;
mod eviction;
mod exactness;
mod flood;
mod loom;
mod oracle;
mod params;
mod refusals;
mod shares;

// Files of the store that `loom` builds name this module of the library from the root.
pub(crate) use tollgate::store::ParamsId;
