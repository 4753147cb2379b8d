//! The command line, through the real binary.

mod check;
mod explain;
mod explain_agrees;
mod files;
mod import;
mod init;
mod live;
mod policy_agrees;
mod policy_tests;
mod reload;
mod shell;
mod usage;
