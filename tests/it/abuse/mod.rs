//! Attacks on resources: floods, slow peers, invented keys.

mod connections;
mod faults;
mod fields;
mod hints;
mod http2;
mod keys;
mod memory;
mod pages;
mod slow_readers;
