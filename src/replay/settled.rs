//! The cost of a request after its response, as far as a line of the log tells.

use http::StatusCode;

use crate::limit::units::Micros;
use crate::log_reader::request::LoggedRequest;
use crate::plan::cost::{Settle, SettleSource, SettledCost};

/// The units that a request costs in the end; `None`: the log does not tell, and the reservation stays. `service` is the
/// time from forwarding to the end of the response.
pub(super) fn units(cost: &SettledCost, request: &LoggedRequest, service: Option<Micros>) -> Option<u32> {
    let own = request.own.as_ref();
    let (sources, scale) = match &cost.settle {
        Settle::Status(costs) => {
            let status = StatusCode::from_u16(request.status?).ok()?;
            return Some(costs.units(status).unwrap_or(cost.reserve));
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
