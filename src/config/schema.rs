//! The JSON Schema of `gateway.toml`, for editors.

/// JSON Schema, draft 2020-12. It knows the keys, types and choices; what spans sections only `check` knows.
pub const SCHEMA: &str = include_str!("schema.json");
