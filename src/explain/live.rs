//! Explanations of a running gateway: credentials are verified away from this thread, and charged, or not looked at.

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::Arc;

use super::descriptors::{explain_call, with_call};
use super::request::DescribedCall;
use super::resolution::{End, ExplainSources, KnownCredential, LookedDecision, Resolved, resolved};
use super::{ExplainRequest, Explanation};
use crate::auth::runtime::{AuthState, CredentialVerification};
use crate::limit::units::{Fingerprint, Micros};
use crate::plan::admission::{Refusal, RefusalCause};
use crate::plan::auth::{AuthFailure, AuthIndex, CredentialFault, VerificationFault};
use crate::plan::decision::{DescriptorCharges, RequestVerdict};
use crate::plan::early_response::EarlyResponse;
use crate::plan::loop_mark::LoopMark;
use crate::plan::reject_reason::RejectReason;
use crate::plan::{LimitIndex, Plan};
use crate::route::identity::Identity;
use crate::route::key::KeySecret;
use crate::route::mask::ShortIds;
use crate::store::Known;
use crate::store::bans::Bans;

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
    /// Its bans and counters, and the time.
    pub known: Known<'a>,
}

/// How the running gateway would decide a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LiveVerdict {
    /// It is admitted, after this delay (zero: at once).
    Admitted(Micros),
    /// It is refused.
    Refused {
        /// The limit with the longest wait.
        limit: LimitIndex,
        /// The wait after which it is admitted; `None`: waiting does not help, or it is unknown for how long.
        wait: Option<Micros>,
        /// Whether a ban refuses it.
        banned: bool,
    },
    /// The shared store is unavailable, and a limit denies requests without it.
    Unavailable,
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
    if let Some(call) = &request.call {
        return explain_call(plan, request, call, running.secret, Some(running.ids));
    }
    let mut spans = Vec::new();
    let head = match request.head(&mut spans) {
        Ok(head) => head,
        Err(fault) => return Explanation::refused(plan, request, fault),
    };
    let (known, reason) = credential.known();
    let mut seen = None;
    let resolution = resolved(plan, request, &head, running.sources(None), known, &mut seen);
    let mut explanation = Explanation::of(plan, request, &head, &resolution, Some(running.ids), reason);
    if let (Some(answer), LiveCredential::Verified(_, Err(fault))) = (&mut explanation.answer, credential) {
        answer.reason = fault.to_string();
    }
    explanation
}

/// How the running gateway would decide the request, by what its counters would decide: `decisions`, by key. `None`: no
/// limit of the route decides.
pub fn decide_live(
    plan: &Plan,
    request: &ExplainRequest,
    running: Running<'_>,
    credential: &LiveCredential,
    decisions: &HashMap<Fingerprint, LookedDecision>,
) -> Option<LiveVerdict> {
    let sources = running.sources(Some(decisions));
    if let Some(call) = &request.call {
        return decide_call(plan, request, call, sources);
    }
    let mut spans = Vec::new();
    let head = request.head(&mut spans).ok()?;
    let (known, _) = credential.known();
    let mut seen = None;
    let resolution = resolved(plan, request, &head, sources, known, &mut seen);
    match resolution.outcome.ok()?.end {
        End::Decided(Some(RequestVerdict::Admitted(delay, _))) => Some(LiveVerdict::Admitted(delay)),
        End::Decided(Some(RequestVerdict::Refused(refusal, _))) => LiveVerdict::refused(plan, &refusal),
        End::Decided(Some(RequestVerdict::Early(response))) => LiveVerdict::of_early(&response),
        End::Decided(Some(RequestVerdict::Answered) | None) | End::Unverified(_) => None,
    }
}

/// How the running gateway would decide a call. `None`: what a counter decides is unknown.
fn decide_call(
    plan: &Plan,
    asked: &ExplainRequest,
    call: &DescribedCall,
    sources: ExplainSources<'_>,
) -> Option<LiveVerdict> {
    let called = call.called(plan);
    with_call(plan, asked, |request| {
        let DescriptorCharges { asked, charged, .. } =
            DescriptorCharges::of(plan, &called, request, sources.secret);
        for mut part in [asked.charges, charged.charges] {
            part.override_numbers(plan, sources.known);
            let ruling = match part.rule_unasked(sources.known) {
                Some(ruling) => ruling,
                None => part.rule(&sources.looked(&part)?, sources.known),
            };
            match ruling.verdict() {
                RequestVerdict::Admitted(..) => {}
                RequestVerdict::Refused(refusal, _) => return LiveVerdict::refused(plan, &refusal),
                RequestVerdict::Early(response) => return LiveVerdict::of_early(&response),
                RequestVerdict::Answered => return None,
            }
        }
        Some(LiveVerdict::Admitted(Micros(0)))
    })?
}

/// The credential of the request, if it has to be verified or is wrong. `states` are what the auths of the plan have
/// learned.
pub fn pending_credential(
    plan: &Plan,
    states: &[AuthState],
    request: &ExplainRequest,
    running: Running<'_>,
) -> Option<PendingCredential> {
    if request.call.is_some() {
        return None;
    }
    let mut spans = Vec::new();
    let head = request.head(&mut spans).ok()?;
    let mut seen = None;
    let resolution = resolved(plan, request, &head, running.sources(None), None, &mut seen);
    let Resolved { request, end } = resolution.outcome.ok()?;
    let seen = request.request();
    let (auth, verification) = match end {
        End::Unverified(auth) => {
            let state = states.get(auth.0)?;
            (auth, Some(plan.verification((auth, state), &seen, running.known.now)?))
        }
        End::Decided(Some(RequestVerdict::Early(EarlyResponse::Unauthenticated(AuthFailure {
            auth,
            fault: CredentialFault::Invalid,
        })))) => (auth, None),
        End::Decided(_) => return None,
    };
    let failure = AuthFailure { auth, fault: CredentialFault::Invalid };
    let charges = plan.failure_charges(failure, request.route, &seen, running.secret);
    let key_hash = charges.and_then(|charges| charges.key_hash(charges.checks.first()?));
    Some(PendingCredential {
        auth,
        verification,
        network: seen.client.network,
        failures: plan.auth(auth).failures.zip(key_hash),
    })
}

impl LiveVerdict {
    /// `None`: the plan has no such limit.
    pub(super) fn refused(plan: &Plan, refusal: &Refusal<'_>) -> Option<Self> {
        Some(Self::Refused {
            limit: plan.limit_named(&refusal.limit.name)?,
            wait: refusal.wait,
            banned: matches!(refusal.why, RefusalCause::Banned { .. }),
        })
    }

    /// `None`: no limit is the cause of this response.
    fn of_early(response: &EarlyResponse) -> Option<Self> {
        (response.error() == Some(RejectReason::unavailable().error)).then_some(Self::Unavailable)
    }
}

impl<'a> Running<'a> {
    /// Without the counters' decisions the explanation is about all limits, so that no ban ends it.
    fn sources(self, decisions: Option<&'a HashMap<Fingerprint, LookedDecision>>) -> ExplainSources<'a> {
        let Self { secret, loop_mark, known, .. } = self;
        let bans = if decisions.is_some() { known.bans } else { Bans::none() };
        let known = Known { bans, ..known };
        ExplainSources { secret, loop_mark: Some(loop_mark), known, decisions }
    }
}

impl LiveCredential {
    /// What is known of it, and why no more.
    fn known(&self) -> (Option<KnownCredential<'_>>, &'static str) {
        match self {
            Self::Withheld(reason) => (Some(KnownCredential::Withheld), reason),
            Self::Unverified(reason) => (None, reason),
            Self::Verified(auth, result) => (Some(KnownCredential::Verified(*auth, result)), ""),
        }
    }
}
