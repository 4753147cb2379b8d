//! The sender of a request of the log, as far as the line tells.

use std::cell::Cell;
use std::collections::HashMap;

use http::{Method, StatusCode};
use smallvec::SmallVec;

use crate::log_reader::request::{LoggedRequest, OwnRecord};
use crate::plan::auth::{AuthIndex, CredentialFault, LoggedCredential, NamedConsumer};
use crate::plan::resolve::LoggedSender;
use crate::plan::{Plan, Route};
use crate::telemetry::metrics::DecisionLabel;

/// The consumers of a plan by name.
#[derive(Debug)]
pub(super) struct ConsumerNames<'p> {
    plan: &'p Plan,
    by_name: HashMap<&'p str, SmallVec<[NamedConsumer<'p>; 1]>>,
    /// Requests of consumers that no auth has.
    unknown: Cell<u64>,
}

impl<'p> ConsumerNames<'p> {
    pub(super) fn new(plan: &'p Plan) -> Self {
        let mut by_name = HashMap::<_, SmallVec<[NamedConsumer<'p>; 1]>>::new();
        for (index, auth) in plan.auths.iter().enumerate() {
            for consumer in auth.consumers() {
                let named = by_name.entry(consumer.name()).or_default();
                // Of several rows with one name, the first counts.
                if named.last().is_none_or(|last| last.auth.0 != index) {
                    named.push(NamedConsumer { auth: AuthIndex(index), consumer });
                }
            }
        }
        Self { plan, by_name, unknown: Cell::new(0) }
    }

    /// The sender of a request.
    pub(super) fn sender(&self, request: &LoggedRequest) -> LoggedSender<'p, '_> {
        let own = request.own.as_ref();
        let redirected = own.is_some_and(|own| {
            request.status == Some(308) && own.decision.is_empty() && own.error.is_empty()
        });
        LoggedSender { client: request.client, secure: !redirected, credential: self.credential(request) }
    }

    /// Requests so far of consumers that no auth has: they count as anonymous.
    pub(super) fn unknown(&self) -> u64 {
        self.unknown.get()
    }

    fn credential(&self, request: &LoggedRequest) -> LoggedCredential<'p, '_> {
        if self.plan.auths.is_empty() {
            return LoggedCredential::Unknown;
        }
        if let Some(named) = self.by_name.get(request.consumer.as_str()) {
            return LoggedCredential::Consumer(named);
        }
        self.unknown.set(self.unknown.get() + u64::from(!request.consumer.is_empty()));
        match request.own.as_ref().and_then(|own| self.refused(own)) {
            Some((fault, auth)) => LoggedCredential::Refused(fault, auth),
            None => LoggedCredential::Unknown,
        }
    }

    /// The fault of a credential that the line tells of, and the auth if it is known.
    fn refused(&self, own: &OwnRecord) -> Option<(CredentialFault, Option<AuthIndex>)> {
        const FAULTS: [CredentialFault; 3] =
            [CredentialFault::Missing, CredentialFault::Invalid, CredentialFault::Repeated];
        if let Some(fault) = FAULTS.into_iter().find(|fault| fault.error() == own.error) {
            let counts = |auth: &&(usize, &crate::plan::auth::Auth)| auth.1.failures.is_some();
            let counted = self.plan.auths.iter().enumerate().find(|auth| counts(&auth));
            return Some((fault, counted.map(|(index, _)| AuthIndex(index))));
        }
        // Refused with 429 by the limit of wrong credentials.
        if own.decision != DecisionLabel::Limited.as_str() {
            return None;
        }
        let limit = self.plan.limit_named(&own.limit)?;
        let auth = self.plan.auths.iter().position(|auth| auth.failures == Some(limit))?;
        let on_routes =
            self.plan.routes.iter().any(|route| route.limits.iter().any(|used| used.limit == limit));
        (!on_routes).then_some((CredentialFault::Invalid, Some(AuthIndex(auth))))
    }
}

/// The status of a request that tollgate answered without asking a limit, for a reason that no line has: a redirect to
/// https, a preflight, an `expect` header, a loop, a key with several values.
pub(super) fn answered_unlogged(
    request: &LoggedRequest,
    route: &Route,
    method: &Method,
) -> Option<StatusCode> {
    let own = request.own.as_ref()?;
    let status = request.status.and_then(|status| StatusCode::from_u16(status).ok())?;
    if matches!(own.error.as_str(), "expectation" | "loop" | "repeated_key") {
        return Some(status);
    }
    let is_preflight =
        *method == Method::OPTIONS && status == StatusCode::NO_CONTENT && own.decision.is_empty();
    (is_preflight && route.cors.is_some()).then_some(status)
}

/// The random number of a request: spread evenly, and the same each time the log is replayed.
pub(super) fn draw(number: u64) -> u64 {
    /// 2^64 divided by the golden ratio.
    const STEP: u64 = 0x9e37_79b9_7f4a_7c15;
    number.wrapping_mul(STEP)
}
