//! Explanations of a running gateway: credentials are verified away from this thread, and charged, or not looked at.

use std::net::IpAddr;
use std::sync::Arc;

use super::resolution::{KnownCredential, Stop, Unresolved, resolved};
use super::{ExplainRequest, Explanation};
use crate::auth::runtime::{AuthState, CredentialVerification};
use crate::limit::units::{Fingerprint, Timestamp};
use crate::plan::auth::{AuthFailure, AuthIndex, CredentialFault, VerificationFault};
use crate::plan::loop_mark::LoopMark;
use crate::plan::resolve::EarlyResponse;
use crate::plan::{LimitIndex, Plan};
use crate::route::identity::Identity;
use crate::route::key::KeySecret;
use crate::route::mask::ShortIds;

/// Data of a running gateway. With its `secret`, owners are those of its counters. With its `ids`, masked values have
/// the short ids of its other views. With its `loop_mark`, forwarding loops are detected.
#[derive(Clone, Copy, Debug)]
pub struct Running<'a> {
    /// Keys the fingerprints of clients' keys.
    pub secret: &'a KeySecret,
    /// Keys the short ids of masked values.
    pub ids: &'a ShortIds,
    /// Shows the process that a request has passed it before.
    pub loop_mark: &'a LoopMark,
    /// The time.
    pub now: Timestamp,
}

/// What the explanation may use of the request's credential.
#[derive(Clone, Debug)]
pub enum LiveCredential {
    /// Nothing, for this reason: neither API keys nor what was verified before is looked up.
    Withheld(&'static str),
    /// An API key, or what was verified before; no other password and token, for this reason.
    Unverified(&'static str),
    /// The result of verifying it for this auth.
    Verified(AuthIndex, Result<Arc<Identity>, VerificationFault>),
}

/// A credential that has to be verified before its request is explained, or is wrong.
#[derive(Debug)]
pub struct PendingCredential {
    /// The auth that it is for.
    pub auth: AuthIndex,
    /// How it is verified; `None`: it is wrong.
    pub verification: Option<CredentialVerification>,
    /// The network that stands for its client.
    pub network: IpAddr,
    /// The limit on wrong credentials, and the key that a wrong one is charged to.
    pub failures: Option<(LimitIndex, Fingerprint)>,
}

/// Explains what the running gateway would do with the request. No counter is read or charged.
pub fn explain_live(
    plan: &Plan,
    request: &ExplainRequest,
    running: Running<'_>,
    credential: &LiveCredential,
) -> Explanation {
    let mut spans = Vec::new();
    let head = match request.head(&mut spans) {
        Ok(head) => head,
        Err(fault) => return Explanation::refused(plan, request, fault),
    };
    let (known, reason) = match credential {
        LiveCredential::Withheld(reason) => (Some(KnownCredential::Withheld), *reason),
        LiveCredential::Unverified(reason) => (None, *reason),
        LiveCredential::Verified(auth, result) => (Some(KnownCredential::Verified(*auth, result)), ""),
    };
    let keyed = (running.secret, Some(running.loop_mark));
    let resolution = resolved(plan, request, &head, keyed, known);
    let mut explanation = Explanation::of(plan, request, &head, &resolution, Some(running.ids), reason);
    if let (Some(answer), LiveCredential::Verified(_, Err(fault))) = (&mut explanation.answer, credential) {
        answer.reason = fault.to_string();
    }
    explanation
}

/// The credential of the request, if it has to be verified or is wrong. `states` are what the auths of the plan have
/// learned.
pub fn pending_credential(
    plan: &Plan,
    states: &[AuthState],
    request: &ExplainRequest,
    running: Running<'_>,
) -> Option<PendingCredential> {
    let mut spans = Vec::new();
    let head = request.head(&mut spans).ok()?;
    let resolution = resolved(plan, request, &head, (running.secret, Some(running.loop_mark)), None);
    let Unresolved { stop, seen } = resolution.outcome.err()?;
    let (seen, (_, route)) = (seen?, resolution.route?);
    let (auth, verification) = match stop {
        Stop::Unverified(auth) => {
            let state = states.get(auth.0)?;
            (auth, Some(plan.verification((auth, state), &seen.request(), running.now)?))
        }
        Stop::Answered(EarlyResponse::Unauthenticated(AuthFailure {
            auth,
            fault: CredentialFault::Invalid,
        })) => (auth, None),
        Stop::Answered(_) => return None,
    };
    let failure = AuthFailure { auth, fault: CredentialFault::Invalid };
    let charges = plan.failure_charges(failure, route, &seen.request(), running.secret);
    let owner = charges.and_then(|charges| charges.owner(charges.checks.first()?));
    Some(PendingCredential {
        auth,
        verification,
        network: seen.request().client.network,
        failures: plan.auth(auth).failures.zip(owner),
    })
}
