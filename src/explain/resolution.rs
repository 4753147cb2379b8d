//! The request as the gateway would resolve it, without asking anyone.

use std::borrow::Cow;
use std::sync::Arc;

use super::ExplainRequest;
use crate::http1::request::RequestHead;
use crate::plan::auth::{
    AuthFailure, AuthIndex, CallerIdentity, CredentialCheck, CredentialFault, NamedConsumer,
    VerificationFault,
};
use crate::plan::loop_mark::LoopMark;
use crate::plan::resolve::{
    EarlyResponse, LocatedRequest, Peer, RouteLookup, RoutedRequest, Unroutable, locate,
};
use crate::plan::seen_request::SeenRequest;
use crate::plan::{Plan, Route};
use crate::route::RouteIndex;
use crate::route::client::ClientAddress;
use crate::route::identity::Identity;
use crate::route::key::KeySecret;

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
    pub(super) outcome: Result<RoutedRequest<'p, 'r>, Unresolved<'r>>,
}

/// A request whose limits are not known.
pub(super) struct Unresolved<'r> {
    pub(super) stop: Stop,
    /// The request as routes see it, if its path is valid.
    pub(super) seen: Option<Box<SeenRequest<'r>>>,
}

/// Why the limits of a request are not known.
pub(super) enum Stop {
    /// It is answered before.
    Answered(EarlyResponse),
    /// The credential for this auth is not verified.
    Unverified(AuthIndex),
}

/// Resolves the request, by what is known of its credential.
pub(super) fn resolved<'p, 'r>(
    plan: &'p Plan,
    request: &ExplainRequest,
    head: &'r RequestHead<'r>,
    (secret, loop_mark): (&KeySecret, Option<&LoopMark>),
    credential: Option<KnownCredential<'p>>,
) -> Resolution<'p, 'r> {
    // With TLS, so that the route behind a redirect is explained too.
    let peer = Peer { address: request.peer, secure: true, subject: None };
    let RouteLookup { client, host, route, outcome } = locate(plan, loop_mark, head, peer);
    let answered = |Unroutable { response, seen }| Unresolved { stop: Stop::Answered(response), seen };
    let outcome = outcome.map_err(answered).and_then(|located| {
        match caller(plan, &located, credential) {
            // Any number does for a split: the explanation names all its upstreams.
            Ok(caller) => located.assign(plan, secret, caller, 0).map_err(answered),
            Err(stop) => Err(Unresolved { stop, seen: Some(Box::new(located.seen)) }),
        }
    });
    Resolution { client, host, route, outcome }
}

/// What the credential of a request tells.
fn caller<'p>(
    plan: &'p Plan,
    located: &LocatedRequest<'p, '_>,
    credential: Option<KnownCredential<'p>>,
) -> Result<CallerIdentity<'p>, Stop> {
    let Some(auth) = &located.route.auth else { return Ok(CallerIdentity::default()) };
    let check = plan.check_credential(auth, &located.request());
    let refused = |failure| Err(Stop::Answered(EarlyResponse::Unauthenticated(failure)));
    match (credential, check) {
        (Some(KnownCredential::Verified(auth, result)), CredentialCheck::Pending(_)) => match result {
            Ok(identity) => {
                Ok(CallerIdentity { consumer: plan.verified(auth, identity), granted: &identity.fields })
            }
            Err(fault) => refused(AuthFailure { auth, fault: fault.credential_fault() }),
        },
        (_, CredentialCheck::Pending(auth))
        | (
            Some(KnownCredential::Withheld),
            CredentialCheck::Known(Some(NamedConsumer { auth, .. }))
            | CredentialCheck::Refused(AuthFailure { auth, fault: CredentialFault::Invalid }),
        ) => Err(Stop::Unverified(auth)),
        (_, CredentialCheck::Known(consumer)) => Ok(CallerIdentity { consumer, granted: &[] }),
        (_, CredentialCheck::Refused(failure)) => refused(failure),
    }
}
