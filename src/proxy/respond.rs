//! Answers that the gateway makes itself, on their way to the client.

use http::StatusCode;

use super::buffers::Buffers;
use super::next_action::NextAction;
use super::refuse::Page;
use super::session::Session;
use super::turn::Turn;

/// Sends an answer of our own. `write` writes it and says how long its body is.
pub(crate) async fn send(
    session: &mut Session,
    turn: &mut Turn,
    write: impl FnOnce(Page<'_>) -> usize,
) -> NextAction {
    let date = turn.worker.date(turn.started);
    let Session { writer, buffers, .. } = session;
    let Buffers { message: scrap, outbound, .. } = &mut **buffers.get_or_insert_default();
    let (request_id, form) = (turn.own_request_id(), turn.form);
    let body = write(Page { scrap, outbound, date: &date, request_id, cors: &turn.cors, form });
    let body = if form.to_head { 0 } else { body };
    match writer.send(outbound, body).await {
        Ok(()) => {
            turn.sent = body as u64;
            if form.keep { NextAction::Keep } else { NextAction::Close }
        }
        Err(_) => {
            let reason = if writer.is_stalled() { "write_timeout" } else { "client_gone" };
            turn.error = turn.error.or(Some(reason));
            NextAction::Drop
        }
    }
}

/// Sends a problem document. `error` is the word for the access log, `detail` is for the client.
pub(crate) async fn send_problem(
    session: &mut Session,
    turn: &mut Turn,
    (status, detail, error): (StatusCode, &str, &'static str),
) -> NextAction {
    turn.answered(status, Some(error));
    send(session, turn, |page| page.problem(status, detail)).await
}
