//! Credentials of a request that have to be verified.

use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::net::IpAddr;
use std::sync::Arc;

use http::HeaderValue;

use crate::auth::forward::{ForwardAuth, ForwardOutcome, ServiceAnswer};
use crate::auth::issuer::{self, Refresh};
use crate::auth::jwt::TokenFault;
use crate::auth::password_lanes::{Flight, LaneTurn};
use crate::auth::passwords::PasswordCheck;
use crate::auth::runtime::CredentialVerification;
use crate::auth::tokens::TokenVerification;
use crate::auth::verification_pool::QueueFull;
use crate::clock::now;
use crate::plan::auth::AuthIndex;
use crate::plan::decision::{BeforeCheck, Need, RequestDecision};
use crate::plan::reject_reason::RejectReason;
use crate::plan::resolve::RoutedRequest;
use crate::proxy::record::request_context::RequestContext;
use crate::proxy::session::request_reader::RequestReader;
use crate::proxy::worker::WorkerPlan;
use crate::route::identity::Identity;
use crate::store::{KeyOperation, Unreachable};

/// The result of verifying a credential.
pub(crate) enum Verified {
    /// It is good.
    Accepted(Arc<Identity>),
    /// It is wrong. The next password of its client is checked once this one was charged.
    Wrong(Option<LaneTurn>),
    /// The service has refused the request with this answer.
    Answered(Arc<ServiceAnswer>),
    /// The client has left before the service has answered.
    ClientGone,
}

/// Verifies the credential of a request for an auth of its route, away from the worker unless that takes little time.
///
/// # Errors
///
/// What is next for a request whose credential is not verified.
pub(crate) async fn verify<'p>(
    ctx: &mut RequestContext,
    plan: &'p WorkerPlan,
    index: AuthIndex,
    decision: &mut RequestDecision<'p, '_>,
    reader: &RequestReader,
) -> Result<Verified, Need> {
    match plan.verification(index, &decision.request().request(), ctx.started) {
        Some(CredentialVerification::Remembered(identity)) => Ok(Verified::Accepted(identity)),
        Some(CredentialVerification::Forward(forward)) => {
            ask_service(ctx, plan, (index, &forward), decision, reader).await
        }
        Some(CredentialVerification::Token(token)) => {
            match verify_token(ctx, plan, index, token, decision.request()).await {
                Ok(result) => Ok(result.map_or(Verified::Wrong(None), Verified::Accepted)),
                Err(reason) => Err(decision.unverified(index, reason, plan.counters.known(ctx.started), ctx)),
            }
        }
        Some(CredentialVerification::Password(password)) => {
            check_password(ctx, plan, index, password, decision).await
        }
        None => Err(unverified(ctx, plan, index, decision)),
    }
}

/// What is next for a request whose credential cannot be verified at the moment.
fn unverified<'p>(
    ctx: &mut RequestContext,
    plan: &'p WorkerPlan,
    index: AuthIndex,
    decision: &mut RequestDecision<'p, '_>,
) -> Need {
    decision.unverified(index, RejectReason::unverified(), plan.counters.known(ctx.started), ctx)
}

/// Asks a service about a request. Once `failures` is used up, one with a credential is refused without that. A question
/// whose client has left is dropped, so that its place and its connection are free for others.
async fn ask_service<'p>(
    ctx: &mut RequestContext,
    plan: &'p WorkerPlan,
    (index, forward): (AuthIndex, &ForwardAuth),
    decision: &mut RequestDecision<'p, '_>,
    reader: &RequestReader,
) -> Result<Verified, Need> {
    let has_credential = {
        let question = decision.request().seen().question(plan, decision.request().route, ctx.started);
        if let Some(identity) = forward.find(&question) {
            return Ok(Verified::Accepted(identity));
        }
        forward.has_credential(&question)
    };
    if has_credential {
        refuse_unchecked(ctx, plan, index, decision).await?;
    }
    let outcome = {
        let request = decision.request();
        let question = request.seen().question(plan, request.route, ctx.started);
        tokio::select! {
            biased;
            outcome = forward.ask(&question) => outcome,
            () = reader.gone() => return Ok(Verified::ClientGone),
        }
    };
    match outcome {
        ForwardOutcome::Admitted(identity, cookies) => {
            ctx.lines.cookies = cookie_lines(&cookies);
            Ok(Verified::Accepted(identity))
        }
        ForwardOutcome::Answered(answer) => Ok(Verified::Answered(answer)),
        ForwardOutcome::Failed => Err(unverified(ctx, plan, index, decision)),
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
    decision: &mut RequestDecision<'p, '_>,
) -> Result<(), Need> {
    let mut before = decision.before_check(index, plan.counters.known(ctx.started), ctx);
    if let BeforeCheck::Look = before {
        let charges = &decision.request().charges.charges;
        let now = ctx.worker.shared.clock.now();
        let looked = plan.counters.execute(&KeyOperation::Look, charges, now).await;
        before = decision.looked(looked.map(|result| result.decisions).map_err(|_| Unreachable));
    }
    match before {
        BeforeCheck::Refuse(need) => Err(need),
        BeforeCheck::Check | BeforeCheck::Look => Ok(()),
    }
}

/// Verifies a token. One whose key is unknown waits for the issuer's newest keys. It is wrong only if those lack its key,
/// or if the issuer has withdrawn that.
async fn verify_token(
    ctx: &RequestContext,
    plan: &WorkerPlan,
    index: AuthIndex,
    verification: TokenVerification,
    request: &RoutedRequest<'_, '_>,
) -> Result<Result<Arc<Identity>, TokenFault>, RejectReason> {
    let until = now() + issuer::MAX_WAIT;
    let issuer = plan.auth_state(index).issuer();
    let mut result = match issuer.filter(|_| verification.lacks_keys()) {
        Some(issuer) => match issuer.refresh(until).await {
            Refresh::Waits(span) => return Err(RejectReason::unverified_for(span)),
            Refresh::Newest | Refresh::Newer => verify_again(ctx, plan, index, request).await?,
        },
        None => run(ctx, verification).await?,
    };
    let Some(issuer) = issuer else { return Ok(result) };
    // The first wait may be for a fetch that had begun before the request.
    for _ in 0..2 {
        let fault = match result {
            Err(fault @ (TokenFault::UnknownKey | TokenFault::FormerKey)) => fault,
            _ => break,
        };
        let refresh = issuer.refresh(until).await;
        if let Refresh::Waits(span) = refresh {
            return match fault {
                TokenFault::FormerKey => Ok(Err(fault)),
                _ => Err(RejectReason::unverified_for(span)),
            };
        }
        result = verify_again(ctx, plan, index, request).await?;
        if refresh == Refresh::Newest {
            break;
        }
    }
    Ok(result)
}

/// Verifies the token of a request by the keys as they are now.
async fn verify_again(
    ctx: &RequestContext,
    plan: &WorkerPlan,
    index: AuthIndex,
    request: &RoutedRequest<'_, '_>,
) -> Result<Result<Arc<Identity>, TokenFault>, RejectReason> {
    match plan.verification(index, &request.request(), ctx.started) {
        Some(CredentialVerification::Token(token)) if token.lacks_keys() => Err(RejectReason::unverified()),
        Some(CredentialVerification::Token(token)) => run(ctx, token).await,
        // Another request has had it verified meanwhile.
        Some(CredentialVerification::Remembered(identity)) => Ok(Ok(identity)),
        Some(CredentialVerification::Password(_) | CredentialVerification::Forward(_)) | None => {
            Err(RejectReason::unverified())
        }
    }
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
    decision: &mut RequestDecision<'p, '_>,
) -> Result<Verified, Need> {
    let shared = Arc::clone(&ctx.worker.shared);
    let guard = match shared.passwords.join(password.hash()).await {
        Flight::Result(result) => return Ok(result.map_or(Verified::Wrong(None), Verified::Accepted)),
        Flight::Leader(guard) => guard,
    };
    let network = decision.request().request().client.network;
    let turn = shared.passwords.turn(number(network)).await;
    let turn = turn.map_err(|QueueFull| unverified(ctx, plan, index, decision))?;
    if let Some(identity) = password.remembered() {
        return Ok(Verified::Accepted(identity));
    }
    refuse_unchecked(ctx, plan, index, decision).await?;
    let result = shared.passwords.check(&guard, password).await;
    let result = result.map_err(|QueueFull| unverified(ctx, plan, index, decision))?;
    Ok(result.map_or(Verified::Wrong(Some(turn)), Verified::Accepted))
}

/// The lane of a client. A client that finds others of its lane only waits with them.
fn number(network: IpAddr) -> u64 {
    let mut hasher = DefaultHasher::new();
    network.hash(&mut hasher);
    hasher.finish()
}
