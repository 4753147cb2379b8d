//! What the documents say holds.

mod blocks;
mod consumers_page;
mod cost_picture;
mod examples;
mod pages;
mod program_log;
mod security_page;
mod traces;
