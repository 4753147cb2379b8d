//! What the documents say holds.

mod blocks;
mod cost_picture;
mod examples;
mod load;
mod pages;
mod program_log;
mod project_pages;
mod recipes;
mod security_page;
mod traces;
