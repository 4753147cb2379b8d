//! The decision on a request: its steps, their order, and what follows from each.
//!
//! Bans of keys that need no credential and no body → limits with `before_auth` → credential → body → the other bans →
//! keys that are missing → the other limits → bans that the store told of.
//!
//! [`RequestDecision`] is a machine without I/O, clock or randomness: it says what it needs, and is told what the world answered.
//! The proxy drives it with async, `replay` in virtual time, and `explain` with counters that it only looks at.

mod auth_in_shadow;
mod before_check;
mod call;
mod descriptors;
mod named_limits;
mod observer;
mod ruling;

use super::admission::{BindingLimit, Refusal, RequestCharges};
use super::auth::{AuthFailure, AuthIndex, CallerIdentity, CredentialCheck, CredentialFault};
use super::early_response::EarlyResponse;
use super::reject_reason::RejectReason;
use super::resolve::{LocatedRequest, RoutedRequest};
use super::{BatchRule, Limit, LimitUse, PathEdit, Plan};
use crate::limit::units::Micros;
use crate::route::content::RequestContent;
use crate::route::key::KeySecret;
use crate::store::{Known, Outcome};
pub use before_check::BeforeCheck;
pub use call::{CallCharges, CallItem, CheckOwner, NamedKey};
pub use descriptors::{
    CALL_OF_DESCRIPTORS, CALL_OF_LIMITS, CalledDescriptor, DescriptorCharges, DescriptorUse, Overriding,
    WrittenDescriptor, read_descriptors, write_descriptors,
};
pub use named_limits::{CalledLimit, read_limits, write_limits};
pub use observer::{DecisionObserver, Ruled};
pub use ruling::Ruling;

/// The decision on one request.
#[derive(Debug)]
pub struct RequestDecision<'p, 'r> {
    plan: &'p Plan,
    secret: KeySecret,
    /// The request's random number.
    draw: u64,
    phase: LimitPhase,
    /// What a log tells of its credential, which is not there to be looked at.
    logged: Option<CredentialCheck<'p>>,
    /// Another proxy forwards it, so that some limits cannot decide on it.
    is_asked: bool,
    /// What the limits of the last phase have ruled. Kept here, since moving it costs measurably.
    ruling: Option<Ruling<'p>>,
    /// The answer before the limits decide.
    early: Option<EarlyAnswer>,
    request: RoutedRequest<'p, 'r>,
}

/// The limits that are decided together.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LimitPhase {
    /// Those with `before_auth`.
    BeforeAuth,
    /// The limit on wrong credentials.
    Failures(AuthFailure, FailureKind),
    /// The others of the route.
    Route,
}

/// What is charged to the limit on wrong credentials.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FailureKind {
    /// A credential that the gateway has refused.
    Refused,
    /// One that a service has refused: its answer goes to the client.
    Answered,
    /// One that is not checked, since the limit was used up.
    Unchecked,
}

/// How a request is answered before its limits decide.
#[derive(Debug)]
enum EarlyAnswer {
    Response(EarlyResponse),
    /// The answer of the service.
    Service,
}

/// What the decision needs next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Need {
    /// The store's decision on the charges of the request: [`RequestDecision::decided`].
    Store,
    /// The result of verifying the credential for this auth: [`RequestDecision::accepted`], [`RequestDecision::refused`] or
    /// [`RequestDecision::answered`].
    Credential(AuthIndex),
    /// The body: [`RequestDecision::read`].
    Body,
    /// Nothing: see [`RequestDecision::verdict`].
    Done,
}

/// The end of the decision.
#[derive(Debug)]
pub enum RequestVerdict<'p> {
    /// The limits admit the request, after this delay.
    Admitted(Micros, Option<BindingLimit<'p>>),
    /// A limit refuses it. `Some`: the numbers that the response tells.
    Refused(Refusal<'p>, Option<BindingLimit<'p>>),
    /// It is answered before its limits decide.
    Early(EarlyResponse),
    /// The client gets the answer of the service that has refused it.
    Answered,
}

impl<'p, 'r> RequestDecision<'p, 'r> {
    /// Of a request with a route. Its random number picks one of several upstreams.
    #[inline]
    pub fn new(plan: &'p Plan, secret: &KeySecret, located: LocatedRequest<'p, 'r>, draw: u64) -> Self {
        let request = RoutedRequest::new(located);
        Self {
            plan,
            secret: *secret,
            draw,
            phase: LimitPhase::Route,
            logged: None,
            is_asked: false,
            ruling: None,
            early: None,
            request,
        }
    }

    /// The same request, as a log tells of its credential.
    #[must_use]
    pub fn with_logged_credential(self, logged: CredentialCheck<'p>) -> Self {
        Self { logged: Some(logged), ..self }
    }

    /// The same request, which another proxy forwards: limits that [cannot be asked](LimitUse::can_be_asked) are left out.
    #[must_use]
    pub fn of_another_proxy(self) -> Self {
        Self { is_asked: true, ..self }
    }

    /// Whether another proxy forwards it.
    pub fn is_of_another_proxy(&self) -> bool {
        self.is_asked
    }

    /// The request, as far as it is known.
    pub fn request(&self) -> &RoutedRequest<'p, 'r> {
        &self.request
    }

    /// The same, once the decision has ended.
    pub fn request_mut(&mut self) -> &mut RoutedRequest<'p, 'r> {
        &mut self.request
    }

    /// The same, as its own.
    pub fn into_request(self) -> RoutedRequest<'p, 'r> {
        self.request
    }

    /// The limits that are decided now, or were decided last.
    pub fn phase(&self) -> LimitPhase {
        self.phase
    }

    /// The first step.
    #[inline]
    pub fn begin(&mut self, known: Known<'_>, observer: &mut impl DecisionObserver<'p>) -> Need {
        let route = self.request.route;
        if route.limits_before_auth {
            return self.before_auth(known, observer);
        }
        match self.check_credential() {
            CredentialCheck::Known(consumer) if !route.reads_body && !route.requires() => {
                self.request.caller.consumer = consumer;
                self.route_limits(route.batch.of_body_route(), known, observer)
            }
            check => self.learn(check, known, observer),
        }
    }

    /// Looks for bans before the credential is looked at or the body is read: a client that is banned causes no such work.
    #[cold]
    fn learn(
        &mut self,
        check: CredentialCheck<'p>,
        known: Known<'_>,
        observer: &mut impl DecisionObserver<'p>,
    ) -> Need {
        match self.early_ban(known) {
            Some(ruling) => self.ruled_unasked(ruling, known, observer),
            None => self.checked(check, known, observer),
        }
    }

    /// Bans, and then the limits with `before_auth`.
    #[cold]
    fn before_auth(&mut self, known: Known<'_>, observer: &mut impl DecisionObserver<'p>) -> Need {
        if let Some(ruling) = self.early_ban(known) {
            return self.ruled_unasked(ruling, known, observer);
        }
        self.phase = LimitPhase::BeforeAuth;
        self.charge(|limit| limit.before_auth);
        self.ask(known, observer)
    }

    /// Computes the charges to those limits of the route that are `charged` now.
    #[inline]
    fn charge(&mut self, charged: impl Fn(&Limit) -> bool) {
        let is_asked = self.is_asked;
        let decides =
            |limit: &Limit, used: &LimitUse| charged(limit) && (!is_asked || used.can_be_asked(limit));
        // Limits that decide before the body is read count requests.
        let calls = self.phase == LimitPhase::Route;
        self.request.charge(self.plan, &self.secret, calls, decides);
    }

    /// The ban of a key that needs neither a credential nor a body. The charges are then those of such keys.
    fn early_ban(&mut self, known: Known<'_>) -> Option<Ruling<'p>> {
        if known.bans.is_empty() {
            return None;
        }
        self.charge(|limit| limit.key.is_known_before_auth());
        self.request.charges.override_numbers(self.plan, known);
        self.request.charges.ban(known)
    }

    fn check_credential(&self) -> CredentialCheck<'p> {
        match (&self.request.route.auth, self.logged) {
            (_, Some(logged)) => logged,
            (Some(auth), None) => self.plan.check_credential(auth, &self.request.request()),
            (None, None) => CredentialCheck::Known(None),
        }
    }

    fn checked(
        &mut self,
        check: CredentialCheck<'p>,
        known: Known<'_>,
        observer: &mut impl DecisionObserver<'p>,
    ) -> Need {
        match check {
            CredentialCheck::Known(consumer) => {
                self.accepted(CallerIdentity { consumer, granted: &[] }, known, observer)
            }
            CredentialCheck::Refused(failure) => self.refused(failure, known, observer),
            CredentialCheck::Pending(auth) => Need::Credential(auth),
        }
    }

    /// The credential is in order, or none is needed.
    pub fn accepted(
        &mut self,
        caller: CallerIdentity<'p>,
        known: Known<'_>,
        observer: &mut impl DecisionObserver<'p>,
    ) -> Need {
        self.request.caller = caller;
        let auth = self.request.route.auth.as_ref();
        if let Some(failure) = auth.and_then(|auth| auth.insufficient(caller.consumer, self.logged.is_some()))
        {
            if self.is_in_shadow() {
                return self.refused_in_shadow(failure, known, observer);
            }
            observer.insufficient(&self.request, failure);
            return self.end(EarlyAnswer::Response(EarlyResponse::Unauthenticated(failure)));
        }
        self.body_or_limits(known, observer)
    }

    fn body_or_limits(&mut self, known: Known<'_>, observer: &mut impl DecisionObserver<'p>) -> Need {
        if self.request.route.reads_body && *self.request.content == RequestContent::Unknown {
            return Need::Body;
        }
        // Where the body is known, the route was found by it.
        self.route_limits(self.request.route.batch.of_body_route(), known, observer)
    }

    /// There is no credential that is right. A wrong one is charged to the limit on such credentials.
    pub fn refused(
        &mut self,
        failure: AuthFailure,
        known: Known<'_>,
        observer: &mut impl DecisionObserver<'p>,
    ) -> Need {
        if self.is_in_shadow() {
            return self.refused_in_shadow(failure, known, observer);
        }
        observer.unauthenticated(&self.request, failure);
        self.charge_failure(failure, FailureKind::Refused, known, observer)
    }

    /// A service has refused the request. `refuses_credential`: that is charged to the limit on wrong credentials.
    pub fn answered(
        &mut self,
        auth: AuthIndex,
        refuses_credential: bool,
        known: Known<'_>,
        observer: &mut impl DecisionObserver<'p>,
    ) -> Need {
        let failure = AuthFailure { auth, fault: CredentialFault::Answered };
        if self.is_in_shadow() {
            return self.refused_in_shadow(failure, known, observer);
        }
        observer.unauthenticated(&self.request, failure);
        if !refuses_credential {
            return self.end(EarlyAnswer::Service);
        }
        let failure = AuthFailure { fault: CredentialFault::Invalid, ..failure };
        self.charge_failure(failure, FailureKind::Answered, known, observer)
    }

    fn charge_failure(
        &mut self,
        failure: AuthFailure,
        kind: FailureKind,
        known: Known<'_>,
        observer: &mut impl DecisionObserver<'p>,
    ) -> Need {
        self.phase = LimitPhase::Failures(failure, kind);
        match self.failure_charges(failure) {
            Some(charges) => {
                self.request.charges = charges;
                self.ask(known, observer)
            }
            None => self.failed(failure, kind),
        }
    }

    fn failure_charges(&self, failure: AuthFailure) -> Option<RequestCharges<'p>> {
        let route = self.request.route;
        self.plan.failure_charges(failure, route, &self.request.request(), &self.secret)
    }

    /// The limit on wrong credentials admits one more.
    fn failed(&mut self, failure: AuthFailure, kind: FailureKind) -> Need {
        match kind {
            FailureKind::Refused => self.end(EarlyAnswer::Response(EarlyResponse::Unauthenticated(failure))),
            FailureKind::Answered => self.end(EarlyAnswer::Service),
            FailureKind::Unchecked => Need::Credential(failure.auth),
        }
    }

    /// The request is answered before its limits decide: also by what its driver found, such as a body that did not come.
    #[cold]
    pub fn reject(&mut self, reason: RejectReason) -> Need {
        self.end(EarlyAnswer::Response(reason.into()))
    }

    fn end(&mut self, answer: EarlyAnswer) -> Need {
        self.early = Some(answer);
        Need::Done
    }

    /// The body was read.
    pub fn read(
        &mut self,
        content: &'r RequestContent,
        known: Known<'_>,
        observer: &mut impl DecisionObserver<'p>,
    ) -> Need {
        self.request.content = content;
        self.route_limits(self.request.route.batch, known, observer)
    }

    #[inline]
    fn route_limits(
        &mut self,
        batch: BatchRule,
        known: Known<'_>,
        observer: &mut impl DecisionObserver<'p>,
    ) -> Need {
        observer.authenticated(&self.request);
        self.phase = LimitPhase::Route;
        if let RequestContent::Batch(_) | RequestContent::Unreadable(_) = self.request.content
            && let Err(reason) = batch.check(self.request.content)
        {
            return self.reject(reason);
        }
        // An ambiguous target is refused before it is charged. Only admitted requests need another target.
        if (self.rewrites() || self.request.route.counts_by_upstream)
            && let Err(reason) = self.request.assign(self.plan, self.draw)
        {
            return self.reject(reason);
        }
        self.charge(|limit| !limit.before_auth);
        // An override charges a key that its tier does not.
        self.request.charges.override_numbers(self.plan, known);
        if self.request.charges.are_too_many() {
            return self.reject(RejectReason::batch_keys());
        }
        self.ask(known, observer)
    }

    /// Asks the store, unless what is known decides.
    #[inline]
    fn ask(&mut self, known: Known<'_>, observer: &mut impl DecisionObserver<'p>) -> Need {
        self.request.charges.override_numbers(self.plan, known);
        match self.request.charges.rule_unasked(known) {
            Some(ruling) => self.ruled_unasked(ruling, known, observer),
            None if self.request.charges.charges.is_empty() => {
                self.decided(&Outcome::default(), known, observer)
            }
            None => Need::Store,
        }
    }

    /// The store has decided on the charges.
    #[inline]
    pub fn decided(
        &mut self,
        outcome: &Outcome,
        known: Known<'_>,
        observer: &mut impl DecisionObserver<'p>,
    ) -> Need {
        self.ruling = Some(self.request.charges.rule(outcome, known));
        self.ruled(outcome, known, observer)
    }

    /// What is known has decided.
    #[cold]
    fn ruled_unasked(
        &mut self,
        ruling: Ruling<'p>,
        known: Known<'_>,
        observer: &mut impl DecisionObserver<'p>,
    ) -> Need {
        self.ruling = Some(ruling);
        self.ruled(&Outcome::default(), known, observer)
    }

    /// The limits of the phase have ruled.
    #[inline]
    fn ruled(
        &mut self,
        outcome: &Outcome,
        known: Known<'_>,
        observer: &mut impl DecisionObserver<'p>,
    ) -> Need {
        let Self { phase, request, ruling: Some(ruling), .. } = &*self else { return Need::Done };
        observer.ruled(&Ruled { phase: *phase, request, outcome, ruling, known });
        match *phase {
            LimitPhase::Route if ruling.admits() && self.request.upstream.is_none() => self.assigned(),
            LimitPhase::Route => Need::Done,
            _ if !ruling.admits() => Need::Done,
            LimitPhase::BeforeAuth => self.admitted_before_auth(outcome, known, observer),
            LimitPhase::Failures(failure, kind) => self.failed(failure, kind),
        }
    }

    /// Whether the route makes a target of parts of the path, which may be ambiguous.
    fn rewrites(&self) -> bool {
        matches!(self.request.route.path_edit, Some(PathEdit::Rewrite(_)))
    }

    /// The request is admitted, and gets its destination.
    #[inline]
    fn assigned(&mut self) -> Need {
        match self.request.assign(self.plan, self.draw) {
            Ok(()) => Need::Done,
            Err(reason) => self.reject(reason),
        }
    }

    #[cold]
    fn admitted_before_auth(
        &mut self,
        outcome: &Outcome,
        known: Known<'_>,
        observer: &mut impl DecisionObserver<'p>,
    ) -> Need {
        self.request.charges.before = self.request.charges.reported(outcome, true);
        self.checked(self.check_credential(), known, observer)
    }

    /// The end of the decision, once nothing is needed.
    #[inline]
    pub fn verdict(&mut self) -> RequestVerdict<'p> {
        match (self.early.take(), self.ruling.take()) {
            (Some(EarlyAnswer::Response(response)), _) => RequestVerdict::Early(response),
            (Some(EarlyAnswer::Service), _) => RequestVerdict::Answered,
            (None, Some(ruling)) => ruling.verdict(),
            // No step ends so.
            (None, None) => RequestVerdict::Early(RejectReason::unverified().into()),
        }
    }
}
