//! The text of a key, for reports.

use crate::plan::Route;
use crate::plan::admission::RequestCharges;
use crate::route::RouteRequest;
use crate::route::mask::{Masking, ShortIds};

/// The text of the key of the limit at `place`.
pub(super) fn label(
    request: &RouteRequest<'_>,
    route: &Route,
    charges: &RequestCharges<'_>,
    place: usize,
    ids: &ShortIds,
) -> String {
    let Some(used) = charges.checks.get(place) else { return String::new() };
    let masking = Masking::of(used.limit.reveal, ids);
    used.limit.key.label(request, &route.name, route.conditions.merge_slashes, masking).join(", ")
}
