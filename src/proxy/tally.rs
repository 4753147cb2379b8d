//! What is counted and logged of a request.

use std::net::IpAddr;

use http::{Method, Version, header};

use super::case::{Case, look_again};
use super::peer::Peer;
use super::turn::Turn;
use crate::gateway::admission::{Refusal, Standing, Tightest, Use};
use crate::gateway::{Limit, Mode, Route, UpstreamIndex};
use crate::http1::request::RequestHead;
use crate::limit::units::{Micros, Timestamp};
use crate::limit::{Decision, Verdict};
use crate::route::RouteIndex;
use crate::route::mask::Masking;
use crate::store::Outcome;
use crate::telemetry::access_log::Record;
use crate::telemetry::metrics::{DecisionLabel, Word};

impl Turn {
    /// Notes who asks, and what for.
    pub(crate) fn identify(&mut self, client: IpAddr, host: &str) {
        self.client = Some(client);
        if let Some(record) = &mut self.record {
            record.client = client;
            host.clone_into(&mut record.host);
        }
    }

    /// Notes the route.
    pub(crate) fn on_route(&mut self, index: RouteIndex, route: &Route) {
        self.route = Some(index);
        if let Some(record) = &mut self.record {
            (*route.name).clone_into(&mut record.route);
        }
    }

    /// Notes which server was tried last, and the time to its response head if one came.
    pub(crate) fn note_server(&mut self, upstream: UpstreamIndex, authority: &str, took: Option<Micros>) {
        if let Some(record) = &mut self.record {
            let name = &*self.plan.gateway.upstream(upstream).name;
            record.upstream.clear();
            record.upstream.reserve(name.len() + 1 + authority.len());
            record.upstream.extend([name, "/", authority]);
            record.upstream_duration = took;
        }
    }

    /// Counts what each limit of the route said, and to whom.
    pub(crate) fn count(&self, case: &Case<'_, '_>, outcome: &Outcome, head: &RequestHead<'_>, peer: &Peer) {
        let assessment = &case.assessment;
        let admitted = assessment.missing().is_none()
            && assessment
                .uses
                .iter()
                .filter(|used| used.limit.mode == Mode::Enforce)
                .all(|used| !denies(used, outcome));
        for (place, used) in assessment.uses.iter().enumerate() {
            let Some(label) = label(used, outcome, admitted) else { continue };
            self.plan.metrics.decision(case.index, place, label);
            let refused = match label {
                DecisionLabel::Allowed | DecisionLabel::Delayed => false,
                DecisionLabel::Limited | DecisionLabel::ShadowLimited => true,
                DecisionLabel::Exempt => continue,
                DecisionLabel::StoreError => {
                    let Some(word) = unasked_word(used, outcome, admitted) else { continue };
                    self.plan.metrics.unasked(case.index, place, word);
                    word == Word::Refused
                }
            };
            self.note_asker(case, place, used, refused, head, peer);
        }
    }

    /// Counts a request that the limit at this place refuses because of a ban, also in shadow. The others have not been asked.
    pub(crate) fn count_ban(&self, case: &Case<'_, '_>, banned: usize, head: &RequestHead<'_>, peer: &Peer) {
        for (place, used) in case.assessment.uses.iter().enumerate() {
            if used.standing == Standing::Exempt {
                self.plan.metrics.decision(case.index, place, DecisionLabel::Exempt);
            } else if place == banned {
                self.plan.metrics.decision(case.index, place, DecisionLabel::Limited);
                self.note_asker(case, place, used, true, head, peer);
            }
        }
    }

    /// Counts the request among those of its key.
    fn note_asker(
        &self,
        case: &Case<'_, '_>,
        place: usize,
        used: &Use<'_>,
        refused: bool,
        head: &RequestHead<'_>,
        peer: &Peer,
    ) {
        let audience = case.route.limits.get(place).and_then(|one| self.plan.audiences.get(one.limit.0));
        let Some(audience) = audience else { return };
        let mut audience = audience.borrow_mut();
        let Standing::Charged(_, first) = used.standing else { return audience.note_nobody(self.started) };
        let Some(charge) = case.assessment.charges.get(first) else { return };
        audience.note(charge.owner(), refused, self.started, |label| {
            let (gateway, route, limit) = (&self.plan.gateway, case.route, used.limit);
            look_again(gateway, head, peer, |request| {
                let merge_slashes = route.conditions.merge_slashes;
                let masking = Masking::of(limit.reveal, &self.plan.short_ids);
                limit.key.write_label(request, &route.name, merge_slashes, masking, label);
            });
        });
    }

    /// Notes a refusal that no decision tells of: a part of the limit's key is missing, or has several values.
    pub(crate) fn note_refusal(&mut self, refusal: &Refusal<'_>, tightest: Option<&Tightest<'_>>) {
        if let (Some(record), None) = (&mut self.record, tightest) {
            (*refusal.limit.name).clone_into(&mut record.limit);
            record.decision = Some(DecisionLabel::Limited);
        }
    }

    /// Notes that the store could not be asked after this limit.
    pub(crate) fn note_unasked(&mut self, limit: &Limit) {
        if let Some(record) = &mut self.record {
            (*limit.name).clone_into(&mut record.limit);
            record.decision = Some(DecisionLabel::StoreError);
        }
    }

    /// Notes the tightest limit for the access log.
    pub(crate) fn note(&mut self, tightest: Option<&Tightest<'_>>) {
        if let (Some(record), Some(tightest)) = (&mut self.record, tightest) {
            (*tightest.limit.name).clone_into(&mut record.limit);
            record.remaining = Some(tightest.decision.remaining);
            record.cost = Some(tightest.cost.units());
            record.decision = Some(match tightest.decision.verdict {
                _ if !tightest.asked => DecisionLabel::StoreError,
                Verdict::Allow => DecisionLabel::Allowed,
                Verdict::Delay(_) => DecisionLabel::Delayed,
                Verdict::Deny(_) => DecisionLabel::Limited,
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
    let unasked = used.places().any(|place| outcome.unasked.contains(place));
    match used.standing {
        Standing::Exempt => Some(DecisionLabel::Exempt),
        Standing::Missing | Standing::Repeated => Some(refused),
        Standing::Charged(..) if unasked => Some(DecisionLabel::StoreError),
        Standing::Charged(..) if denies(used, outcome) => Some(refused),
        Standing::Charged(..) if !admitted || outcome.decisions.is_empty() => None,
        Standing::Charged(..) if !shadow && delayed() => Some(DecisionLabel::Delayed),
        Standing::Charged(..) => Some(DecisionLabel::Allowed),
        Standing::Free | Standing::Skipped => None,
    }
}

/// What a limit said where the store could not be asked; `None` if that did not count, as another limit refused, or the answer is 503.
#[cold]
fn unasked_word(used: &Use<'_>, outcome: &Outcome, admitted: bool) -> Option<Word> {
    let delays = |decision: &Decision| matches!(decision.verdict, Verdict::Delay(_));
    match () {
        () if outcome.unavailable => None,
        () if denies(used, outcome) => Some(Word::Refused),
        () if !admitted => None,
        () if used.limit.mode == Mode::Enforce && used.decisions(outcome).iter().any(delays) => {
            Some(Word::Delayed)
        }
        () => Some(Word::Admitted),
    }
}

/// Begins the record of a request as it came; the rest is filled in as it becomes known. What was refused unread has
/// neither method nor target: the record says `-`.
pub(crate) fn begin(
    record: &mut Record,
    started: Timestamp,
    head: Option<&RequestHead<'_>>,
    client: IpAddr,
    http2: bool,
) {
    *record = std::mem::take(record).emptied();
    record.time = started;
    record.client = client;
    record.method = head.map_or_else(no_method, |head| head.method.clone());
    record.version = match head {
        _ if http2 => Version::HTTP_2,
        Some(head) if !head.http_11 => Version::HTTP_10,
        _ => Version::HTTP_11,
    };
    head.map_or("-", |head| head.target.path_and_query()).clone_into(&mut record.path);
}

/// Notes what only the combined form tells.
pub(crate) fn note_agent(record: &mut Record, head: &RequestHead<'_>) {
    let field = |name| head.fields.first(name).unwrap_or_default();
    field(&header::REFERER).clone_into(&mut record.referer);
    field(&header::USER_AGENT).clone_into(&mut record.user_agent);
}

fn no_method() -> Method {
    Method::from_bytes(b"-").unwrap_or_default()
}
