//! `POST /v1/decide`: an application asks about a request that it describes, or about limits that it names, in JSON.

use std::cell::{Cell, OnceCell};
use std::collections::{BTreeMap, HashSet};
use std::net::IpAddr;
use std::rc::Rc;

use bytes::BytesMut;
use http::{Method, StatusCode};
use serde::{Deserialize, Serialize};

use super::asked_request::AskedRequest;
use super::call::{CallText, CallVerdict, RuledCall};
use super::check::decided;
use super::endpoint::EndpointKind;
use super::{body_of, count, problem, problem_with};
use crate::http1::fields::FieldSpan;
use crate::http1::head_writer::put_field;
use crate::http1::request::RequestHead;
use crate::limit::units::Cost;
use crate::plan::action::RouteAction;
use crate::plan::admission::BindingLimit;
use crate::plan::auth::CredentialFault;
use crate::plan::decision::{CALL_OF_LIMITS, CallCharges, CalledLimit, CheckOwner, Ruling, write_limits};
use crate::plan::decisions::NAMED_LIMITS;
use crate::plan::{Limit, Plan, Reject};
use crate::proxy::answer::next_action::NextAction;
use crate::proxy::answer::respond::send;
use crate::proxy::decide::pending_request::{AskedFor, PendingRequest};
use crate::proxy::decide::request_action::RequestAction;
use crate::proxy::decide::undecided::HeldBytes;
use crate::proxy::record::policy_numbers::PolicyNumbers;
use crate::proxy::record::request_context::RequestContext;
use crate::proxy::session::Session;
use crate::proxy::worker::WorkerPlan;
use crate::route::key::{EVERYONE, Part};
use crate::route::mask::Masking;
use crate::store::MAX_CHARGES;
use crate::telemetry::metrics::DecisionResult;

/// The maximum number of questions of a call.
const MAX_QUESTIONS: usize = 100;

/// The body of a call: a question, or a list.
#[derive(Debug, Deserialize)]
#[serde(untagged)]
enum Questions {
    One(Box<Question>),
    List(Vec<Question>),
}

/// A question.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
struct Question {
    /// Of a request: its method, "GET" if it is left out.
    method: Option<String>,
    /// Its URL, or its path with the query; then `headers` may have a host.
    url: Option<String>,
    #[serde(default)]
    headers: BTreeMap<String, FieldValues>,
    /// The address of the client.
    ip: Option<String>,
    /// Or the names of limits.
    limits: Option<Vec<NamedLimit>>,
    /// The values of their keys, by part.
    #[serde(default)]
    key: BTreeMap<String, String>,
    /// Nothing is charged.
    #[serde(default)]
    peek: bool,
}

#[derive(Debug, Deserialize)]
#[serde(untagged)]
enum FieldValues {
    One(String),
    Several(Vec<String>),
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct NamedLimit {
    name: String,
    #[serde(default = "one")]
    cost: u32,
}

const fn one() -> u32 {
    1
}

/// The answer to a question.
#[derive(Debug, Serialize)]
struct DecisionAnswer {
    allowed: bool,
    /// The status that the client would get from the gateway; 200 if it is admitted.
    status: u16,
    /// Seconds, rounded up; `null`: it is admitted, or waiting cannot help.
    retry_after: Option<u64>,
    /// The limit that refuses, or has the least left.
    limit: Option<String>,
    policies: Vec<PolicyAnswer>,
}

#[derive(Debug, Serialize)]
struct PolicyAnswer {
    name: String,
    quota: u64,
    remaining: u64,
    reset: Option<u64>,
}

/// Answers all questions of a call.
pub(super) async fn answer(
    session: &mut Session,
    mut ctx: RequestContext,
    head: &RequestHead<'_>,
) -> NextAction {
    let kind = EndpointKind::Decide;
    if head.method != Method::POST {
        count(&ctx, kind, DecisionResult::Error);
        let other = (StatusCode::METHOD_NOT_ALLOWED, "ask by POST", "method");
        return problem_with(session, &mut ctx, other, "allow: POST\r\n").await;
    }
    let body = match body_of(session, &mut ctx, head).await {
        Ok(body) => body,
        Err(fault) => {
            count(&ctx, kind, DecisionResult::Error);
            return problem(session, &mut ctx, fault).await;
        }
    };
    let answers = match serde_json::from_slice::<Questions>(&body) {
        Ok(Questions::One(question)) => {
            ask(session, &ctx, *question).await.and_then(|answer| Ok(serde_json::to_vec(&answer)?))
        }
        Ok(Questions::List(questions)) if questions.len() > MAX_QUESTIONS => {
            Err(Unanswerable(format!("a call has at most {MAX_QUESTIONS} questions")))
        }
        Ok(Questions::List(questions)) => ask_all(session, &ctx, questions).await,
        Err(_) => Err(Unanswerable(
            "the body is not a question: {\"method\",\"url\",\"headers\",\"ip\"} or {\"limits\",\"key\"}, or a list of these"
                .to_owned(),
        )),
    };
    match answers {
        Ok(json) => send_json(session, &mut ctx, &json).await,
        Err(Unanswerable(why)) => {
            count(&ctx, kind, DecisionResult::Error);
            ctx.answered(StatusCode::BAD_REQUEST, Some("malformed_question"));
            send(session, &mut ctx, |page| page.problem(StatusCode::BAD_REQUEST, &why)).await
        }
    }
}

/// A question that has no answer: it is malformed. The text is for the application.
struct Unanswerable(String);

impl From<serde_json::Error> for Unanswerable {
    fn from(error: serde_json::Error) -> Self {
        Self(error.to_string())
    }
}

async fn ask_all(
    session: &mut Session,
    ctx: &RequestContext,
    questions: Vec<Question>,
) -> Result<Vec<u8>, Unanswerable> {
    // None is charged where one of them is malformed.
    questions.iter().enumerate().try_for_each(|(index, question)| {
        check(&ctx.plan, question)
            .map_err(|Unanswerable(why)| Unanswerable(format!("question {index}: {why}")))
    })?;
    let mut answers = Vec::with_capacity(questions.len());
    for question in questions {
        answers.push(ask(session, ctx, question).await?);
    }
    Ok(serde_json::to_vec(&answers)?)
}

/// Whether a question can be answered.
fn check(plan: &WorkerPlan, question: &Question) -> Result<(), Unanswerable> {
    match &question.limits {
        Some(limits) => named_charges(plan, limits, &question.key).map(drop),
        None => head_of(&described(plan, question)?, &mut Vec::new()).map(drop),
    }
}

/// The head of a request that is asked about.
fn head_of<'h>(
    asked: &'h AskedRequest,
    spans: &'h mut Vec<FieldSpan>,
) -> Result<RequestHead<'h>, Unanswerable> {
    RequestHead::parse(&asked.head, spans)
        .map_err(|fault| Unanswerable(format!("the gateway would not take the request: {}", fault.reason())))
}

async fn ask(
    session: &mut Session,
    call: &RequestContext,
    question: Question,
) -> Result<DecisionAnswer, Unanswerable> {
    let answer = match &question.limits {
        Some(limits) => ask_limits(session, call, limits, &question).await?,
        None => ask_request(session, call, &question).await?,
    };
    let result = if answer.allowed { DecisionResult::Allowed } else { DecisionResult::Refused };
    count(call, EndpointKind::Decide, result);
    Ok(answer)
}

/// The request that a question describes.
fn described(plan: &Plan, question: &Question) -> Result<AskedRequest, Unanswerable> {
    if !question.key.is_empty() {
        return Err(Unanswerable("`key` stands beside `limits`".to_owned()));
    }
    let method = question.method.as_deref().unwrap_or("GET");
    let method = Method::from_bytes(method.as_bytes());
    let method = method.map_err(|_| Unanswerable("`method` is none".to_owned()))?;
    let missing = || Unanswerable("the question has neither `url` nor `limits`".to_owned());
    let url = question.url.as_deref().ok_or_else(missing)?;
    let no_client = || Unanswerable("`ip` is missing: the address of the client".to_owned());
    let address: IpAddr = question
        .ip
        .as_deref()
        .ok_or_else(no_client)?
        .parse()
        .map_err(|_| Unanswerable("`ip` is not an address".to_owned()))?;
    let client = plan.server.client.client(address);
    let mut headers = Vec::new();
    for (name, values) in &question.headers {
        match values {
            FieldValues::One(value) => headers.push((name.clone(), value.clone())),
            FieldValues::Several(values) => {
                headers.extend(values.iter().map(|value| (name.clone(), value.clone())));
            }
        }
    }
    AskedRequest::described(&method, url, &headers, client).map_err(|fault| Unanswerable(fault.to_string()))
}

/// Asks about a request.
async fn ask_request(
    session: &mut Session,
    call: &RequestContext,
    question: &Question,
) -> Result<DecisionAnswer, Unanswerable> {
    let plan = Rc::clone(&call.plan);
    let asked = described(&plan, question)?;
    let mut spans = Vec::new();
    let head = head_of(&asked, &mut spans)?;
    let peer = Rc::clone(&session.peer);
    let mut ctx = RequestContext::begin(&session.worker, &peer, call.started);
    ctx.is_counted = !question.peek;
    ctx.policies = Some(Vec::new());
    if ctx.is_counted {
        ctx.open_record(&peer, Some(&head));
    }
    let (identity, body, held, last_head) =
        (OnceCell::new(), OnceCell::new(), HeldBytes::default(), Cell::new(None));
    let asked = AskedFor { client: asked.client, secure: asked.secure, peeks: question.peek };
    let pending = PendingRequest {
        plan: &plan,
        peer: &peer,
        head: &head,
        last_head: &last_head,
        identity: &identity,
        body: &body,
        ahead: &[],
        held: &held,
        asked: Some(asked),
    };
    let mut seen = None;
    let action = decided(session, &mut ctx, &pending, &mut seen).await;
    let (status, retry_after, limit, error) = match &action {
        None => (StatusCode::SERVICE_UNAVAILABLE, None, None, Some("overloaded")),
        Some(RequestAction::Forward(request, _)) => {
            (StatusCode::OK, None, name_of(request.tightest.as_ref()), None)
        }
        Some(RequestAction::Answer(fixed)) => {
            let status = match &fixed.route.action {
                RouteAction::Redirect(redirect) => redirect.status,
                RouteAction::Respond(response) => response.status,
                _ => StatusCode::OK,
            };
            (status, None, name_of(fixed.tightest.as_ref()), None)
        }
        Some(RequestAction::Relay(answer)) => {
            (answer.status, None, None, Some(CredentialFault::Answered.error()))
        }
        Some(RequestAction::Early(early)) => (early.status(), None, None, early.error()),
        Some(RequestAction::Refuse(refused)) => {
            let reject = refused.route.reject_of(refused.refusal.limit);
            let status = reject.map_or(StatusCode::TOO_MANY_REQUESTS, Reject::failure_status);
            let limit = Some(refused.refusal.limit.name.to_string());
            (status, refused.refusal.retry_after(), limit, None)
        }
        Some(RequestAction::GiveUp) => (StatusCode::SERVICE_UNAVAILABLE, None, None, Some("client_gone")),
    };
    drop(action);
    ctx.answered(status, error);
    let policies = ctx.policies.take().unwrap_or_default();
    Ok(DecisionAnswer {
        allowed: status.is_success(),
        status: status.as_u16(),
        retry_after,
        limit,
        policies: policies.into_iter().map(PolicyAnswer::from).collect(),
    })
}

fn name_of(binding: Option<&BindingLimit<'_>>) -> Option<String> {
    binding.map(|binding| binding.limit.name.to_string())
}

/// The limits that are named, and their charges.
fn named_charges<'p>(
    plan: &'p WorkerPlan,
    limits: &[NamedLimit],
    key: &BTreeMap<String, String>,
) -> Result<(Vec<CalledLimit<'p>>, CallCharges<'p>), Unanswerable> {
    if plan.named_limits().is_none() {
        return Err(Unanswerable("no limit can be asked".to_owned()));
    }
    if limits.is_empty() {
        return Err(Unanswerable("`limits` is empty".to_owned()));
    }
    if let Some(part) = key.keys().find(|part| Part::parse(part).is_err()) {
        return Err(Unanswerable(format!("`{}` is no part of a key", part.escape_debug())));
    }
    let mut names = HashSet::new();
    let called = |named: &NamedLimit| {
        let name = named.name.escape_debug();
        if !names.insert(named.name.clone()) {
            return Err(Unanswerable(format!("`limits` has `{name}` twice")));
        }
        let cost = Cost::new(named.cost)
            .ok_or_else(|| Unanswerable(format!("`cost` of `{name}` is not from 1 to {}", Cost::MAX)))?;
        let called = CalledLimit::new(plan, &named.name, cost).ok_or_else(|| {
            Unanswerable(format!("there is no limit `{name}`, or it cannot be asked: see `tollgate check`"))
        })?;
        let values = values_of(called.limit, key)?;
        Ok(called.with_values(values))
    };
    let called = limits.iter().map(called).collect::<Result<Vec<_>, _>>()?;
    let charges = CallCharges::of_limits(plan, &called, &plan.secret);
    let charges = charges.map_err(|fault| Unanswerable(fault.message))?;
    if charges.charges.charges.len() > MAX_CHARGES {
        return Err(Unanswerable(format!("a question is charged to at most {MAX_CHARGES} rates at once")));
    }
    Ok((called, charges))
}

/// The values of a limit's key, in the order of its parts.
fn values_of(limit: &Limit, key: &BTreeMap<String, String>) -> Result<Vec<String>, Unanswerable> {
    let parts: Vec<_> = limit.key.parts.iter().filter(|part| **part != Part::Global).collect();
    if parts.is_empty() {
        return Ok(vec![EVERYONE.to_owned()]);
    }
    let value = |part: &&Part| {
        let missing =
            || Unanswerable(format!("`key` lacks `{part}`, by which limit `{}` counts", limit.name));
        key.get(&part.to_string()).cloned().ok_or_else(missing)
    };
    parts.iter().map(value).collect()
}

/// Asks about limits that are named.
async fn ask_limits(
    session: &mut Session,
    call: &RequestContext,
    limits: &[NamedLimit],
    question: &Question,
) -> Result<DecisionAnswer, Unanswerable> {
    if question.url.is_some()
        || question.method.is_some()
        || question.ip.is_some()
        || !question.headers.is_empty()
    {
        return Err(Unanswerable("`limits` stands beside `key` and `peek` alone".to_owned()));
    }
    let plan = Rc::clone(&call.plan);
    let (called, charges) = named_charges(&plan, limits, &question.key)?;
    let peer = Rc::clone(&session.peer);
    let mut ctx = RequestContext::begin(&session.worker, &peer, call.started);
    (ctx.is_counted, ctx.policies) = (!question.peek, Some(Vec::new()));
    let ruled = RuledCall::rule(&plan, charges, ctx.started, question.peek).await;
    let write_label = |owner: CheckOwner, limit: &Limit, label: &mut String| {
        let masking = Masking::of(limit.reveal, &plan.short_ids);
        let values = called.get(owner.item).map(|called| called.values.as_slice()).unwrap_or_default();
        label.push_str(&limit.key.label_of(values, &plan.server.client, masking));
    };
    let path = write_limits(&plan, &called, &plan.short_ids);
    let text = CallText {
        method: CALL_OF_LIMITS,
        host: NAMED_LIMITS,
        path: &path,
        consumer: question.key.get("consumer").map(String::as_str),
        write_label: &write_label,
    };
    if ctx.is_counted {
        ctx.open_record(&peer, None);
        ctx.open_call(&text);
        ruled.count(&mut ctx, &plan, &text);
    }
    match &ruled.ruling {
        Ruling::Decided(admission) => ctx.list_policies(&ruled.charges.charges, &ruled.outcome, admission),
        Ruling::Banned { ban, .. } => ctx.list_binding(&ban.tightest, ban.refusal.retry_after()),
        Ruling::Unkeyed(_) | Ruling::Unavailable => {}
    }
    let (verdict, route) = ruled.end(&mut ctx, &plan, &text);
    let (status, retry_after, limit, error) = match &verdict {
        CallVerdict::Admitted(tightest) => (StatusCode::OK, None, name_of(tightest.as_ref()), None),
        CallVerdict::Refused(refusal, _) => {
            let status =
                refusal.limit.reject.as_deref().map_or(StatusCode::TOO_MANY_REQUESTS, Reject::failure_status);
            (status, refusal.retry_after(), Some(refusal.limit.name.to_string()), None)
        }
        CallVerdict::Unavailable => (StatusCode::SERVICE_UNAVAILABLE, None, None, Some("store")),
    };
    if let Some(route) = route {
        ctx.on_route(route, plan.route(route));
    }
    ctx.answered(status, error);
    let policies = ctx.policies.take().unwrap_or_default();
    Ok(DecisionAnswer {
        allowed: status.is_success(),
        status: status.as_u16(),
        retry_after,
        limit,
        policies: policies.into_iter().map(PolicyAnswer::from).collect(),
    })
}

impl From<PolicyNumbers> for PolicyAnswer {
    fn from(PolicyNumbers { name, quota, remaining, reset }: PolicyNumbers) -> Self {
        Self { name: name.to_string(), quota, remaining, reset }
    }
}

async fn send_json(session: &mut Session, ctx: &mut RequestContext, json: &[u8]) -> NextAction {
    let mut fields = BytesMut::new();
    put_field(&mut fields, b"content-type", b"application/json");
    put_field(&mut fields, b"cache-control", b"no-store");
    put_field(&mut fields, b"date", &ctx.worker.date(ctx.started));
    ctx.answered(StatusCode::OK, None);
    send(session, ctx, |page| page.with_body(StatusCode::OK, &fields, json)).await
}
