//! Stub.
/// Stub.
pub fn summary(_gateway: &crate::gateway::Gateway, _file: &str) -> String {
    String::new()
}
