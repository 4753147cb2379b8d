//! What one worker listens on.

#[cfg(feature = "http3")]
use super::datagrams::QuicListener;
use super::listen::Listeners;

/// All that a worker listens on.
#[derive(Debug, Default)]
pub struct WorkerListeners {
    /// The listeners of TCP.
    pub streams: Listeners,
    /// The UDP sockets of listeners with HTTP/3.
    #[cfg(feature = "http3")]
    pub quic: Vec<QuicListener>,
}
