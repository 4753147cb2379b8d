//! Counts and logs a request: as its data become known, and once at its end.

use http::StatusCode;

use super::request_context::RequestContext;
use super::settlement::Settlement;
use super::usage::record_admission;
use crate::limit::units::{Cost, Fingerprint, Micros, Timestamp};
use crate::limit::{Decision, Verdict};
use crate::plan::admission::{
    Admission, AdmissionDecision, BindingLimit, LimitCheck, Refusal, RefusalCause, RequestCharges,
};
use crate::plan::auth::{AuthFailure, CredentialFault};
use crate::plan::decision::{DecisionObserver, LimitPhase, Ruled, Ruling};
use crate::plan::log::AccessLog;
use crate::plan::resolve::RoutedRequest;
use crate::plan::{LimitIndex, Mode, Route, UpstreamIndex};
use crate::route::consumers::Consumer;
use crate::route::key::Key;
use crate::route::mask::Masking;
use crate::route::{RouteIndex, RouteRequest};
use crate::store::Outcome;
use crate::telemetry::metrics::{AuthResult, DecisionLabel, LimitVerdict, RequestOutcome};
use crate::upstream::Failed;
use crate::upstream::exchange::{Exchange, RequestBody};

/// A limit whose decision is counted.
#[derive(Clone, Copy, Debug)]
pub(crate) struct CountedLimit {
    /// The route that has it.
    pub(crate) route: RouteIndex,
    /// Its index there.
    pub(crate) place: usize,
    pub(crate) limit: LimitIndex,
}

impl Drop for RequestContext {
    fn drop(&mut self) {
        if !self.is_counted {
            return;
        }
        let settled = self.limits.settlement.take().and_then(|mut settlement| settlement.end());
        let now = self.worker.shared.clock.now();
        self.worker.last_answer.set(now);
        let duration = now.since(self.started);
        let outcome = self.outcome();
        let passed = matches!(outcome, RequestOutcome::Admitted | RequestOutcome::Delayed);
        let admitted = passed || self.limits.admitted;
        self.plan.metrics.request(self.route, self.response.status, duration, self.limits.delay, admitted);
        self.plan.metrics.bodies(self.route, self.received, self.response.bytes_out);
        self.plan.metrics.outcome(self.route, outcome);
        if !matches!(outcome, RequestOutcome::Admitted | RequestOutcome::Delayed) {
            self.record_refusal(outcome);
        }
        if let Some(mut record) = self.log.record.take() {
            record.duration = duration;
            record.request.bytes_in = self.received;
            record.response = self.response;
            record.decision.settled = settled;
            if self.log.trace.is_some() {
                self.end_trace(&record);
            }
            let logged = self.plan.log.access != AccessLog::Off;
            if self.log.sampled || logged && record.is_notable() {
                self.worker.shared.access_log.record(record);
            } else {
                self.worker.recorder.put(record);
            }
        }
    }
}

impl RequestContext {
    /// Counts a request without a credential, or with several. A wrong one is counted once it is known whether a limit
    /// refuses it.
    fn credential_unfit(&mut self, AuthFailure { auth, fault }: AuthFailure) {
        if !self.is_counted {
            return;
        }
        let result = match fault {
            CredentialFault::Missing => AuthResult::Missing,
            CredentialFault::Repeated => AuthResult::Repeated,
            CredentialFault::Invalid
            | CredentialFault::Answered
            | CredentialFault::Insufficient
            | CredentialFault::Unverified => return,
        };
        self.plan.metrics.auth(auth, result);
    }

    /// Counts a wrong credential. `refusal`: the limit on such requests refuses it.
    pub(crate) fn credential_refused(
        &mut self,
        routed: &RoutedRequest<'_, '_>,
        failure: AuthFailure,
        refusal: Option<(&Refusal<'_>, Option<&BindingLimit<'_>>)>,
    ) {
        let result = if refusal.is_some() { AuthResult::Limited } else { AuthResult::Invalid };
        if self.is_counted {
            self.plan.metrics.auth(failure.auth, result);
        }
        let Some((refusal, tightest)) = refusal else { return };
        self.sample_refused_credential(routed, failure, refusal, tightest);
        self.note_refusal(refusal, tightest);
    }

    /// The limit on wrong credentials has ruled.
    #[cold]
    fn failure_ruled(&mut self, failure: AuthFailure, ruled: &Ruled<'_, '_, '_>) {
        if !ruled.ruling.admits() {
            self.list(ruled);
        }
        let &Ruled { request, outcome, ruling, known, .. } = ruled;
        for (_, check, label) in DecisionLabel::of_limits(&request.charges, outcome, ruling, known) {
            self.plan.metrics.failure_decision(request.index, check.limit, label);
            if label == DecisionLabel::ShadowLimited {
                self.note_shadow(check.limit);
            }
            let refused = match label {
                DecisionLabel::Allowed | DecisionLabel::Delayed => false,
                DecisionLabel::Limited | DecisionLabel::Banned | DecisionLabel::ShadowLimited => true,
                DecisionLabel::Exempt => continue,
                DecisionLabel::StoreError => {
                    let Some(verdict) = unasked_word(check, outcome, ruling.admits()) else { continue };
                    self.plan.metrics.failure_decided_locally(request.index, check.limit, verdict);
                    matches!(verdict, LimitVerdict::Refused | LimitVerdict::RefusedInShadow)
                }
            };
            self.count_failure(failure, &request.charges, &request.request(), refused);
        }
    }

    /// Keeps the rate-limit numbers of the response, and the text of a key that the request has banned.
    #[inline]
    fn list(&mut self, ruled: &Ruled<'_, '_, '_>) {
        match ruled.ruling {
            Ruling::Decided(admission) => {
                self.list_policies(&ruled.request.charges, ruled.outcome, admission);
            }
            Ruling::Banned { ban, begun } => {
                if *begun {
                    self.name_ban(ruled.request, ban.index);
                }
                self.list_binding(&ban.tightest, ban.refusal.retry_after());
            }
            Ruling::Unkeyed(_) | Ruling::Unavailable => {}
        }
    }

    /// Counts a wrong credential in the statistics of its client's key.
    fn count_failure(
        &mut self,
        failure: AuthFailure,
        charges: &RequestCharges<'_>,
        request: &RouteRequest<'_>,
        refused: bool,
    ) {
        let matched = request.matched_by("", true);
        if let (true, Some(check)) = (refused, charges.checks.first()) {
            self.note_key_of(matched, check.limit);
        }
        let limit = self.plan.auth(failure.auth).failures;
        let key_stats = limit.and_then(|limit| self.plan.key_stats.get(limit.0));
        let Some((key_stats, check)) = key_stats.zip(charges.checks.first()) else { return };
        if let Some(key_hash) = charges.key_hash(check) {
            let masking = Masking::of(check.limit.reveal, &self.plan.short_ids);
            let write_label = |label: &mut String| check.limit.key.write_label(matched, masking, label);
            key_stats.borrow_mut().note(key_hash, refused, self.started, write_label);
        }
    }

    /// The `www-authenticate` header lines of a refusal.
    pub(crate) fn challenges(&self, failure: AuthFailure) -> String {
        let auth = self.route.and_then(|route| self.plan.route(route).auth.as_ref());
        auth.map(|auth| self.plan.challenges(auth, failure)).unwrap_or_default()
    }

    /// Notes the route.
    pub(crate) fn on_route(&mut self, index: RouteIndex, route: &Route) {
        // A request whose credential had to be verified is on its route for the second time.
        if self.route.replace(index).is_none() && self.is_counted {
            self.plan.metrics.begun(index);
        }
        if let Some(record) = &mut self.log.record {
            (*route.name).clone_into(&mut record.route);
        }
    }

    /// Notes and counts a server's response to the request sent at `asked`.
    pub(crate) fn note_answer<U: RequestBody>(
        &mut self,
        upstream: UpstreamIndex,
        exchange: &Exchange<'_, U>,
        status: StatusCode,
        asked: Timestamp,
    ) {
        let took = self.worker.shared.clock.now().since(asked);
        let (authority, attempts) = (exchange.authority(), exchange.attempts());
        self.plan.metrics.response(upstream, exchange.index(), status, took);
        self.note_server(upstream, authority, Some(took));
        if self.log.trace.is_some() {
            self.trace_answer(upstream, Some(authority), attempts, Some(status));
        }
    }

    /// Notes and counts that no server has answered.
    pub(crate) fn note_failure(&mut self, upstream: UpstreamIndex, failed: &Failed) {
        self.plan.metrics.upstream_failed(upstream, failed.failure);
        if let Some(authority) = &failed.authority {
            self.note_server(upstream, authority, None);
        }
        self.trace_answer(upstream, failed.authority.as_ref(), failed.attempts, None);
    }

    /// Notes the server tried last, and the time to its response head if one was received.
    fn note_server(&mut self, upstream: UpstreamIndex, authority: &str, took: Option<Micros>) {
        if let Some(record) = &mut self.log.record {
            let name = &*self.plan.upstream(upstream).name;
            record.upstream.server.clear();
            record.upstream.server.reserve(name.len() + 1 + authority.len());
            record.upstream.server.extend([name, "/", authority]);
            record.upstream.duration = took;
        }
    }

    /// The limits of a phase have ruled: counts each one's decision, and the key it concerns.
    fn decided(&mut self, ruled: &Ruled<'_, '_, '_>) {
        let &Ruled { request, outcome, ruling, known, .. } = ruled;
        for (_, check, label) in DecisionLabel::of_limits(&request.charges, outcome, ruling, known) {
            let place = usize::from(check.place);
            let Some(limit_use) = request.route.limits.get(place) else { continue };
            let of = CountedLimit { route: request.index, place, limit: limit_use.limit };
            let admitted = ruling.admits();
            if let Some(usage) = check.limit.usage.as_ref().filter(|_| admitted) {
                let consumer = request.caller.consumer.map(|named| named.consumer);
                let ledger = self.worker.shared.store.usage();
                let consumer = consumer.as_ref().map(Consumer::name);
                record_admission((ledger, usage), (check, label), (outcome, self.started), consumer);
            }
            if label == DecisionLabel::Delayed && check.limit.is_concurrency() {
                self.note_wait_for_place(check, outcome);
            }
            let Some(refused) = self.count_check(of, check, label, (outcome, admitted)) else { continue };
            let key_hash = request.charges.key_hash(check);
            let write_label = |label: &mut String| self.write_label(request, check, label);
            self.note_asker(limit_use.limit, key_hash, refused, write_label);
            if let Some(share_by) = &check.limit.share_by {
                self.note_share(request, (limit_use.limit, check), share_by, refused);
            }
        }
        if let (Some(limit), Some(record)) = (request.charges.decided_locally(outcome), &mut self.log.record)
        {
            (*limit.name).clone_into(&mut record.decision.limit);
            record.decision.label = Some(DecisionLabel::StoreError);
            self.note_key(request, (limit, 0));
        }
    }

    /// Counts the decision of one limit. Returns whether it refuses; `None`: it did not count.
    #[inline]
    pub(crate) fn count_check(
        &mut self,
        CountedLimit { route, place, limit }: CountedLimit,
        check: &LimitCheck<'_>,
        label: DecisionLabel,
        (outcome, admitted): (&Outcome, bool),
    ) -> Option<bool> {
        self.plan.metrics.decision(route, place, label);
        if !check.limit.tiers.is_empty() {
            self.plan.metrics.tier_decision(limit, check.tier, label);
        }
        match label {
            DecisionLabel::Allowed | DecisionLabel::Delayed => Some(false),
            DecisionLabel::Limited | DecisionLabel::Banned => Some(true),
            DecisionLabel::ShadowLimited => {
                self.note_shadow(check.limit);
                Some(true)
            }
            DecisionLabel::Exempt => None,
            DecisionLabel::StoreError => {
                let word = unasked_word(check, outcome, admitted)?;
                self.plan.metrics.decided_locally(route, place, word);
                if word == LimitVerdict::RefusedInShadow {
                    self.note_shadow(check.limit);
                }
                Some(matches!(word, LimitVerdict::Refused | LimitVerdict::RefusedInShadow))
            }
        }
    }

    /// Keeps the text of a key that this request has banned.
    fn name_ban(&self, routed: &RoutedRequest<'_, '_>, banned: usize) {
        let Some(check) = routed.charges.checks.get(banned) else { return };
        if let Some(key_hash) = routed.charges.key_hash(check) {
            let mut label = String::new();
            self.write_label(routed, check, &mut label);
            self.worker.shared.store.bans().set_label(check.limit.banned(key_hash), label);
        }
    }

    /// Counts a request in the statistics of its key; `None`: it has none.
    #[inline]
    pub(crate) fn note_asker(
        &self,
        limit: LimitIndex,
        key_hash: Option<Fingerprint>,
        refused: bool,
        write_label: impl FnOnce(&mut String),
    ) {
        let Some(key_stats) = self.plan.key_stats.get(limit.0) else { return };
        let mut key_stats = key_stats.borrow_mut();
        match key_hash {
            Some(key_hash) => key_stats.note(key_hash, refused, self.started, write_label),
            None => key_stats.note_unkeyed(self.started),
        }
    }

    /// Counts a request in the statistics of the shares of a limit.
    #[cold]
    fn note_share(
        &self,
        routed: &RoutedRequest<'_, '_>,
        (limit, check): (LimitIndex, &LimitCheck<'_>),
        share_by: &Key,
        refused: bool,
    ) {
        let share = routed.charges.share_key(check).zip(self.plan.share_stats.get(limit.0));
        let Some((key_hash, share_stats)) = share else { return };
        let masking = Masking::of(check.limit.reveal, &self.plan.short_ids);
        share_stats.borrow_mut().note(key_hash, refused, self.started, |label| {
            share_by.write_label(routed.route.matched(&routed.request()), masking, label);
        });
    }

    /// Writes the values of the request's key under `limit`, masked unless the limit reveals them.
    pub(crate) fn write_label(
        &self,
        routed: &RoutedRequest<'_, '_>,
        check: &LimitCheck<'_>,
        label: &mut String,
    ) {
        let masking = Masking::of(check.limit.reveal, &self.plan.short_ids);
        let request = routed.request_of_call(check.call);
        check.limit.key.write_label(routed.route.matched(&request), masking, label);
    }

    /// Notes that a limit refuses the request. Without a decision, a part of the limit's key is missing or has several
    /// values.
    pub(crate) fn refused(
        &mut self,
        routed: &RoutedRequest<'_, '_>,
        refusal: &Refusal<'_>,
        tightest: Option<&BindingLimit<'_>>,
    ) {
        self.note_refusal(refusal, tightest);
        // Otherwise there is no key.
        if !matches!(
            refusal.why,
            RefusalCause::Missing | RefusalCause::Repeated | RefusalCause::Unreadable(_)
        ) {
            let of = tightest.map_or((refusal.limit, 0), |tightest| (tightest.limit, tightest.call));
            self.note_key(routed, of);
        }
        self.sample_refusal(routed, refusal, tightest);
    }

    /// Notes the outcome, and the refusing limit for the access log.
    pub(crate) fn note_refusal(&mut self, refusal: &Refusal<'_>, tightest: Option<&BindingLimit<'_>>) {
        self.limits.outcome = RequestOutcome::Refused;
        self.note(tightest);
        let Some(record) = &mut self.log.record else { return };
        if tightest.is_none() {
            (*refusal.limit.name).clone_into(&mut record.decision.limit);
            record.decision.label = Some(DecisionLabel::Limited);
        }
        if matches!(refusal.why, RefusalCause::Banned { .. }) {
            record.decision.label = Some(DecisionLabel::Banned);
        }
    }

    /// Notes the binding limit for the access log.
    pub(crate) fn note(&mut self, tightest: Option<&BindingLimit<'_>>) {
        if let (Some(record), Some(tightest)) = (&mut self.log.record, tightest)
            && record.decision.label != Some(DecisionLabel::Delayed)
        {
            (*tightest.limit.name).clone_into(&mut record.decision.limit);
            record.decision.remaining = Some(tightest.decision.remaining);
            record.decision.cost = Some(tightest.cost.units());
            record.decision.label = Some(DecisionLabel::of_binding(tightest));
        }
    }

    /// Notes the limit for whose place the request has waited: its log line tells of this limit, not of the tightest.
    #[cold]
    fn note_wait_for_place(&mut self, check: &LimitCheck<'_>, outcome: &Outcome) {
        if let (Some(record), Some(decision)) = (&mut self.log.record, check.decisions(outcome).first()) {
            (*check.limit.name).clone_into(&mut record.decision.limit);
            record.decision.remaining = Some(decision.remaining);
            record.decision.cost = check.cost().map(Cost::units);
            record.decision.label = Some(DecisionLabel::Delayed);
        }
    }

    /// Notes the consumer for log and trace.
    pub(super) fn note_consumer(&mut self, consumer: Consumer<'_>) {
        if let Some(record) = &mut self.log.record {
            consumer.name().clone_into(&mut record.consumer.name);
            consumer.tier().unwrap_or_default().clone_into(&mut record.consumer.tier);
        }
        if let Some(noted) = &mut self.noted {
            noted.set_consumer(consumer);
        }
    }

    /// The outcome of the request. A refusal stays one if the client did not wait for it. A backend's 5xx is a failure:
    /// for the client there is no difference.
    fn outcome(&self) -> RequestOutcome {
        let failed = self.response.error.is_some() || self.response.status.is_server_error();
        match self.limits.outcome {
            RequestOutcome::Admitted | RequestOutcome::Delayed if failed => self.rejection(),
            outcome => outcome,
        }
    }
}

impl<'p> DecisionObserver<'p> for RequestContext {
    fn authenticated(&mut self, request: &RoutedRequest<'p, '_>) {
        let Some(auth) = request.route.auth.as_ref().filter(|_| self.is_counted) else { return };
        if let Some(failure) = request.shadow_failure {
            return self.refused_in_shadow(request.caller.consumer, failure);
        }
        match (request.caller.consumer, auth.auths.first()) {
            (Some(named), _) => {
                self.note_consumer(named.consumer);
                self.plan.metrics.auth(named.auth, AuthResult::Accepted);
            }
            (None, Some(&first)) => self.plan.metrics.auth(first, AuthResult::Anonymous),
            (None, None) => {}
        }
    }

    fn insufficient(&mut self, request: &RoutedRequest<'p, '_>, failure: AuthFailure) {
        if !self.is_counted {
            return;
        }
        if let Some(named) = request.caller.consumer {
            self.note_consumer(named.consumer);
        }
        self.plan.metrics.auth(failure.auth, AuthResult::Insufficient);
    }

    fn unauthenticated(&mut self, _: &RoutedRequest<'p, '_>, failure: AuthFailure) {
        self.credential_unfit(failure);
    }

    #[inline]
    fn ruled(&mut self, ruled: &Ruled<'_, 'p, '_>) {
        let &Ruled { phase, request, outcome, ruling, .. } = ruled;
        if !self.is_counted {
            return self.list(ruled);
        }
        if let LimitPhase::Failures(failure, _) = phase {
            return self.failure_ruled(failure, ruled);
        }
        self.decided(ruled);
        self.list(ruled);
        if let (Ruling::Decided(Admission { decision: AdmissionDecision::Admit(_), .. }), LimitPhase::Route) =
            (ruling, phase)
        {
            self.limits.settlement =
                Settlement::begin(&self.worker, &self.plan, request, outcome, self.started);
        }
    }
}

/// A limit's verdict where the store could not be asked; `None` if it did not count, since another limit refused, or
/// the response is 503.
#[cold]
fn unasked_word(check: &LimitCheck<'_>, outcome: &Outcome, admitted: bool) -> Option<LimitVerdict> {
    let delays = |decision: &Decision| matches!(decision.verdict, Verdict::Delay(_));
    match () {
        () if outcome.unavailable => None,
        () if check.denies(outcome) && check.mode == Mode::Shadow => Some(LimitVerdict::RefusedInShadow),
        () if check.denies(outcome) => Some(LimitVerdict::Refused),
        () if !admitted => None,
        () if check.mode == Mode::Enforce && check.decisions(outcome).iter().any(delays) => {
            Some(LimitVerdict::Delayed)
        }
        () => Some(LimitVerdict::Admitted),
    }
}
