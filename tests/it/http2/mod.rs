//! HTTP/2 on the side of the client.

mod life;
mod malformed;
mod requests;
mod tools;
mod websocket;
mod websocket_backends;
mod websocket_bounds;
