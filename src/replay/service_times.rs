//! How long requests are in flight: as the log has it, or as long as others of the route if the log refused the request.

use crate::limit::units::{Micros, Timestamp};
use crate::log_reader::request::LoggedRequest;
use crate::route::RouteIndex;
use crate::telemetry::metrics::DecisionLabel;

/// The mean time of the admitted requests of each route so far.
#[derive(Debug)]
pub(super) struct ServiceTimes(Vec<MeanTime>);

#[derive(Clone, Copy, Debug, Default)]
struct MeanTime {
    count: u64,
    sum: u64,
}

/// How long a request is in flight.
pub(super) struct Service {
    /// The log refused it: its own time says nothing.
    pub(super) was_refused: bool,
    /// From forwarding to the end of the response; `None`: the log does not tell.
    pub(super) time: Option<Micros>,
}

impl ServiceTimes {
    pub(super) fn new(routes: usize) -> Self {
        Self(vec![MeanTime::default(); routes])
    }

    /// How long a request is in flight that is forwarded `at` this time.
    pub(super) fn service(&mut self, route: RouteIndex, logged: &LoggedRequest, at: Timestamp) -> Service {
        let decided =
            |label: DecisionLabel| logged.own.as_ref().is_some_and(|own| own.decision == label.as_str());
        let was_refused = logged.status == Some(429) || decided(DecisionLabel::Limited);
        let mean = self.0.get_mut(route.0);
        let time = match (logged.duration, mean) {
            (Some(_), Some(mean)) if was_refused => mean.sum.checked_div(mean.count).map(Micros),
            (Some(duration), mean) => {
                // The time of a delayed request has its delay in it.
                let delay = if decided(DecisionLabel::Delayed) { at.since(logged.time) } else { Micros(0) };
                let time = Micros(duration.0.saturating_sub(delay.0));
                if let Some(mean) = mean {
                    mean.count += 1;
                    mean.sum = mean.sum.saturating_add(time.0);
                }
                Some(time)
            }
            (None, _) => None,
        };
        Service { was_refused, time }
    }
}
