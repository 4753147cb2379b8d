//! The sender of a request of the log, as far as the line tells.

use std::cell::{Cell, OnceCell, RefCell};
use std::collections::HashMap;

use http::{Method, StatusCode};
use smallvec::SmallVec;

use crate::auth::method::AuthMethod;
use crate::log_reader::request::{LoggedRequest, OwnRecord};
use crate::plan::auth::{AuthFailure, AuthIndex, CredentialCheck, CredentialFault, NamedConsumer, RouteAuth};
use crate::plan::resolve::{LocatedRequest, LoggedSender};
use crate::plan::{Plan, Route};
use crate::route::consumers::Consumer;
use crate::route::credential::Credential;
use crate::route::identity::Identity;
use crate::telemetry::metrics::DecisionLabel;

/// The consumers whose credentials are verified, as a log names them: no file has them. Outlives the replay.
#[derive(Debug, Default)]
pub struct LoggedConsumers(OnceCell<Box<LoggedConsumer>>);

#[derive(Debug)]
struct LoggedConsumer {
    identity: Identity,
    next: LoggedConsumers,
}

impl Drop for LoggedConsumers {
    /// One after the other: a log may name millions.
    fn drop(&mut self) {
        let mut next = self.0.take();
        while let Some(mut consumer) = next {
            next = consumer.next.0.take();
        }
    }
}

/// The consumers of a plan by name.
#[derive(Debug)]
pub(super) struct ConsumerNames<'p> {
    plan: &'p Plan,
    by_name: HashMap<&'p str, SmallVec<[NamedConsumer<'p>; 1]>>,
    /// Some auth verifies credentials, so that it may have named any consumer.
    verifies: bool,
    verified: RefCell<HashMap<&'p str, SmallVec<[&'p Identity; 1]>>>,
    /// The end of the list.
    last: Cell<&'p LoggedConsumers>,
    /// Requests of consumers that no auth has.
    unknown: Cell<u64>,
    /// Requests with a key that no consumer has.
    wrong_keys: Cell<u64>,
}

impl<'p> ConsumerNames<'p> {
    pub(super) fn new(plan: &'p Plan, logged: &'p LoggedConsumers) -> Self {
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
        let verifies = plan.auths.iter().any(|auth| auth.api_keys().is_none());
        let (verified, last) = (RefCell::default(), Cell::new(logged));
        Self { plan, by_name, verifies, verified, last, unknown: Cell::new(0), wrong_keys: Cell::new(0) }
    }

    /// The sender of a request.
    pub(super) fn sender(request: &LoggedRequest) -> LoggedSender {
        let own = request.own.as_ref();
        let redirected = own.is_some_and(|own| {
            request.status == Some(308) && own.decision.is_empty() && own.error.is_empty()
        });
        LoggedSender { client: request.client, secure: !redirected }
    }

    /// Requests so far of consumers that no auth has: they count as anonymous.
    pub(super) fn unknown(&self) -> u64 {
        self.unknown.get()
    }

    /// What the line tells of the request's credential on its route: the name of a consumer or, where the log has the
    /// header with API keys, the key. A consumer that is not known to the route counts as anonymous.
    pub(super) fn check(
        &self,
        request: &LoggedRequest,
        located: &LocatedRequest<'p, '_>,
    ) -> CredentialCheck<'p> {
        let route = located.route;
        let named = self.by_name.get(request.consumer.as_str());
        let is_unknown = named.is_none() && !self.verifies && !self.plan.auths.is_empty();
        let note_unknown = || {
            let count = u64::from(is_unknown && !request.consumer.is_empty());
            self.unknown.set(self.unknown.get() + count);
        };
        let Some(auth) = &route.auth else {
            note_unknown();
            return CredentialCheck::Known(None);
        };
        let on_route = |named: &&NamedConsumer<'p>| auth.auths.contains(&named.auth);
        if let Some(named) = named.and_then(|named| named.iter().find(on_route)) {
            return CredentialCheck::Known(Some(*named));
        }
        let refused = request.own.as_ref().and_then(|own| self.refused(own));
        if let (Some((fault, by)), Some(&first)) = (refused, auth.auths.first()) {
            let auth = by.filter(|by| auth.auths.contains(by)).unwrap_or(first);
            note_unknown();
            return CredentialCheck::Refused(AuthFailure { auth, fault });
        }
        if let Some(found) = self.look_up(request, auth, located) {
            return found;
        }
        note_unknown();
        let verifies = |index: &&AuthIndex| self.plan.auth(**index).api_keys().is_none();
        CredentialCheck::Known(match (request.consumer.as_str(), auth.auths.iter().find(verifies)) {
            ("", _) | (_, None) => None,
            (name, Some(&auth)) => {
                let tier = request.own.as_ref().map_or("", |own| own.tier.as_str());
                Some(NamedConsumer { auth, consumer: Consumer::verified(self.identity(name, tier)) })
            }
        })
    }

    /// The consumer of the API key in the line, as the gateway finds it; a key that no consumer of the route has is wrong.
    /// `None`: the line has no key, or is tollgate's own, which hides keys and names consumers.
    fn look_up(
        &self,
        request: &LoggedRequest,
        auth: &RouteAuth,
        located: &LocatedRequest<'p, '_>,
    ) -> Option<CredentialCheck<'p>> {
        if request.own.is_some() {
            return None;
        }
        let seen = located.seen.request();
        let mut wrong = None;
        for &index in &auth.auths {
            let AuthMethod::ApiKeys(keys) = &self.plan.auth(index).method else { continue };
            let Credential::Single(key) = self.plan.auth(index).source.find(&seen) else { continue };
            if let Some(consumer) = keys.consumers.find(&key) {
                return Some(CredentialCheck::Known(Some(NamedConsumer { auth: index, consumer })));
            }
            wrong.get_or_insert(AuthFailure { auth: index, fault: CredentialFault::Invalid });
        }
        // A credential that is verified may stand in the same place.
        let is_certain = auth.auths.iter().all(|index| self.plan.auth(*index).api_keys().is_some());
        let wrong = wrong.filter(|_| is_certain)?;
        self.wrong_keys.set(self.wrong_keys.get() + 1);
        Some(CredentialCheck::Refused(wrong))
    }

    /// Requests so far with a key that no consumer of the route has: they are refused.
    pub(super) fn wrong_keys(&self) -> u64 {
        self.wrong_keys.get()
    }

    /// The identity that a verified credential has named.
    fn identity(&self, name: &str, tier: &str) -> &'p Identity {
        let mut verified = self.verified.borrow_mut();
        let of_tier = |known: &&&'p Identity| known.tier.as_deref().unwrap_or_default() == tier;
        if let Some(known) = verified.get(name).and_then(|known| known.iter().find(of_tier)) {
            return known;
        }
        let tier = (!tier.is_empty()).then(|| tier.into());
        let identity = Identity { name: name.into(), tier, ..Identity::anonymous() };
        let consumer = || Box::new(LoggedConsumer { identity, next: LoggedConsumers::default() });
        let consumer = self.last.get().0.get_or_init(consumer);
        self.last.set(&consumer.next);
        verified.entry(&consumer.identity.name).or_default().push(&consumer.identity);
        &consumer.identity
    }

    /// The fault of a credential that the line tells of, and the auth if it is known.
    fn refused(&self, own: &OwnRecord) -> Option<(CredentialFault, Option<AuthIndex>)> {
        const FAULTS: [CredentialFault; 4] = [
            CredentialFault::Missing,
            CredentialFault::Invalid,
            CredentialFault::Repeated,
            CredentialFault::Insufficient,
        ];
        if own.error == CredentialFault::Answered.error() {
            let service = self.plan.auths.iter().position(|auth| auth.forward().is_some());
            return Some((CredentialFault::Answered, service.map(AuthIndex)));
        }
        if let Some(fault) = FAULTS.into_iter().find(|fault| fault.error() == own.error) {
            let counts = |auth: &&(usize, &crate::plan::auth::Auth)| auth.1.failures.is_some();
            let counted = self.plan.auths.iter().enumerate().find(|auth| counts(&auth));
            return Some((fault, counted.map(|(index, _)| AuthIndex(index))));
        }
        // Refused with 429 by the limit of wrong credentials.
        let refusals = [DecisionLabel::Limited, DecisionLabel::Banned].map(DecisionLabel::as_str);
        if !refusals.contains(&own.decision.as_str()) {
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
