//! Passwords: `[auth]` with `type = "basic"`, through the real binary.

mod checks;
mod explain;
