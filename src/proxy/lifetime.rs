//! How long a client's connection may live.

use tokio::time::Instant;

use crate::plan::Server;

/// How long a connection serves requests. At its end the next response carries `connection: close`; over HTTP/2, GOAWAY
/// is sent without waiting for a response.
#[derive(Clone, Copy, Debug)]
pub(super) struct Lifetime {
    /// The maximum number of requests.
    pub(super) requests: u64,
    /// When the maximum age is reached. Computed once, so that a request only compares.
    pub(super) until: Instant,
}

impl Lifetime {
    /// The lifetime of a connection opened at `now`. Up to a tenth of the age is subtracted, by `jitter` (of 256), so
    /// that connections opened together are not closed together.
    pub(super) fn of(server: &Server, now: Instant, jitter: u8) -> Self {
        let age = server.max_connection_age;
        let until = now + (age - age / 10 * u32::from(jitter) / 256);
        Self { requests: server.max_requests_per_connection.unwrap_or(u64::MAX), until }
    }

    /// Whether the client is to open another connection.
    pub(super) fn is_over(&self, requests: u64, now: Instant) -> bool {
        requests >= self.requests || now > self.until
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::clock::deadline::now;

    #[test]
    fn a_connection_is_over_after_its_last_request_or_its_age() {
        let opened = now();
        let hour = opened + Duration::from_secs(3600);
        let life = Lifetime { requests: 10_000, until: hour };
        assert!(!life.is_over(9_999, hour));
        assert!(life.is_over(10_000, opened));
        assert!(life.is_over(1, hour + Duration::from_micros(1)));
    }
}
