//! Values that are read from a response's body as it streams past.

mod coding;
mod documents;
mod json;
mod random;
mod sse;
