//! The real program, and the files that it is given.

pub(crate) mod all_versions;
pub(crate) mod api;
pub(crate) mod binary;
pub(crate) mod config;
pub(crate) mod config_folder;
pub(crate) mod fake_clock;
pub(crate) mod fleet;
pub(crate) mod fleet_config;
pub(crate) mod gateway;
mod output_lines;
pub(crate) mod ports;
pub(crate) mod upgraded;
