//! The story of one request: route or 404 → keys and cost → clock → store → forward, wait then forward, or refuse.

use std::borrow::Cow;
use std::rc::Rc;
use std::time::Duration;

use bytes::Buf as _;

use super::buffers::Buffers;
use super::cors;
use super::delivery::Delivery;
use super::drain::drain;
use super::forward;
use super::next_action::NextAction;
use super::peer::Peer;
use super::reader::Reader;
use super::refuse::OverLimit;
use super::respond::{send, send_problem};
use super::session::Session;
use super::turn::Turn;
use super::worker::Plan;
use crate::gateway::Route;
use crate::gateway::admission::{Assessment, Banishment, Refusal, Ruling, Sentence, Tightest, Why};
use crate::gateway::resolve::{self, EarlyResponse, RejectReason, Resolution, RoutedRequest};
use crate::http1::body::Body;
use crate::http1::request::{Fault, RequestHead};
use crate::limit::units::Micros;
use crate::store::Outcome;
use crate::telemetry::metrics::Fate;

/// What is to be done with a request.
enum Verdict<'p, 'h> {
    /// It goes to its backend, which sees this path and query.
    Forward(Delivery<'p>, Cow<'h, str>),
    /// It is answered before any limit is asked.
    Early(EarlyResponse),
    /// A limit refuses.
    Refuse(Refused<'p>),
    /// The client left while it waited: its slot passes unused.
    GiveUp,
}

/// A limit's refusal.
struct Refused<'p> {
    refusal: Refusal<'p>,
    /// What the rate-limit fields tell of.
    tightest: Option<Tightest<'p>>,
    route: &'p Route,
}

/// Answers the request whose head stands at the front of what has come.
pub(crate) async fn answer(session: &mut Session) -> NextAction {
    let mut turn = Turn::begin(&session.worker, &session.peer);
    let plan = Rc::clone(&turn.plan);
    let Session { reader, peer, buffers, may_keep, is_last, .. } = &mut *session;
    let Buffers { inbound, spans, message, .. } = &mut **buffers.get_or_insert_default();
    // Looked at where it stands: it is large enough that moving it would show.
    let parsed = RequestHead::parse(inbound, spans);
    let head = match &parsed {
        Ok(head) => head,
        &Err(fault) => return refuse(session, &mut turn, fault).await,
    };
    turn.take_head(peer, head, *may_keep);
    turn.open_record(peer, Some(head));
    let length = head.length;
    *is_last = !head.keep_alive && head.body == Body::EMPTY;
    match judge(&mut turn, &plan, head, peer, reader).await {
        Verdict::Forward(delivery, target) => {
            message.clear();
            delivery.write_head(&mut turn, head, target, peer, message);
            inbound.advance(length);
            forward::forward(session, &mut turn, &delivery).await
        }
        Verdict::Early(response) => {
            inbound.advance(length);
            early(session, &mut turn, &response).await
        }
        Verdict::Refuse(refused) => {
            inbound.advance(length);
            over_limit(session, &mut turn, &refused).await
        }
        Verdict::GiveUp => NextAction::Drop,
    }
}

/// Finds the route, asks the limits, and says what follows.
async fn judge<'p, 'r>(
    turn: &mut Turn,
    plan: &'p Plan,
    head: &'r RequestHead<'r>,
    peer: &'r Peer,
    reader: &Reader,
) -> Verdict<'p, 'r> {
    let routed = match resolve(turn, plan, head, peer) {
        Ok(routed) => routed,
        Err(response) => return Verdict::Early(response),
    };
    let bans = turn.worker.shared.store.bans();
    if !bans.is_empty()
        && let Some(Banishment { place, refusal, tightest }) = routed.assessment.banned(bans, turn.started)
    {
        turn.count_ban(&routed, place);
        return Verdict::refuse(turn, &routed, refusal, Some(tightest));
    }
    if let Some(refusal) = routed.assessment.missing() {
        turn.decided(&routed, &Outcome::default());
        return Verdict::refuse(turn, &routed, refusal, None);
    }
    let outcome = decide(turn, &routed.assessment).await;
    turn.decided(&routed, &outcome);
    if outcome.unavailable {
        return Verdict::Early(EarlyResponse::Reject(RejectReason::unavailable()));
    }
    let Ruling { sentence, tightest } = routed.assessment.rule(&outcome);
    let since = match sentence {
        Sentence::Refuse(refusal) => return Verdict::refuse(turn, &routed, refusal, tightest),
        Sentence::Admit(delay) => {
            turn.note(tightest.as_ref());
            match delay {
                Micros(0) => turn.started,
                delay if wait(turn, delay, reader).await => turn.worker.shared.clock.now(),
                _ => return Verdict::GiveUp,
            }
        }
    };
    Verdict::Forward(Delivery::new(&routed, tightest, since), routed.target)
}

impl<'p> Verdict<'p, '_> {
    /// A limit refuses the request.
    fn refuse(
        turn: &mut Turn,
        routed: &RoutedRequest<'p, '_>,
        refusal: Refusal<'p>,
        tightest: Option<Tightest<'p>>,
    ) -> Self {
        turn.refused(routed, &refusal, tightest.as_ref());
        match refusal.why {
            Why::Repeated => Self::Early(EarlyResponse::Reject(RejectReason::repeated_key(refusal.limit))),
            _ => Self::Refuse(Refused { refusal, tightest, route: routed.route }),
        }
    }
}

/// Resolves the request, and notes what is known of it then.
fn resolve<'p, 'r>(
    turn: &mut Turn,
    plan: &'p Plan,
    head: &'r RequestHead<'r>,
    peer: &'r Peer,
) -> Result<RoutedRequest<'p, 'r>, EarlyResponse> {
    let loop_mark = Some(&turn.worker.shared.loop_mark);
    let resolution = resolve::resolve(&plan.gateway, &plan.secret, loop_mark, head, peer.as_seen());
    let Resolution { client, host, route, outcome, .. } = resolution;
    peer.check_client(client, &plan.gateway.server.client, head.fields);
    turn.identify(client.address, &host);
    if let Some((index, route)) = route {
        turn.on_route(index, route);
        match (&route.cors, &outcome) {
            (Some(cors), Err(EarlyResponse::Preflight)) => {
                cors::put_preflight(cors, head.fields, &mut turn.cors)
            }
            (Some(cors), _) => cors::put_actual(cors, head.fields, &mut turn.cors),
            (None, _) => {}
        }
    }
    if let Err(EarlyResponse::Reject(_)) = outcome {
        turn.witness_rejection(head, &host);
    }
    outcome
}

/// Asks the store, at the moment that the request's head had come. Nothing to ask: nothing said.
async fn decide(turn: &Turn, assessment: &Assessment<'_>) -> Outcome {
    if assessment.charges.is_empty() {
        return Outcome::default();
    }
    turn.plan.counters.decide(&assessment.charges, turn.started).await
}

/// Waits for the request's turn. False if the client left meanwhile.
async fn wait(turn: &mut Turn, delay: Micros, reader: &Reader) -> bool {
    turn.delay = delay;
    turn.trace_delay(delay);
    tokio::select! {
        biased;
        () = reader.gone() => return false,
        () = tokio::time::sleep(Duration::from_micros(delay.0)) => {}
    }
    turn.fate = Fate::Delayed;
    true
}

/// Answers what came in place of a head. Nothing can be read behind it.
pub(crate) async fn refuse_unread(session: &mut Session, fault: Fault) -> NextAction {
    let mut turn = Turn::begin(&session.worker, &session.peer);
    refuse(session, &mut turn, fault).await
}

async fn refuse(session: &mut Session, turn: &mut Turn, fault: Fault) -> NextAction {
    turn.open_record(&session.peer, None);
    turn.client = Some(session.peer.address);
    turn.form.to_head = session.buffers.as_ref().is_some_and(|buffers| buffers.inbound.starts_with(b"HEAD "));
    send_problem(session, turn, (fault.status(), fault.reason(), fault.reason())).await
}

/// Answers a request that is neither charged nor forwarded.
async fn early(session: &mut Session, turn: &mut Turn, response: &EarlyResponse) -> NextAction {
    drain(session, turn).await;
    turn.answered(response.status(), response.error());
    send(session, turn, |page| match response {
        EarlyResponse::Preflight => page.preflight(),
        EarlyResponse::Options => page.options(),
        EarlyResponse::Redirect(location) => page.redirect(location),
        EarlyResponse::Reject(reason) => page.problem(reason.status, &reason.detail),
    })
    .await
}

async fn over_limit(session: &mut Session, turn: &mut Turn, refused: &Refused<'_>) -> NextAction {
    let Refused { refusal, tightest, route } = refused;
    drain(session, turn).await;
    let reject = route.reject_of(refusal.limit);
    let which = turn.plan.gateway.server.ratelimit_headers;
    let over = OverLimit { refusal, tightest: tightest.as_ref(), reject, which };
    turn.answered(over.status(), None);
    send(session, turn, |page| page.over_limit(&over)).await
}
