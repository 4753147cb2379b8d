//! The command line, through the real binary.

mod check;
mod explain;
mod explain_agrees;
mod files;
mod import;
mod live;
mod reload;
mod shell;
mod usage;
