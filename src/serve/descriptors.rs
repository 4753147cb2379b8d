//! The limit on open files, which bounds connections.

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

/// A proxied connection takes two descriptors: the client's and the backend's.
const PER_CONNECTION: u64 = 2;

/// Raises the soft limit to the hard one, and warns if `max_connections` may still not fit.
pub(super) fn raise(max_connections: usize) {
    let limit = getrlimit(Resource::Nofile);
    if limit.current != limit.maximum {
        let raised = Rlimit { current: limit.maximum, ..limit };
        if let Err(error) = setrlimit(Resource::Nofile, raised) {
            tracing::warn!("cannot raise the file descriptor limit: {error}");
        }
    }
    let wanted = u64::try_from(max_connections).unwrap_or(u64::MAX).saturating_mul(PER_CONNECTION);
    if let Some(max) = getrlimit(Resource::Nofile).current.filter(|max| *max < wanted) {
        tracing::warn!(
            "the file descriptor limit is {max}, but {max_connections} connections (`max_connections`) need up to {wanted}: \
             raise the hard limit (`ulimit -Hn`, `LimitNOFILE=`) or lower `max_connections`"
        );
    }
}
