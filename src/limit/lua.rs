//! The Lua implementations: their text, and their parameters.
//!
//! Beside each algorithm's file is its Lua implementation, which decides the same in a script of Redis: whole numbers
//! in doubles, pure functions, no call of Redis. Rust computes the parts that need wider numbers (the meter of a rate)
//! and passes the results.

use super::Algorithm;
use super::units::Micros;

/// The part before all modules: constants and functions that all share.
pub const SHARED: &str = include_str!("verdict.lua");

/// The modules: their names, and the text of a function body that returns them.
pub fn modules() -> impl Iterator<Item = (&'static str, &'static str)> {
    let meter = ("meter", include_str!("meter.lua"));
    let grant = ("grant", include_str!("grant.lua"));
    [meter].into_iter().chain(own_modules()).chain([grant])
}

/// The Lua implementation of an algorithm with its parameters.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LuaParams<'a> {
    /// One of [`modules`].
    pub module: &'static str,
    /// The arguments of the module's function `limit`, all below 2^53; the last ones may be unused.
    pub params: [u64; 5],
    /// The last argument, if there are any: a string of doubles.
    pub spans: &'a [Micros],
}

/// The modules of the algorithms, each once: fixed windows of a calendar share one with the others.
fn own_modules() -> impl Iterator<Item = (&'static str, &'static str)> {
    let all = Algorithm::MODULES;
    let is_first = move |index: usize| all[..index].iter().all(|(name, _)| *name != all[index].0);
    (0..all.len()).filter(move |index| is_first(*index)).map(|index| all[index])
}
