//! `[auth]` with `type = "forward"`: a service decides about requests, through the real binary.

mod service;
mod story;
