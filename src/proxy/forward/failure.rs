//! Responses where the backend gave none.

use http::StatusCode;

use super::end_measurement;
use super::exchange_deadline::TOO_LONG;
use super::forward_request::ForwardRequest;
use super::websocket::WebSocketFault;
use crate::limit::adaptive_concurrency::SampleOutcome;
use crate::proxy::answer::next_action::NextAction;
use crate::proxy::answer::respond::{send, send_problem};
use crate::proxy::record::request_context::RequestContext;
use crate::proxy::session::Session;
use crate::proxy::session::request_reader::{BodyFault, upload_fault};
use crate::upstream::{Failed, Failure};

/// Answers the handshake of a WebSocket that cannot be passed on.
pub(super) async fn refuse_handshake(
    session: &mut Session,
    ctx: &mut RequestContext,
    fault: WebSocketFault,
) -> NextAction {
    let (status, detail, error) = fault.problem();
    ctx.answered(status, Some(error));
    send(session, ctx, |page| page.problem_with(status, detail, fault.lines())).await
}

/// Responds where the backend gave no response.
pub(super) async fn fail(
    session: &mut Session,
    ctx: &mut RequestContext,
    forward_request: &ForwardRequest<'_>,
    failed: &Failed,
    body: Option<BodyFault>,
) -> NextAction {
    ctx.note_failure(forward_request.upstream, failed);
    let outcome = match failed.failure {
        Failure::Connect | Failure::ConnectTimeout | Failure::Timeout => Some(SampleOutcome::Overloaded),
        _ => None,
    };
    end_measurement(&mut ctx.limits.places, outcome);
    // A body that breaks off is the client's doing: the backend has worked on it.
    if let Some(settlement) = ctx.limits.settlement.as_mut().filter(|_| failed.failure != Failure::Upload) {
        if failed.reached { settlement.lose() } else { settlement.give_back() }
    }
    let word = failed.failure.as_str();
    let problem = match failed.failure {
        Failure::NoneHealthy => {
            (StatusCode::SERVICE_UNAVAILABLE, "no server of the upstream is healthy", word)
        }
        Failure::BreakerOpen => {
            ctx.answered(StatusCode::SERVICE_UNAVAILABLE, Some(word));
            let detail = "the upstream is failing; requests to it are paused";
            return send(session, ctx, |page| page.unavailable(detail, failed.retry_after)).await;
        }
        Failure::Full => (StatusCode::SERVICE_UNAVAILABLE, "the upstream has no connection to spare", word),
        Failure::Connect => (StatusCode::BAD_GATEWAY, "the upstream cannot be reached", word),
        Failure::ConnectTimeout => {
            (StatusCode::GATEWAY_TIMEOUT, "the upstream cannot be reached in time", word)
        }
        Failure::Tls => (StatusCode::BAD_GATEWAY, "the upstream cannot be reached securely", word),
        Failure::Timeout => (StatusCode::GATEWAY_TIMEOUT, "the upstream did not answer in time", word),
        Failure::Reset => (StatusCode::BAD_GATEWAY, "the upstream broke off", word),
        Failure::Protocol => (StatusCode::BAD_GATEWAY, "the upstream sent an invalid response", word),
        Failure::NoWebSocket => {
            (StatusCode::BAD_GATEWAY, "the upstream serves no WebSocket over HTTP/2", word)
        }
        Failure::Overrun => TOO_LONG,
        Failure::Upload => upload_fault(body),
    };
    send_problem(session, ctx, problem).await
}
