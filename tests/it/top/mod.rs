//! `tollgate top`, through the real binary.

mod command;
mod hostile;
mod terminal;
