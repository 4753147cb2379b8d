//! The values of the admin API, `/api/v1/` (docs/api.md): the gateway writes them, and `tollgate top` reads them.
//!
//! For example, `GET limits` is a [`LimitList`](limits::LimitList). The handler fills the type, and top reads the same
//! type: a field that is renamed here has its new name in both. A field that may be absent is an `Option`, and `null`
//! in the JSON. All other fields are there always: a response that lacks one is that of another version.
//!
//! [`operations`] lists what the API does. docs/openapi.json is made from that table and from these types: `INSTA_UPDATE=always`
//! with the test `admin_api` writes it anew.
//!
//! Times are seconds since 1970 UTC by the wall clock as it is set now, with three decimals.

pub mod bans;
pub mod changes;
pub mod explain;
pub mod fleet;
pub mod keys;
pub mod limits;
pub mod operations;
pub mod overrides;
pub mod refusals;
pub mod routes;
pub mod samples;
pub mod servers;
pub mod status;
#[cfg(test)]
mod tests;
pub mod usage;
