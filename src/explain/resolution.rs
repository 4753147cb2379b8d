//! The request as the gateway would resolve it, without asking anyone.

use std::borrow::Cow;
use std::collections::HashMap;
use std::sync::Arc;

use super::ExplainRequest;
use crate::http1::request::RequestHead;
use crate::limit::Decision;
use crate::limit::units::Fingerprint;
use crate::plan::admission::RequestCharges;
use crate::plan::auth::{
    AuthFailure, AuthIndex, CallerIdentity, CredentialCheck, CredentialFault, NamedConsumer,
    VerificationFault,
};
use crate::plan::decision::{DecisionObserver, LimitPhase, Need, RequestDecision, RequestVerdict, Ruled};
use crate::plan::loop_mark::LoopMark;
use crate::plan::resolve::{
    LocatedRequest, Peer, RouteLookup, RoutedRequest, Unroutable, body_to_read, locate, locate_by_body,
};
use crate::plan::seen_request::SeenRequest;
use crate::plan::{Plan, Route};
use crate::route::RouteIndex;
use crate::route::client::ClientAddress;
use crate::route::content::{RequestContent, UnreadableBody};
use crate::route::identity::Identity;
use crate::route::key::KeySecret;
use crate::store::{Decisions, Known, Outcome};

/// A credential, and how it fits: as the gateway finds it, or as it was verified.
#[derive(Clone, Copy)]
pub(super) enum KnownCredential<'v> {
    /// Nothing is looked up, not even an API key.
    Withheld,
    /// The result of verifying it for this auth.
    Verified(AuthIndex, &'v Result<Arc<Identity>, VerificationFault>),
}

/// The request as the gateway resolves it.
pub(super) struct Resolution<'p, 'r> {
    pub(super) client: ClientAddress,
    pub(super) host: Cow<'r, str>,
    pub(super) route: Option<(RouteIndex, &'p Route)>,
    pub(super) outcome: Result<Resolved<'p, 'r>, Unroutable<'r>>,
}

/// A request with a route.
pub(super) struct Resolved<'p, 'r> {
    /// What is known of it. Its charges are to all limits of the route, if the decision has come to them.
    pub(super) request: RoutedRequest<'p, 'r>,
    /// How the decision ends.
    pub(super) end: End<'p>,
}

/// How the decision ends.
pub(super) enum End<'p> {
    /// With this verdict; of one that counters decide, if these were given.
    Decided(Option<RequestVerdict<'p>>),
    /// The credential for this auth is not verified: nothing is known of what comes after.
    Unverified(AuthIndex),
}

/// What the explanation may use.
#[derive(Clone, Copy)]
pub(super) struct ExplainSources<'s> {
    pub(super) secret: &'s KeySecret,
    pub(super) loop_mark: Option<&'s LoopMark>,
    pub(super) known: Known<'s>,
    /// The counters' decisions, by key; `None`: they are unknown.
    pub(super) decisions: Option<&'s HashMap<Fingerprint, LookedDecision>>,
}

/// What a counter would decide.
#[derive(Clone, Copy, Debug)]
pub struct LookedDecision {
    /// The decision.
    pub decision: Decision,
    /// Whether the shared store is unavailable, so that a counter of this process was looked at.
    pub in_process: bool,
}

static TOO_LARGE: RequestContent = RequestContent::Unreadable(UnreadableBody::TooLarge);

/// Counts nothing.
struct Unobserved;

impl DecisionObserver<'_> for Unobserved {
    fn ruled(&mut self, _: &Ruled<'_, '_, '_>) {}
}

/// Resolves the request, by what is known of its credential: drives its decision by counters that are only looked at.
pub(super) fn resolved<'p: 'r, 'r>(
    plan: &'p Plan,
    request: &'r ExplainRequest,
    head: &'r RequestHead<'r>,
    sources: ExplainSources<'_>,
    credential: Option<KnownCredential<'p>>,
    seen: &'r mut Option<SeenRequest<'r>>,
) -> Resolution<'p, 'r> {
    let first = || plan.server.client_listeners().next()?.name.as_deref();
    let listener = request.listener.as_deref().or_else(first);
    let peer = Peer { address: request.peer, secure: request.uses_tls(plan), certificate: None, listener };
    let content = &request.content;
    let is_needed = *content != RequestContent::Unknown && !plan.body_pointers().is_empty();
    let lookup = match is_needed && body_to_read(plan, head, peer).is_some() {
        true => locate_by_body(plan, sources.loop_mark, (head, content), peer, seen),
        false => locate(plan, sources.loop_mark, head, peer, seen),
    };
    let RouteLookup { client, host, route, outcome } = lookup;
    let outcome = outcome.map(|located| drive(plan, (located, content), sources, credential));
    Resolution { client, host, route, outcome }
}

fn drive<'p, 'r>(
    plan: &'p Plan,
    (located, content): (LocatedRequest<'p, 'r>, &'r RequestContent),
    sources: ExplainSources<'_>,
    credential: Option<KnownCredential<'p>>,
) -> Resolved<'p, 'r> {
    let withheld = match credential {
        Some(KnownCredential::Withheld) => withheld(plan, &located),
        _ => None,
    };
    // Any number does for a split: the explanation names all its upstreams.
    let mut decision = RequestDecision::new(plan, sources.secret, located, 0);
    if let Some(auth) = withheld {
        return Resolved { request: decision.into_request(), end: End::Unverified(auth) };
    }
    let known = sources.known;
    let mut need = decision.begin(known, &mut Unobserved);
    let end = loop {
        need = match need {
            Need::Store => match (decision.phase(), sources.looked(&decision.request().charges)) {
                // A wrong credential was charged when it was verified.
                (LimitPhase::Failures(..), _) => {
                    decision.decided(&Outcome::default(), known, &mut Unobserved)
                }
                (_, Some(outcome)) => decision.decided(&outcome, known, &mut Unobserved),
                // The others are told, too.
                (LimitPhase::BeforeAuth, None) => {
                    decision.decided(&Outcome::default(), known, &mut Unobserved)
                }
                (LimitPhase::Route, None) => break End::Decided(None),
            },
            Need::Credential(auth) => match credential {
                Some(KnownCredential::Verified(auth, Ok(identity))) => {
                    let caller =
                        CallerIdentity { consumer: plan.verified(auth, identity), granted: &identity.fields };
                    decision.accepted(caller, known, &mut Unobserved)
                }
                Some(KnownCredential::Verified(auth, Err(fault))) => {
                    let failure = AuthFailure { auth, fault: fault.credential_fault() };
                    decision.refused(failure, known, &mut Unobserved)
                }
                Some(KnownCredential::Withheld) | None => break End::Unverified(auth),
            },
            // Where the body is unknown, what reads it finds nothing.
            Need::Body => {
                let max = decision.request().route.max_key_body;
                let is_too_large = content.length().is_some_and(|length| length > max);
                let content = if is_too_large { &TOO_LARGE } else { content };
                decision.read(content, known, &mut Unobserved)
            }
            Need::Done => break End::Decided(Some(decision.verdict())),
        };
    };
    let is_of_limits = !matches!(end, End::Unverified(_) | End::Decided(Some(RequestVerdict::Early(_))));
    let mut request = decision.into_request();
    if is_of_limits {
        // A ban, or a limit with `before_auth`, may have ended the decision early.
        let _ = request.explain(plan, sources.secret);
        request.charges.override_numbers(plan, sources.known);
    }
    Resolved { request, end }
}

/// The auth whose credential the request has, which is not looked up.
fn withheld(plan: &Plan, located: &LocatedRequest<'_, '_>) -> Option<AuthIndex> {
    match plan.check_credential(located.route.auth.as_ref()?, &located.request()) {
        CredentialCheck::Pending(auth)
        | CredentialCheck::Known(Some(NamedConsumer { auth, .. }))
        | CredentialCheck::Refused(AuthFailure { auth, fault: CredentialFault::Invalid }) => Some(auth),
        CredentialCheck::Known(None) | CredentialCheck::Refused(_) => None,
    }
}

impl ExplainSources<'_> {
    /// What the counters would decide.
    pub(super) fn looked(&self, charges: &RequestCharges<'_>) -> Option<Outcome> {
        let known = self.decisions?;
        let looked = charges.charges.iter().map(|charge| known.get(&charge.key).copied());
        let looked: Vec<_> = looked.collect::<Option<_>>()?;
        let decisions = looked.iter().map(|looked| looked.decision);
        let mut outcome = Outcome::from(Decisions::Together(decisions.collect()));
        for (index, (charge, _)) in
            charges.charges.iter().zip(&looked).enumerate().filter(|(_, (_, looked))| looked.in_process)
        {
            outcome.note_unavailable(index, charge);
        }
        Some(outcome)
    }
}
