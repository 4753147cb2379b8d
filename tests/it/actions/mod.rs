//! What routes do with requests: rewrites, redirects, fixed answers, error pages and templates.

mod conditions;
mod error_pages;
mod listeners;
mod redirects;
mod responses;
mod rewrites;
mod templates;
mod usage;
