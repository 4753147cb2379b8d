//! The data plane: takes requests, asks the plan and the store, forwards or refuses.

use std::net::TcpListener;
use std::sync::Arc;

use crate::shared::Shared;

/// One worker's listeners, in the order of `server.listen`.
pub type Listeners = Vec<TcpListener>;

/// Runs one worker on the calling thread until it is drained. Builds its own single-threaded runtime.
pub fn run(_worker: usize, _listeners: Listeners, _shared: Arc<Shared>) -> std::io::Result<()> {
    Ok(())
}

/// Binds every address of `server.listen` once per worker (SO_REUSEPORT), after making sure that no other process listens there.
/// Returns one list per worker. Port 0 is resolved once; all workers share the port.
pub fn bind(_addresses: &[std::net::SocketAddr], _workers: usize) -> std::io::Result<Vec<Listeners>> {
    Ok(Vec::new())
}
