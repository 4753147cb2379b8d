//! Counts and logs a request: as its data become known, and once at its end.

use std::net::IpAddr;

use http::{Method, StatusCode, Version};

use super::log_capture;
use super::request_context::RequestContext;
use super::settlement::Settlement;
use crate::http1::fields::Fields;
use crate::http1::request::RequestHead;
use crate::limit::units::{Micros, Timestamp};
use crate::limit::{Decision, Verdict, wall_clock};
use crate::plan::admission::{
    Admission, AdmissionDecision, BindingLimit, LimitCheck, Refusal, RefusalCause, RequestCharges,
};
use crate::plan::auth::{AuthFailure, CredentialFault, NamedConsumer};
use crate::plan::decision::{DecisionObserver, LimitPhase, Ruled, Ruling};
use crate::plan::log::AccessLog;
use crate::plan::resolve::RoutedRequest;
use crate::plan::{Limit, Mode, Route, UpstreamIndex};
use crate::proxy::session::peer::ConnectionPeer;
use crate::proxy::worker::tracer::RequestTrace;
use crate::route::mask::Masking;
use crate::route::{RouteIndex, RouteRequest};
use crate::store::Outcome;
use crate::telemetry::access_log::Record;
use crate::telemetry::metrics::{AuthResult, DecisionLabel, LimitVerdict, RequestOutcome};
use crate::upstream::Failed;
use crate::upstream::exchange::{Exchange, RequestBody};

impl Drop for RequestContext {
    fn drop(&mut self) {
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
    /// Begins the access record, unless there is no access log, the request is not traced, and no request failed
    /// recently. Without a head, the request was refused unread.
    pub(crate) fn open_record(&mut self, peer: &ConnectionPeer, head: Option<&RequestHead<'_>>) {
        let plan = &self.plan;
        if let Some(trace) = &plan.trace {
            let fields = head.map_or(Fields::NONE, |head| head.fields);
            self.log.trace = Some(self.worker.tracer.begin(
                plan,
                trace,
                fields,
                (peer.address, peer.scheme),
                self.started,
            ));
        }
        let logged = plan.log.access != AccessLog::Off;
        let traced = self.log.trace.as_ref().is_some_and(RequestTrace::is_recorded);
        if !logged && !traced && !self.worker.is_troubled(self.started) {
            return;
        }
        self.log.sampled = logged && self.worker.recorder.chooses(plan.log.sample);
        let mut record = self.worker.recorder.take();
        let client = plan.server.client.client(peer.address).address;
        begin(&mut record, self.started, head, client, peer.http2);
        String::from_utf8_lossy(&self.request_id).as_ref().clone_into(&mut record.request_id);
        if let Some(head) = head {
            log_capture::note_request(&mut record, plan, head);
        }
        record.trace_id = self.log.trace.as_ref().map(RequestTrace::id);
        self.log.record = Some(record);
    }

    /// Notes the client and the host.
    pub(crate) fn identify(&mut self, client: IpAddr, host: &str) {
        self.client = Some(client);
        if let Some(record) = &mut self.log.record {
            record.client = client;
            host.clone_into(&mut record.request.host);
        }
    }

    /// Cuts credentials out of the logged path.
    pub(crate) fn cut_credentials(&mut self) {
        // Most plans have no auth.
        if !self.plan.auths.is_empty()
            && self.plan.hides_queries()
            && let Some(record) = &mut self.log.record
        {
            self.plan.cut_credentials(&mut record.request.path);
        }
    }

    /// Counts a request without a credential, or with several. A wrong one is counted once it is known whether a limit
    /// refuses it.
    fn credential_unfit(&mut self, AuthFailure { auth, fault }: AuthFailure) {
        let result = match fault {
            CredentialFault::Missing => AuthResult::Missing,
            CredentialFault::Repeated => AuthResult::Repeated,
            CredentialFault::Invalid | CredentialFault::Answered => return,
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
        self.plan.metrics.auth(failure.auth, result);
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
        if self.route.replace(index).is_none() {
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
        for (index, check, label) in DecisionLabel::of_limits(&request.charges, outcome, ruling, known) {
            self.plan.metrics.decision(request.index, index, label);
            self.count_tier(request, index, check, label);
            let refused = match label {
                DecisionLabel::Allowed | DecisionLabel::Delayed => false,
                DecisionLabel::Limited | DecisionLabel::Banned => true,
                DecisionLabel::ShadowLimited => {
                    self.note_shadow(check.limit);
                    true
                }
                DecisionLabel::Exempt => continue,
                DecisionLabel::StoreError => {
                    let Some(word) = unasked_word(check, outcome, ruling.admits()) else { continue };
                    self.plan.metrics.decided_locally(request.index, index, word);
                    if word == LimitVerdict::RefusedInShadow {
                        self.note_shadow(check.limit);
                    }
                    matches!(word, LimitVerdict::Refused | LimitVerdict::RefusedInShadow)
                }
            };
            self.note_asker(request, index, check, refused);
        }
        if let (Some(limit), Some(record)) = (request.charges.decided_locally(outcome), &mut self.log.record)
        {
            (*limit.name).clone_into(&mut record.decision.limit);
            record.decision.label = Some(DecisionLabel::StoreError);
            self.note_key(request, limit);
        }
    }

    /// Notes a limit in shadow that would have refused the request.
    #[cold]
    fn note_shadow(&mut self, limit: &Limit) {
        if let Some(record) = &mut self.log.record {
            let comma = if record.decision.shadow.is_empty() { "" } else { "," };
            record.decision.shadow.extend([comma, &*limit.name]);
        }
    }

    /// Counts a limit's decision by the consumer's tier, if the limit has tiers.
    #[inline]
    fn count_tier(
        &self,
        routed: &RoutedRequest<'_, '_>,
        place: usize,
        check: &LimitCheck<'_>,
        label: DecisionLabel,
    ) {
        if check.limit.tiers.is_empty() {
            return;
        }
        if let Some(limit_use) = routed.route.limits.get(place) {
            self.plan.metrics.tier_decision(limit_use.limit, check.tier, label);
        }
    }

    /// Keeps the text of a key that this request has banned.
    fn name_ban(&self, routed: &RoutedRequest<'_, '_>, banned: usize) {
        let Some(check) = routed.charges.checks.get(banned) else { return };
        if let Some(key_hash) = routed.charges.key_hash(check) {
            let mut label = String::new();
            self.write_label(routed, check.limit, &mut label);
            self.worker.shared.store.bans().set_label(check.limit.banned(key_hash), label);
        }
    }

    /// Counts the request in its key's statistics.
    fn note_asker(
        &self,
        routed: &RoutedRequest<'_, '_>,
        index: usize,
        check: &LimitCheck<'_>,
        refused: bool,
    ) {
        let key_stats = routed.route.limits.get(index).and_then(|one| self.plan.key_stats.get(one.limit.0));
        let Some(key_stats) = key_stats else { return };
        let mut key_stats = key_stats.borrow_mut();
        let Some(key_hash) = routed.charges.key_hash(check) else {
            return key_stats.note_unkeyed(self.started);
        };
        let write_label = |label: &mut String| self.write_label(routed, check.limit, label);
        key_stats.note(key_hash, refused, self.started, write_label);
    }

    /// Writes the values of the request's key under `limit`, masked unless the limit reveals them.
    pub(crate) fn write_label(&self, routed: &RoutedRequest<'_, '_>, limit: &Limit, label: &mut String) {
        let route = routed.route;
        let masking = Masking::of(limit.reveal, &self.plan.short_ids);
        limit.key.write_label(route.matched(&routed.request()), masking, label);
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
            self.note_key(routed, tightest.map_or(refusal.limit, |tightest| tightest.limit));
        }
        self.sample_refusal(routed, refusal, tightest);
    }

    /// Notes the outcome, and the refusing limit for the access log.
    fn note_refusal(&mut self, refusal: &Refusal<'_>, tightest: Option<&BindingLimit<'_>>) {
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
        if let (Some(record), Some(tightest)) = (&mut self.log.record, tightest) {
            (*tightest.limit.name).clone_into(&mut record.decision.limit);
            record.decision.remaining = Some(tightest.decision.remaining);
            record.decision.cost = Some(tightest.cost.units());
            record.decision.label = Some(DecisionLabel::of_binding(tightest));
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
        let Some(auth) = &request.route.auth else { return };
        match (request.caller.consumer, auth.auths.first()) {
            (Some(NamedConsumer { auth, consumer }), _) => {
                if let Some(record) = &mut self.log.record {
                    consumer.name().clone_into(&mut record.consumer.name);
                    consumer.tier().unwrap_or_default().clone_into(&mut record.consumer.tier);
                }
                if let Some(noted) = &mut self.noted {
                    noted.set_consumer(consumer);
                }
                self.plan.metrics.auth(auth, AuthResult::Accepted);
            }
            (None, Some(&first)) => self.plan.metrics.auth(first, AuthResult::Anonymous),
            (None, None) => {}
        }
    }

    fn unauthenticated(&mut self, _: &RoutedRequest<'p, '_>, failure: AuthFailure) {
        self.credential_unfit(failure);
    }

    #[inline]
    fn ruled(&mut self, ruled: &Ruled<'_, 'p, '_>) {
        let &Ruled { phase, request, outcome, ruling, .. } = ruled;
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

/// Begins the record of a request; the rest is filled in as it becomes known. A request refused unread has neither
/// method nor target: the record says `-`.
fn begin(
    record: &mut Record,
    started: Timestamp,
    head: Option<&RequestHead<'_>>,
    client: IpAddr,
    http2: bool,
) {
    *record = std::mem::take(record).emptied();
    record.time = wall_clock::system().wall_time(started);
    record.client = client;
    record.request.method = head.map_or_else(no_method, |head| head.method.clone());
    record.request.version = match head {
        _ if http2 => Version::HTTP_2,
        Some(head) if !head.http_11 => Version::HTTP_10,
        _ => Version::HTTP_11,
    };
    head.map_or("-", |head| head.target.path_and_query()).clone_into(&mut record.request.path);
}

fn no_method() -> Method {
    Method::from_bytes(b"-").unwrap_or_default()
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
