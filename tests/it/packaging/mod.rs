//! What a release consists of, and what makes it.

mod crate_files;
mod image;
mod kubernetes;
mod owner;
mod release;
