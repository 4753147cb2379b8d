//! Configurations of other programs as tables of `gateway.toml`: what `tollgate import` prints.
//!
//! A file is read as a tree of values with their places ([`yaml`]), judged by the rules of the program that reads it
//! today, and written as TOML. A setting that means something else here, or nothing, becomes a remark with file and
//! line, on standard error and as a comment of the TOML. A translation may limit more than the original, never less
//! without a remark. No clock and no I/O here.

pub mod envoy_ratelimit;
pub mod remark;
mod toml_text;
mod yaml;

use remark::ImportReport;

/// A file of another program.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ImportFile {
    /// Its name in remarks.
    pub name: String,
    /// Its content.
    pub text: String,
}

/// What became of the files.
#[derive(Clone, Debug)]
pub struct Imported {
    /// Tables of `gateway.toml`; `None` if there is an error.
    pub toml: Option<String>,
    /// The errors, and what has no counterpart.
    pub report: ImportReport,
}

/// The maximum number of bytes of a file. A longer one is an error.
pub const MAX_FILE_BYTES: usize = yaml::MAX_BYTES;
