//! What a line of the log tells of a request after its admission: how long it was in flight (as long as others of the
//! route if the log refused it), and its cost after the response.

use http::StatusCode;

use crate::limit::units::{Micros, Timestamp};
use crate::log_reader::request::LoggedRequest;
use crate::plan::cost::{Settle, SettleSource, SettledCost};
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
        let was_refused = logged.status == Some(429) && !decided(DecisionLabel::Allowed)
            || decided(DecisionLabel::Limited)
            || decided(DecisionLabel::Banned);
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

/// The units that a request costs in the end; `None`: the log does not tell, and the reservation stays. `service` is the
/// time from forwarding to the end of the response.
pub(super) fn settled_units(
    (cost, reserved): (&SettledCost, u32),
    request: &LoggedRequest,
    service: Option<Micros>,
) -> Option<u32> {
    let own = request.own.as_ref();
    let (sources, scale) = match &cost.settle {
        Settle::Status(costs) => {
            let status = StatusCode::from_u16(request.status?).ok()?;
            return Some(costs.units(status).unwrap_or(reserved));
        }
        Settle::Values { sources, scale, .. } => (sources, scale),
    };
    let mut sum = 0_u64;
    for source in sources {
        sum = sum.saturating_add(match source {
            SettleSource::Bytes => request.bytes_out?,
            SettleSource::Duration => service?.0.div_ceil(1_000),
            SettleSource::Header(_) | SettleSource::Trailer(_) | SettleSource::Body(_) => {
                // Units, not a number to scale.
                return u32::try_from(own?.settled?).ok();
            }
        });
    }
    Some(scale.units(sum))
}
