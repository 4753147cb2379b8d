//! What is counted and logged of a request: as it becomes known, and once at its end.

use std::net::IpAddr;

use super::turn::Turn;
use crate::gateway::admission::{Refusal, Standing, Tightest, Use};
use crate::gateway::log::AccessLog;
use crate::gateway::resolve::RoutedRequest;
use crate::gateway::{Limit, Mode, Route, UpstreamIndex};
use crate::limit::units::Micros;
use crate::limit::{Decision, Verdict};
use crate::route::RouteIndex;
use crate::route::mask::Masking;
use crate::store::Outcome;
use crate::telemetry::metrics::{DecisionLabel, Fate, Word};

impl Drop for Turn {
    fn drop(&mut self) {
        let now = self.worker.shared.clock.now();
        self.worker.last_answer.set(now);
        let duration = now.since(self.started);
        let fate = self.fate();
        self.plan.metrics.request(self.route, self.status, duration, self.delay);
        self.plan.metrics.bodies(self.route, self.received, self.sent);
        self.plan.metrics.fate(self.route, fate);
        if matches!(fate, Fate::Refused | Fate::Failed) {
            self.testify(fate);
        }
        if let Some(mut record) = self.record.take() {
            record.status = self.status;
            record.duration = duration;
            record.bytes_in = self.received;
            record.bytes_out = self.sent;
            record.error = self.error;
            if self.trace.is_some() {
                self.end_trace(&record);
            }
            let logged = self.plan.gateway.log.access != AccessLog::Off;
            if self.sampled || logged && record.is_notable() {
                self.worker.shared.access_log.record(record);
            } else {
                self.worker.recorder.put(record);
            }
        }
    }
}

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
    pub(crate) fn count(&self, routed: &RoutedRequest<'_, '_>, outcome: &Outcome) {
        let assessment = &routed.assessment;
        let admitted = assessment.missing().is_none()
            && assessment
                .uses
                .iter()
                .filter(|used| used.limit.mode == Mode::Enforce)
                .all(|used| !denies(used, outcome));
        for (place, used) in assessment.uses.iter().enumerate() {
            let Some(label) = label(used, outcome, admitted) else { continue };
            self.plan.metrics.decision(routed.index, place, label);
            let refused = match label {
                DecisionLabel::Allowed | DecisionLabel::Delayed => false,
                DecisionLabel::Limited | DecisionLabel::ShadowLimited => true,
                DecisionLabel::Exempt => continue,
                DecisionLabel::StoreError => {
                    let Some(word) = unasked_word(used, outcome, admitted) else { continue };
                    self.plan.metrics.unasked(routed.index, place, word);
                    word == Word::Refused
                }
            };
            self.note_asker(routed, place, used, refused);
        }
    }

    /// Counts a request that the limit at this place refuses because of a ban, also in shadow. The others have not been asked.
    pub(crate) fn count_ban(&self, routed: &RoutedRequest<'_, '_>, banned: usize) {
        for (place, used) in routed.assessment.uses.iter().enumerate() {
            if used.standing == Standing::Exempt {
                self.plan.metrics.decision(routed.index, place, DecisionLabel::Exempt);
            } else if place == banned {
                self.plan.metrics.decision(routed.index, place, DecisionLabel::Limited);
                self.note_asker(routed, place, used, true);
            }
        }
    }

    /// Counts the request among those of its key.
    fn note_asker(&self, routed: &RoutedRequest<'_, '_>, place: usize, used: &Use<'_>, refused: bool) {
        let audience = routed.route.limits.get(place).and_then(|one| self.plan.audiences.get(one.limit.0));
        let Some(audience) = audience else { return };
        let mut audience = audience.borrow_mut();
        let Standing::Charged(_, first) = used.standing else { return audience.note_nobody(self.started) };
        let Some(charge) = routed.assessment.charges.get(first) else { return };
        audience.note(charge.owner(), refused, self.started, |label| {
            let (route, limit) = (routed.route, used.limit);
            let merge_slashes = route.conditions.merge_slashes;
            let masking = Masking::of(limit.reveal, &self.plan.short_ids);
            limit.key.write_label(&routed.request(), &route.name, merge_slashes, masking, label);
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
