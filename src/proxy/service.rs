//! The story of one request: route or 404 → keys and cost → clock → store → forward, wait then forward, or refuse.

use std::convert::Infallible;
use std::rc::Rc;
use std::time::Duration;

use bytes::Bytes;
use http::request::Parts;
use http::{Request, Response};
use hyper::body::Incoming;

use super::body::{AnswerBody, client_gone_status};
use super::case::Case;
use super::connection::Connection;
use super::forward::{self, Delivery};
use super::refuse;
use super::turn::Turn;
use super::wire::Wire;
use crate::gateway::admission::{Assessment, Ruling, Sentence};
use crate::limit::units::Micros;
use crate::store::Outcome;

/// Answers one request.
pub(crate) async fn answer(
    connection: Rc<Connection>,
    request: Request<Incoming>,
) -> Result<Response<AnswerBody>, Infallible> {
    let place = connection.take_up();
    let (parts, body) = request.into_parts();
    let turn = Turn::begin(connection, &parts);
    let response = match turn.connection.wire.fault_of(place) {
        Some(fault) => turn.unread().close(refuse::problem(fault.status(), fault.reason()), fault.reason()),
        None => judge(turn, parts, body).await,
    };
    Ok(response)
}

/// Finds the route, asks the limits, and acts on what they say.
async fn judge(mut turn: Turn, parts: Parts, body: Incoming) -> Response<AnswerBody> {
    let plan = Rc::clone(&turn.plan);
    let case = match Case::examine(&mut turn, &plan.gateway, &parts, &body) {
        Ok(case) => case,
        Err(objection) => return turn.object(&objection, &parts, body).await,
    };
    if let Some(refusal) = case.assessment.missing() {
        turn.count(&case, &Outcome::default());
        return turn.over_limit(&refusal, None, case.route, &parts, body).await;
    }
    let outcome = decide(&turn, &case.assessment).await;
    turn.count(&case, &outcome);
    let Ruling { sentence, tightest } = case.assessment.rule(&outcome);
    turn.note(tightest.as_ref());
    match sentence {
        Sentence::Refuse(refusal) => {
            turn.over_limit(&refusal, tightest.as_ref(), case.route, &parts, body).await
        }
        Sentence::Admit(delay) if !wait(delay, &turn.connection.wire).await => give_up(turn),
        Sentence::Admit(_) => {
            let delivery = Delivery { route: case.route, tightest: tightest.as_ref(), uri: case.uri };
            forward::forward(turn, delivery, parts, body).await
        }
    }
}

/// Asks the store, at the moment that the request's head had come. Nothing to ask: nothing said.
async fn decide(turn: &Turn, assessment: &Assessment<'_>) -> Outcome {
    if assessment.charges.is_empty() {
        return Outcome::default();
    }
    turn.connection.worker.shared.store.decide(&assessment.charges, turn.finish.started).await
}

/// Waits for the request's turn. False if the client left meanwhile: its slot passes unused.
async fn wait(delay: Micros, wire: &Wire) -> bool {
    if delay == Micros(0) {
        return true;
    }
    tokio::select! {
        biased;
        () = wire.client_gone() => false,
        () = tokio::time::sleep(Duration::from_micros(delay.0)) => true,
    }
}

/// The client left: nothing is forwarded, and nobody reads this answer.
fn give_up(turn: Turn) -> Response<AnswerBody> {
    let mut response = Response::new(Bytes::new());
    *response.status_mut() = client_gone_status();
    turn.close(response, "client_gone")
}
