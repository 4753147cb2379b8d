//! The Lua twins: their text, and the numbers that they are handed.
//!
//! Beside each algorithm's file stands its twin, which decides the same in a script of Redis: whole numbers in doubles, pure
//! functions, no call of Redis. Rust works out what takes wider numbers (the meter of a rate) and hands over the results.

use super::Algorithm;

/// What stands above all modules: constants and functions that all share.
pub const SHARED: &str = include_str!("verdict.lua");

/// The modules: their names, and the text of a function's body that returns them.
pub fn modules() -> impl Iterator<Item = (&'static str, &'static str)> {
    let meter = ("meter", include_str!("meter.lua"));
    let grant = ("grant", include_str!("grant.lua"));
    [meter].into_iter().chain(Algorithm::MODULES.iter().copied()).chain([grant])
}

/// An algorithm as its twin knows it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LuaParams {
    /// One of [`modules`].
    pub module: &'static str,
    /// What the module's function `limit` is given, all below 2^53; the last may be of no use to it.
    pub numbers: [u64; 5],
}
