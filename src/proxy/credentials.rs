//! Credentials of a request that have to be verified, and the refusal of wrong ones.

use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::net::IpAddr;
use std::sync::Arc;

use http::HeaderValue;

use super::decide::{OverLimitRequest, RequestAction, banned, banned_by_store, decide};
use super::request_context::RequestContext;
use super::request_reader::RequestReader;
use super::worker::WorkerPlan;
use crate::auth::forward::{ForwardAuth, ForwardOutcome, ServiceAnswer};
use crate::auth::jwt::TokenFault;
use crate::auth::password_lanes::Join;
use crate::auth::passwords::PasswordCheck;
use crate::auth::tokens::TokenVerification;
use crate::auth::verification_pool::QueueFull;
use crate::clock::now;
use crate::plan::Route;
use crate::plan::admission::{AdmissionDecision, BanRefusal, BindingLimit, Refusal, RequestCharges};
use crate::plan::auth::{
    AuthFailure, AuthIndex, CredentialFault, CredentialVerification, VerificationFault, VerifiedCredential,
};
use crate::plan::reject_reason::RejectReason;
use crate::plan::resolve::EarlyResponse;
use crate::plan::seen_request::SeenRequest;
use crate::route::identity::Identity;
use crate::store::{OnError, Outcome, Unreachable};

/// Verifies the credential of a request for an auth of its route, away from the worker unless that takes little time.
///
/// # Errors
///
/// The action for a request whose credential is not verified.
pub(super) async fn verify<'p>(
    ctx: &mut RequestContext,
    plan: &'p WorkerPlan,
    (index, route): (AuthIndex, &'p Route),
    seen: &SeenRequest<'_>,
    reader: &RequestReader,
    verified: &VerifiedCredential,
) -> Result<(), RequestAction<'p, 'static>> {
    match plan.verification(index, &seen.request(), verified.now()) {
        Some(CredentialVerification::Forward(forward)) => {
            ask_service(ctx, plan, (index, route), &forward, seen, reader, verified).await
        }
        Some(CredentialVerification::Token(token)) => {
            let result = verify_token(ctx, plan, index, token, seen, verified).await;
            verified.set(index, result.map_err(early)?.map_err(VerificationFault::Token));
            Ok(())
        }
        Some(CredentialVerification::Password(password)) => {
            check_password(ctx, plan, (index, route), password, seen, reader, verified).await
        }
        None => Err(early(RejectReason::unverified())),
    }
}

fn early<'p>(reason: RejectReason) -> RequestAction<'p, 'static> {
    RequestAction::Early(EarlyResponse::Reject(reason))
}

/// Asks a service about a request. Once `failures` is used up, one with a credential is refused without that.
async fn ask_service<'p>(
    ctx: &mut RequestContext,
    plan: &'p WorkerPlan,
    (index, route): (AuthIndex, &'p Route),
    forward: &ForwardAuth,
    seen: &SeenRequest<'_>,
    reader: &RequestReader,
    verified: &VerifiedCredential,
) -> Result<(), RequestAction<'p, 'static>> {
    let question = seen.question(plan, route, verified.now());
    if let Some(identity) = forward.find(&question) {
        verified.set(index, Ok(identity));
        return Ok(());
    }
    if forward.has_credential(&question) {
        refuse_unchecked(ctx, plan, (index, route), seen, reader).await?;
    }
    match forward.ask(&question).await {
        ForwardOutcome::Admitted(identity, cookies) => {
            ctx.cookies = cookie_lines(&cookies);
            verified.set(index, Ok(identity));
        }
        ForwardOutcome::Answered(answer) => verified.set(index, Err(VerificationFault::Answered(answer))),
        ForwardOutcome::Failed => return Err(early(RejectReason::unverified())),
    }
    Ok(())
}

fn cookie_lines(cookies: &[HeaderValue]) -> Box<[u8]> {
    let lines = cookies.iter().map(|cookie| [b"set-cookie: ", cookie.as_bytes(), b"\r\n"].concat());
    lines.collect::<Vec<_>>().concat().into()
}

/// Refuses a request with a credential that is not checked, because its client has used up `failures`.
async fn refuse_unchecked<'p>(
    ctx: &mut RequestContext,
    plan: &'p WorkerPlan,
    (index, route): (AuthIndex, &'p Route),
    seen: &SeenRequest<'_>,
    reader: &RequestReader,
) -> Result<(), RequestAction<'p, 'static>> {
    let failure = AuthFailure { auth: index, fault: CredentialFault::Invalid };
    if is_used_up(ctx, plan, failure, route, seen).await.map_err(early)?
        && let Some((refusal, tightest)) = charge(ctx, plan, failure, route, seen, reader).await?
    {
        ctx.credential_refused(failure, Some((&refusal, tightest.as_ref())));
        return Err(RequestAction::Refuse(OverLimitRequest { refusal, tightest, route }));
    }
    Ok(())
}

/// Relays the answer of a service that has refused the request. A refused credential is charged.
pub(super) async fn relay_answer<'p>(
    ctx: &mut RequestContext,
    plan: &'p WorkerPlan,
    (index, route): (AuthIndex, &'p Route),
    answer: Arc<ServiceAnswer>,
    seen: &SeenRequest<'_>,
    reader: &RequestReader,
) -> RequestAction<'p, 'static> {
    let failure = AuthFailure { auth: index, fault: CredentialFault::Invalid };
    if answer.refuses_credential {
        match charge(ctx, plan, failure, route, seen, reader).await {
            Err(action) => return action,
            Ok(refused) => {
                let refusal = refused.as_ref().map(|(refusal, tightest)| (refusal, tightest.as_ref()));
                ctx.credential_refused(failure, refusal);
                if let Some((refusal, tightest)) = refused {
                    return RequestAction::Refuse(OverLimitRequest { refusal, tightest, route });
                }
            }
        }
    }
    RequestAction::Relay(answer)
}

/// Verifies a token. One whose key is unknown waits for the issuer's newest keys.
async fn verify_token(
    ctx: &RequestContext,
    plan: &WorkerPlan,
    index: AuthIndex,
    mut verification: TokenVerification,
    seen: &SeenRequest<'_>,
    verified: &VerifiedCredential,
) -> Result<Result<Arc<Identity>, TokenFault>, RejectReason> {
    let prepare = || match plan.verification(index, &seen.request(), verified.now()) {
        Some(CredentialVerification::Token(token)) => Some(token),
        _ => None,
    };
    let issuer = plan.auth(index).tokens().and_then(|tokens| tokens.issuer());
    if let Some(issuer) = issuer
        && verification.lacks_keys()
    {
        issuer.refresh(now()).await;
        verification = prepare().filter(|newer| !newer.lacks_keys()).ok_or_else(RejectReason::unverified)?;
    }
    let mut result = run(ctx, verification).await?;
    if let (Err(TokenFault::UnknownKey), Some(issuer)) = (&result, issuer)
        && issuer.refresh(now()).await
        && let Some(newer) = prepare()
    {
        result = run(ctx, newer).await?;
    }
    Ok(result)
}

async fn run(
    ctx: &RequestContext,
    verification: TokenVerification,
) -> Result<Result<Arc<Identity>, TokenFault>, RejectReason> {
    if verification.is_quick() {
        return Ok(verification.run());
    }
    let verified = ctx.worker.shared.verification.run(move || verification.run()).await;
    verified.map_err(|QueueFull| RejectReason::unverified())
}

/// Checks a password in its client's turn. Once `failures` is used up, it is refused without a check.
async fn check_password<'p>(
    ctx: &mut RequestContext,
    plan: &'p WorkerPlan,
    (index, route): (AuthIndex, &'p Route),
    password: PasswordCheck,
    seen: &SeenRequest<'_>,
    reader: &RequestReader,
    verified: &VerifiedCredential,
) -> Result<(), RequestAction<'p, 'static>> {
    let full = |QueueFull| early(RejectReason::unverified());
    let shared = Arc::clone(&ctx.worker.shared);
    let lead = match shared.passwords.join(password.hash()).await {
        Join::Follows(result) => {
            verified.set(index, result.map_err(Into::into));
            return Ok(());
        }
        Join::Leads(lead) => lead,
    };
    let turn = shared.passwords.turn(number(seen.request().client.network)).await.map_err(full)?;
    if let Some(identity) = password.remembered() {
        verified.set(index, Ok(identity));
        return Ok(());
    }
    refuse_unchecked(ctx, plan, (index, route), seen, reader).await?;
    let result = shared.passwords.check(&lead, password).await.map_err(full)?;
    if result.is_err() {
        // The client's next password is checked once this one was charged.
        verified.hold_turn(turn);
    }
    verified.set(index, result.map_err(Into::into));
    Ok(())
}

/// The lane of a client. A client that finds others of its lane only waits with them.
fn number(network: IpAddr) -> u64 {
    let mut hasher = DefaultHasher::new();
    network.hash(&mut hasher);
    hasher.finish()
}

/// Whether the limit on wrong credentials would refuse the client's next one. Nothing is charged.
///
/// # Errors
///
/// The limit could not be checked, and is one that refuses in that case.
async fn is_used_up(
    ctx: &RequestContext,
    plan: &WorkerPlan,
    failure: AuthFailure,
    route: &Route,
    seen: &SeenRequest<'_>,
) -> Result<bool, RejectReason> {
    let Some(charges) = plan.failure_charges(failure, route, &seen.request(), &plan.secret) else {
        return Ok(false);
    };
    if banned(ctx, &charges).is_some() {
        return Ok(true);
    }
    match ctx.plan.counters.look(&charges.charges, ctx.worker.shared.clock.now()).await {
        Ok(decisions) => Ok(!charges.admits(&Outcome { decisions, ..Outcome::default() })),
        Err(Unreachable) if charges.checks.iter().any(|check| check.limit.on_error == OnError::Deny) => {
            Err(RejectReason::unavailable())
        }
        Err(Unreachable) => Ok(false),
    }
}

/// Charges a wrong credential to the limit that bounds them. Returns the refusal once the limit is used up.
async fn charge<'p>(
    ctx: &mut RequestContext,
    plan: &'p WorkerPlan,
    failure: AuthFailure,
    route: &'p Route,
    seen: &SeenRequest<'_>,
    reader: &RequestReader,
) -> Result<Option<(Refusal<'p>, Option<BindingLimit<'p>>)>, RequestAction<'p, 'static>> {
    let request = seen.request();
    let Some(charges) = plan.failure_charges(failure, route, &request, &plan.secret) else { return Ok(None) };
    let refused = match banned(ctx, &charges) {
        Some(BanRefusal { refusal, tightest, .. }) => Some((refusal, Some(tightest))),
        None => {
            let outcome = decide(ctx, &charges, reader).await.ok_or(RequestAction::GiveUp)?;
            if outcome.unavailable {
                return Err(early(RejectReason::unavailable()));
            }
            refusal(ctx, &charges, &outcome)
        }
    };
    ctx.count_failure(failure, &charges, &request, refused.is_some());
    Ok(refused.map(|(refusal, tightest)| (refusal.spread(|most| fastrand::u64(0..=most)), tightest)))
}

fn refusal<'p>(
    ctx: &mut RequestContext,
    charges: &RequestCharges<'p>,
    outcome: &Outcome,
) -> Option<(Refusal<'p>, Option<BindingLimit<'p>>)> {
    let ban = outcome.banned.then(|| banned_by_store(ctx, charges, outcome)).flatten();
    if let Some(BanRefusal { refusal, tightest, .. }) = ban {
        ctx.list_binding(&tightest, refusal.retry_after());
        return Some((refusal, Some(tightest)));
    }
    let admission = charges.decide(outcome);
    if let AdmissionDecision::Refuse(_) = admission.sentence {
        ctx.list_policies(charges, outcome, &admission);
    }
    match admission.sentence {
        AdmissionDecision::Refuse(refusal) => Some((refusal, admission.tightest)),
        AdmissionDecision::Admit(_) => None,
    }
}

/// Charges a wrong credential to the limit that bounds them: a request with one gets 401, or 429 once the limit is used
/// up.
pub(super) async fn refuse_credential<'p>(
    ctx: &mut RequestContext,
    plan: &'p WorkerPlan,
    failure: AuthFailure,
    route: &'p Route,
    seen: &SeenRequest<'_>,
    reader: &RequestReader,
) -> RequestAction<'p, 'static> {
    let refused = match charge(ctx, plan, failure, route, seen, reader).await {
        Ok(refused) => refused,
        Err(action) => return action,
    };
    if failure.fault == CredentialFault::Invalid {
        ctx.credential_refused(
            failure,
            refused.as_ref().map(|(refusal, tightest)| (refusal, tightest.as_ref())),
        );
    }
    match refused {
        None => RequestAction::Early(EarlyResponse::Unauthenticated(failure)),
        Some((refusal, tightest)) => RequestAction::Refuse(OverLimitRequest { refusal, tightest, route }),
    }
}
