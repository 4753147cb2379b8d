//! What is counted and logged of a request.

use std::net::IpAddr;

use http::request::Parts;
use http::{HeaderValue, StatusCode, Uri, header};

use super::case::Case;
use super::turn::Turn;
use crate::gateway::admission::{Standing, Tightest, Use};
use crate::gateway::{Mode, Route};
use crate::limit::Verdict;
use crate::limit::units::{Micros, Timestamp};
use crate::route::RouteIndex;
use crate::route::client::Client;
use crate::store::Outcome;
use crate::telemetry::access_log::Record;
use crate::telemetry::metrics::DecisionLabel;

impl Turn {
    /// Notes who asks, and what for.
    pub(crate) fn identify(&mut self, client: IpAddr, host: &str) {
        if let Some(record) = &mut self.finish.record {
            record.client = client;
            record.host = Box::from(host);
        }
    }

    /// Notes the route.
    pub(crate) fn on_route(&mut self, index: RouteIndex, route: &Route) {
        self.finish.route = Some(index);
        if let Some(record) = &mut self.finish.record {
            record.route = Some(route.name.clone());
        }
    }

    /// Counts what each limit of the route said.
    pub(crate) fn count(&self, case: &Case<'_>, outcome: &Outcome) {
        let assessment = &case.assessment;
        let admitted = assessment.missing().is_none()
            && assessment
                .uses
                .iter()
                .filter(|used| used.limit.mode == Mode::Enforce)
                .all(|used| !denies(used, outcome));
        for (place, used) in assessment.uses.iter().enumerate() {
            if let Some(label) = label(used, outcome, admitted) {
                self.plan.metrics.decision(case.index, place, label);
            }
        }
    }

    /// Notes the tightest limit for the access log.
    pub(crate) fn note(&mut self, tightest: Option<&Tightest<'_>>) {
        if let (Some(record), Some(tightest)) = (&mut self.finish.record, tightest) {
            record.limit = Some(tightest.limit.name.clone());
            record.remaining = Some(tightest.decision.remaining);
            record.cost = Some(tightest.cost.units());
            record.decision = Some(match tightest.decision.verdict {
                Verdict::Allow => "allowed",
                Verdict::Delay(_) => "delayed",
                Verdict::Deny(_) => "limited",
            });
        }
    }
}

fn denies(used: &Use<'_>, outcome: &Outcome) -> bool {
    used.decisions(outcome).iter().any(|decision| matches!(decision.verdict, Verdict::Deny(_)))
}

/// How a limit's word is counted; not at all if it neither charged nor refused.
fn label(used: &Use<'_>, outcome: &Outcome, admitted: bool) -> Option<DecisionLabel> {
    let shadow = used.limit.mode == Mode::Shadow;
    let refused = if shadow { DecisionLabel::ShadowLimited } else { DecisionLabel::Limited };
    let delayed =
        || used.decisions(outcome).iter().any(|decision| matches!(decision.verdict, Verdict::Delay(_)));
    match used.standing {
        Standing::Exempt => Some(DecisionLabel::Exempt),
        Standing::Missing => Some(refused),
        Standing::Charged(..) if denies(used, outcome) => Some(refused),
        Standing::Charged(..) if !admitted || outcome.decisions.is_empty() => None,
        Standing::Charged(..) if !shadow && delayed() => Some(DecisionLabel::Delayed),
        Standing::Charged(..) => Some(DecisionLabel::Allowed),
        Standing::Free | Standing::Skipped => None,
    }
}

/// A record of the request as it came; the rest is filled in as it becomes known.
pub(crate) fn new_record(started: Timestamp, parts: &Parts, client: Client) -> Record {
    let field = |name| parts.headers.get(name).map(|value: &HeaderValue| Box::from(value.as_bytes()));
    Record {
        time: started,
        method: parts.method.clone(),
        version: parts.version,
        host: Box::default(),
        path: sent_target(&parts.uri),
        route: None,
        status: StatusCode::OK,
        bytes_in: 0,
        bytes_out: 0,
        duration: Micros(0),
        upstream: None,
        upstream_duration: None,
        client: client.address,
        request_id: Box::default(),
        limit: None,
        decision: None,
        remaining: None,
        cost: None,
        error: None,
        referer: field(header::REFERER),
        user_agent: field(header::USER_AGENT),
    }
}

fn sent_target(uri: &Uri) -> Box<str> {
    uri.path_and_query().map_or_else(|| Box::from(uri.path()), |path| Box::from(path.as_str()))
}
