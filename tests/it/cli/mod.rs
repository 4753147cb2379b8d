//! The command line, through the real binary.

mod explain;
mod explain_agrees;
mod live;
mod reload;
mod usage;
