//! The machine: programs, containers, load, terminals.

pub(crate) mod busy;
pub(crate) mod container;
pub(crate) mod dockerfile;
pub(crate) mod load;
pub(crate) mod package_builder;
pub(crate) mod promtool;
pub(crate) mod system;
pub(crate) mod terminal;
pub(crate) mod tools;
