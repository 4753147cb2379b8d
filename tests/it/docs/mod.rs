//! What the documents say holds.

mod blocks;
mod examples;
mod pages;
mod program_log;
mod security_page;
