//! The JSON Schema of `gateway.toml`, for editors.

/// JSON Schema, draft 2020-12. It describes keys, types and choices; checks across sections are only in `check`.
pub const SCHEMA: &str = include_str!("schema.json");
