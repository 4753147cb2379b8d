//! What the documents say holds.

mod api;
mod blocks;
mod claims;
mod compare;
mod cost_picture;
mod examples;
mod figures;
mod first_pages;
mod lease_picture;
mod load;
mod pages;
mod program_log;
mod project_pages;
mod readme;
mod recipes;
mod security_page;
mod traces;
