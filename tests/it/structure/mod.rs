//! Rules for the sources, read from the sources.

mod imports;
mod names;
mod rooms;
mod waits;
