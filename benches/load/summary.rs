//! What came of a run.

use std::collections::BTreeMap;
use std::fmt;
use std::time::Duration;

use super::processor_time::ProcessorTime;

/// The requests that count.
#[derive(Default)]
pub(crate) struct Summary {
    statuses: BTreeMap<u16, u64>,
    latencies: Vec<Duration>,
    /// From the first request that counts to the last answer.
    pub(crate) elapsed: Duration,
    /// Connections that the gateway closed after an answer.
    pub(crate) reconnects: u64,
    /// Requests that were given up.
    pub(crate) unanswered: usize,
    /// Of the watched process, meanwhile.
    pub(crate) processor_time: Option<ProcessorTime>,
}

impl Summary {
    pub(crate) fn answered(&mut self, status: u16, latency: Duration) {
        *self.statuses.entry(status).or_default() += 1;
        self.latencies.push(latency);
    }
}

impl fmt::Display for Summary {
    #[expect(clippy::cast_precision_loss, reason = "far below 2^53 requests")]
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let requests = self.latencies.len();
        writeln!(f, "requests {requests}")?;
        writeln!(f, "requests_per_second {:.0}", requests as f64 / self.elapsed.as_secs_f64())?;
        for (status, count) in &self.statuses {
            writeln!(f, "status_{status} {count}")?;
        }
        writeln!(f, "reconnects {}\nunanswered {}", self.reconnects, self.unanswered)?;
        if let Some(time) = self.processor_time {
            let (user, system) = time.per_request(requests);
            writeln!(f, "user_us {user:.3}\nsystem_us {system:.3}\ncpu_us {:.3}", user + system)?;
        }
        let mut sorted = self.latencies.clone();
        sorted.sort_unstable();
        for (name, permille) in [("p50", 500), ("p90", 900), ("p99", 990), ("p99.9", 999), ("max", 1000)] {
            let at = (requests * permille).div_ceil(1000).saturating_sub(1);
            let latency = sorted.get(at).copied().unwrap_or_default();
            writeln!(f, "{name}_us {:.1}", latency.as_secs_f64() * 1e6)?;
        }
        Ok(())
    }
}
