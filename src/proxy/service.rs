//! The story of one request: route or 404 → keys and cost → clock → store → forward, wait then forward, or refuse.

use std::borrow::Cow;
use std::rc::Rc;
use std::time::Duration;

use bytes::Buf as _;
use http::StatusCode;

use super::answer::Form;
use super::buffers::Buffers;
use super::cors;
use super::delivery::Delivery;
use super::drain::drain;
use super::forward;
use super::grpc;
use super::next_action::NextAction;
use super::peer::Peer;
use super::reader::{Pace, Reader};
use super::refuse::OverLimit;
use super::respond::send;
use super::session::Session;
use super::turn::Turn;
use super::upload::Terms;
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
    /// A browser asks whether a script may send it.
    Preflight,
    /// It asks about the server as a whole.
    Options,
    /// It is to come again, to this URL.
    Redirect(String),
    /// It is refused before any limit is asked.
    Reject(RejectReason),
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
    let mut turn = Turn::begin(&session.worker);
    let plan = Rc::clone(&turn.plan);
    let Session { reader, peer, buffers, may_keep, is_last, .. } = &mut *session;
    let Buffers { inbound, spans, message, .. } = &mut **buffers.get_or_insert_default();
    // Looked at where it stands: it is large enough that moving it would show.
    let parsed = RequestHead::parse(inbound, spans);
    let head = match &parsed {
        Ok(head) => head,
        &Err(fault) => return refuse(session, &mut turn, fault).await,
    };
    turn.keep_request_id(peer, head);
    turn.open_record(peer, Some(head));
    let form = Form {
        http_11: head.http_11,
        to_head: head.method == "HEAD",
        keep: *may_keep && head.keep_alive,
        http2: peer.http2,
        // gRPC is a protocol over HTTP/2: over HTTP/1.1 its media type has no meaning here.
        grpc: peer.http2 && grpc::is_call(head),
    };
    let verdict = judge(&mut turn, &plan, head, peer, reader).await;
    let pace = match &verdict {
        Verdict::Forward(delivery, _) if form.grpc => Pace::Messages(delivery.silence()),
        _ => Pace::Bytes,
    };
    let (terms, length) = (Terms::of(head, pace), head.length);
    *is_last = !head.keep_alive && terms.body() == Body::EMPTY;
    match verdict {
        Verdict::Forward(delivery, target) => {
            message.clear();
            delivery.write_head(&mut turn, head, target, peer, message);
            inbound.advance(length);
            forward::forward(session, &mut turn, &delivery, terms, form).await
        }
        Verdict::Preflight => {
            inbound.advance(length);
            preflight(session, &mut turn, terms, form).await
        }
        Verdict::Options => {
            inbound.advance(length);
            options(session, &mut turn, terms, form).await
        }
        Verdict::Redirect(location) => {
            inbound.advance(length);
            redirect(session, &mut turn, &location, terms, form).await
        }
        Verdict::Reject(reason) => {
            inbound.advance(length);
            reject(session, &mut turn, &reason, terms, form).await
        }
        Verdict::Refuse(refused) => {
            inbound.advance(length);
            over_limit(session, &mut turn, &refused, terms, form).await
        }
        Verdict::GiveUp => {
            turn.error = Some("client_gone");
            NextAction::Drop
        }
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
        Err(EarlyResponse::Reject(reason)) => return Verdict::Reject(reason),
        Err(EarlyResponse::Preflight) => return Verdict::Preflight,
        Err(EarlyResponse::Options) => return Verdict::Options,
        Err(EarlyResponse::Redirect(location)) => return Verdict::Redirect(location),
    };
    let route = routed.route;
    let bans = turn.worker.shared.store.bans();
    if !bans.is_empty()
        && let Some(Banishment { place, refusal, tightest }) = routed.assessment.banned(bans, turn.started)
    {
        turn.count_ban(&routed, place);
        turn.note(Some(&tightest));
        turn.witness_refusal(&routed, &refusal, Some(&tightest));
        return Verdict::Refuse(Refused { refusal, tightest: Some(tightest), route });
    }
    if let Some(refusal) = routed.assessment.missing() {
        turn.count(&routed, &Outcome::default());
        turn.witness_refusal(&routed, &refusal, None);
        if refusal.why == Why::Repeated {
            turn.note_refusal(&refusal, None);
            turn.fate = Fate::Refused;
            return Verdict::Reject(RejectReason::repeated_key(refusal.limit));
        }
        return Verdict::Refuse(Refused { refusal, tightest: None, route });
    }
    let outcome = decide(turn, &routed.assessment).await;
    turn.count(&routed, &outcome);
    if let Some(limit) = routed.assessment.unasked(&outcome) {
        turn.note_unasked(limit);
    }
    if outcome.unavailable {
        turn.witness_rejection(head, routed.request().host);
        return Verdict::Reject(RejectReason::unavailable());
    }
    let Ruling { sentence, tightest } = routed.assessment.rule(&outcome);
    turn.note(tightest.as_ref());
    match sentence {
        Sentence::Refuse(refusal) => {
            turn.witness_refusal(&routed, &refusal, tightest.as_ref());
            Verdict::Refuse(Refused { refusal, tightest, route })
        }
        Sentence::Admit(Micros(0)) => {
            Verdict::Forward(Delivery::new(&routed, tightest, turn.started), routed.target)
        }
        Sentence::Admit(delay) if wait(turn, delay, reader).await => {
            turn.fate = Fate::Delayed;
            let now = turn.worker.shared.clock.now();
            Verdict::Forward(Delivery::new(&routed, tightest, now), routed.target)
        }
        Sentence::Admit(_) => Verdict::GiveUp,
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
        () = reader.gone() => false,
        () = tokio::time::sleep(Duration::from_micros(delay.0)) => true,
    }
}

/// Answers what came in place of a head. Nothing can be read behind it.
pub(crate) async fn refuse_unread(session: &mut Session, fault: Fault) -> NextAction {
    let mut turn = Turn::begin(&session.worker);
    refuse(session, &mut turn, fault).await
}

async fn refuse(session: &mut Session, turn: &mut Turn, fault: Fault) -> NextAction {
    turn.open_record(&session.peer, None);
    turn.client = Some(session.peer.address);
    turn.answered(fault.status(), Some(fault.reason()));
    let to_head = session.buffers.as_ref().is_some_and(|buffers| buffers.inbound.starts_with(b"HEAD "));
    let form = Form { http_11: true, to_head, keep: false, grpc: false, http2: session.peer.http2 };
    send(session, turn, form, |page| page.problem(fault.status(), fault.reason())).await
}

/// Answers a preflight: it is neither charged nor forwarded.
async fn preflight(session: &mut Session, turn: &mut Turn, terms: Terms, mut form: Form) -> NextAction {
    form.keep &= drain(session, turn, terms).await.is_whole();
    turn.answered(StatusCode::NO_CONTENT, None);
    send(session, turn, form, |page| page.preflight()).await
}

/// Answers `OPTIONS *`: it is neither charged nor forwarded, since no route is about it.
async fn options(session: &mut Session, turn: &mut Turn, terms: Terms, mut form: Form) -> NextAction {
    form.keep &= drain(session, turn, terms).await.is_whole();
    turn.answered(StatusCode::OK, None);
    send(session, turn, form, |page| page.options()).await
}

/// Sends the client elsewhere, with the same method and body: it is neither charged nor forwarded.
async fn redirect(
    session: &mut Session,
    turn: &mut Turn,
    location: &str,
    terms: Terms,
    mut form: Form,
) -> NextAction {
    form.keep &= drain(session, turn, terms).await.is_whole();
    turn.answered(StatusCode::PERMANENT_REDIRECT, None);
    send(session, turn, form, |page| page.redirect(location)).await
}

async fn reject(
    session: &mut Session,
    turn: &mut Turn,
    reason: &RejectReason,
    terms: Terms,
    mut form: Form,
) -> NextAction {
    form.keep &= drain(session, turn, terms).await.is_whole();
    turn.answered(reason.status, Some(reason.error));
    send(session, turn, form, |page| page.problem(reason.status, &reason.detail)).await
}

async fn over_limit(
    session: &mut Session,
    turn: &mut Turn,
    refused: &Refused<'_>,
    terms: Terms,
    mut form: Form,
) -> NextAction {
    let Refused { refusal, tightest, route } = refused;
    let tightest = tightest.as_ref();
    turn.note_refusal(refusal, tightest);
    turn.fate = Fate::Refused;
    form.keep &= drain(session, turn, terms).await.is_whole();
    let reject = route.reject.as_deref().or(refusal.limit.reject.as_deref());
    let which = turn.plan.gateway.server.ratelimit_headers;
    let over = OverLimit { refusal, tightest, reject, which };
    turn.answered(over.status(), None);
    send(session, turn, form, |page| page.over_limit(&over)).await
}
