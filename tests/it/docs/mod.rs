//! What the documents say holds.

mod examples;
mod security_page;
