//! gRPC through the gateway.

mod calls;
