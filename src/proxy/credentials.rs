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
use crate::auth::password_lanes::{Join, LaneTurn};
use crate::auth::passwords::PasswordCheck;
use crate::auth::runtime::CredentialVerification;
use crate::auth::tokens::TokenVerification;
use crate::auth::verification_pool::QueueFull;
use crate::clock::now;
use crate::plan::admission::{AdmissionDecision, BanRefusal, BindingLimit, Refusal, RequestCharges};
use crate::plan::auth::{AuthFailure, AuthIndex, CredentialFault};
use crate::plan::reject_reason::RejectReason;
use crate::plan::resolve::{EarlyResponse, LocatedRequest};
use crate::route::identity::Identity;
use crate::store::{OnError, Outcome, Unreachable};

/// The result of verifying a credential.
pub(super) enum Verified {
    /// It is good.
    Accepted(Arc<Identity>),
    /// It is wrong. The next password of its client is checked once this one was charged.
    Wrong(Option<LaneTurn>),
    /// The service has refused the request with this answer.
    Answered(Arc<ServiceAnswer>),
}

/// Verifies the credential of a request for an auth of its route, away from the worker unless that takes little time.
///
/// # Errors
///
/// The action for a request whose credential is not verified.
pub(super) async fn verify<'p>(
    ctx: &mut RequestContext,
    plan: &'p WorkerPlan,
    index: AuthIndex,
    located: &LocatedRequest<'p, '_>,
    reader: &RequestReader,
) -> Result<Verified, RequestAction<'p, 'static>> {
    match plan.verification(index, &located.request(), ctx.started) {
        Some(CredentialVerification::Remembered(identity)) => Ok(Verified::Accepted(identity)),
        Some(CredentialVerification::Forward(forward)) => {
            ask_service(ctx, plan, index, &forward, located, reader).await
        }
        Some(CredentialVerification::Token(token)) => {
            let result = verify_token(ctx, plan, index, token, located).await.map_err(early)?;
            Ok(result.map_or(Verified::Wrong(None), Verified::Accepted))
        }
        Some(CredentialVerification::Password(password)) => {
            check_password(ctx, plan, index, password, located, reader).await
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
    index: AuthIndex,
    forward: &ForwardAuth,
    located: &LocatedRequest<'p, '_>,
    reader: &RequestReader,
) -> Result<Verified, RequestAction<'p, 'static>> {
    let question = located.seen.question(plan, located.route, ctx.started);
    if let Some(identity) = forward.find(&question) {
        return Ok(Verified::Accepted(identity));
    }
    if forward.has_credential(&question) {
        refuse_unchecked(ctx, plan, index, located, reader).await?;
    }
    match forward.ask(&question).await {
        ForwardOutcome::Admitted(identity, cookies) => {
            ctx.cookies = cookie_lines(&cookies);
            Ok(Verified::Accepted(identity))
        }
        ForwardOutcome::Answered(answer) => Ok(Verified::Answered(answer)),
        ForwardOutcome::Failed => Err(early(RejectReason::unverified())),
    }
}

fn cookie_lines(cookies: &[HeaderValue]) -> Box<[u8]> {
    let lines = cookies.iter().map(|cookie| [b"set-cookie: ", cookie.as_bytes(), b"\r\n"].concat());
    lines.collect::<Vec<_>>().concat().into()
}

/// Refuses a request with a credential that is not checked, because its client has used up `failures`.
async fn refuse_unchecked<'p>(
    ctx: &mut RequestContext,
    plan: &'p WorkerPlan,
    index: AuthIndex,
    located: &LocatedRequest<'p, '_>,
    reader: &RequestReader,
) -> Result<(), RequestAction<'p, 'static>> {
    let failure = AuthFailure { auth: index, fault: CredentialFault::Invalid };
    if is_used_up(ctx, plan, failure, located).await.map_err(early)?
        && let Some((refusal, tightest)) = charge(ctx, plan, failure, located, reader).await?
    {
        ctx.credential_refused(failure, Some((&refusal, tightest.as_ref())));
        return Err(RequestAction::Refuse(OverLimitRequest { refusal, tightest, route: located.route }));
    }
    Ok(())
}

/// Relays the answer of a service that has refused the request. A refused credential is charged.
pub(super) async fn relay_answer<'p>(
    ctx: &mut RequestContext,
    plan: &'p WorkerPlan,
    index: AuthIndex,
    answer: Arc<ServiceAnswer>,
    located: &LocatedRequest<'p, '_>,
    reader: &RequestReader,
) -> RequestAction<'p, 'static> {
    let failure = AuthFailure { auth: index, fault: CredentialFault::Invalid };
    if answer.refuses_credential {
        match charge(ctx, plan, failure, located, reader).await {
            Err(action) => return action,
            Ok(refused) => {
                let refusal = refused.as_ref().map(|(refusal, tightest)| (refusal, tightest.as_ref()));
                ctx.credential_refused(failure, refusal);
                if let Some((refusal, tightest)) = refused {
                    return RequestAction::Refuse(OverLimitRequest {
                        refusal,
                        tightest,
                        route: located.route,
                    });
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
    located: &LocatedRequest<'_, '_>,
) -> Result<Result<Arc<Identity>, TokenFault>, RejectReason> {
    let prepare = || match plan.verification(index, &located.request(), ctx.started) {
        Some(CredentialVerification::Token(token)) => Some(token),
        _ => None,
    };
    let issuer = plan.auth_state(index).issuer();
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
    index: AuthIndex,
    password: PasswordCheck,
    located: &LocatedRequest<'p, '_>,
    reader: &RequestReader,
) -> Result<Verified, RequestAction<'p, 'static>> {
    let full = |QueueFull| early(RejectReason::unverified());
    let shared = Arc::clone(&ctx.worker.shared);
    let lead = match shared.passwords.join(password.hash()).await {
        Join::Follows(result) => return Ok(result.map_or(Verified::Wrong(None), Verified::Accepted)),
        Join::Leads(lead) => lead,
    };
    let turn = shared.passwords.turn(number(located.request().client.network)).await.map_err(full)?;
    if let Some(identity) = password.remembered() {
        return Ok(Verified::Accepted(identity));
    }
    refuse_unchecked(ctx, plan, index, located, reader).await?;
    let result = shared.passwords.check(&lead, password).await.map_err(full)?;
    Ok(result.map_or(Verified::Wrong(Some(turn)), Verified::Accepted))
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
    located: &LocatedRequest<'_, '_>,
) -> Result<bool, RejectReason> {
    let charges = plan.failure_charges(failure, located.route, &located.request(), &plan.secret);
    let Some(charges) = charges else { return Ok(false) };
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
    located: &LocatedRequest<'p, '_>,
    reader: &RequestReader,
) -> Result<Option<(Refusal<'p>, Option<BindingLimit<'p>>)>, RequestAction<'p, 'static>> {
    let request = located.request();
    let charges = plan.failure_charges(failure, located.route, &request, &plan.secret);
    let Some(charges) = charges else { return Ok(None) };
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
    located: &LocatedRequest<'p, '_>,
    reader: &RequestReader,
) -> RequestAction<'p, 'static> {
    let refused = match charge(ctx, plan, failure, located, reader).await {
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
        Some((refusal, tightest)) => {
            RequestAction::Refuse(OverLimitRequest { refusal, tightest, route: located.route })
        }
    }
}
