//! What the documents say holds.

mod blocks;
mod examples;
mod pages;
mod security_page;
