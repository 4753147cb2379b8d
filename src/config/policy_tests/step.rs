//! A step of a test: its request, and the answers.

use std::net::IpAddr;

use bytes::Bytes;
use http::StatusCode;

use super::super::keys::{ANY, SOME, Schema, count, keys};
use super::super::name::Directory;
use super::super::report::quoted;
use super::super::table::ConfigTable;
use super::super::text::{Cursor, SyntaxError};
use super::super::units;
use super::super::value::{ConfigValue, Entry};
use crate::explain::{ExplainFault, ExplainRequest};
use crate::limit::span::{TIME_UNITS, number_and_unit};
use crate::limit::units::{Micros, Timestamp};
use crate::log_reader::request::{LinePlace, LoggedRequest, OwnRecord};
use crate::plan::decision::CALL_OF_DESCRIPTORS;
use crate::plan::{LimitIndex, Plan};
use crate::policy_test::{MAX_TIMES, TestAnswer, TestAnswers, TestPlace, TestStep};
use crate::replay::DescribedRequest;
use crate::telemetry::metrics::DecisionLabel;

keys! {
    /// Requests that are sent one after the other at one time.
    pub(in crate::config) TEST_STEP: TestStepKeys = "steps" {
        /// The time since the start of the test, such as "90s". Default: that of the step before, and "0s" in the first.
        at = Schema::Text;
        /// Method and path, or URL: "GET /search?q=x", "POST https://shop.example/login".
        request = Schema::Text, required "\"GET /\"";
        /// The address of the peer: of the client, or of a trusted proxy. Default "127.0.0.1".
        ip = Schema::Text;
        /// The name of the listener that the requests come at. Default: that of the first one.
        listener = Schema::Text;
        /// Headers of the request: { x-api-key = "k1" }, or a list for several lines of one name.
        headers = Schema::Map(
            ANY,
            &Schema::Name,
            &Schema::Either(&[Schema::Text, Schema::List(SOME, &Schema::Text)])
        );
        /// The body of the request. Default: none.
        body = Schema::Text;
        /// The consumer that a token or a password is verified to be of, in place of verifying it.
        consumer = Schema::Text;
        /// The tier of `consumer`. Default: none.
        tier = Schema::Text;
        /// The number of requests, 1 to 1,000,000. Default: the sum of the numbers in `expect`, else 1.
        times: u32 = count(1, MAX_TIMES as u64);
        /// How long each request is in flight once it is forwarded: "2s". Default: no time.
        takes = Schema::Duration;
        /// What the backend answers: a status, or a table. Default 200.
        response = Schema::Either(&[Schema::Whole(200, 599), Schema::Table(&TEST_RESPONSE)]);
        /// One status for all requests, or the number of answers by status: { 200 = 14, 429 = 1 }.
        expect = Schema::Either(&[
            Schema::Whole(100, 599),
            Schema::Map(SOME, &Schema::Matching("^[1-5][0-9][0-9]$"), &Schema::Whole(0, MAX_TIMES as u64)),
        ]), required "200";
        /// The limit that refuses all requests that are refused.
        limit = Schema::Text;
        /// The `retry-after` of all requests that are refused, in whole seconds: "2s".
        retry_after = Schema::Duration;
        /// Limits in shadow mode, each of which would refuse at least one of the requests.
        shadow = Schema::List(SOME, &Schema::Text);
    }
}

keys! {
    /// What a backend answers.
    pub(in crate::config) TEST_RESPONSE: TestResponseKeys = "response" {
        /// 200 to 599.
        status: u16 = count(200, 599) => 200;
        /// The bytes of the body, for costs by bytes. Default: none are told, and the cost stays as reserved.
        bytes: u64 = count(0, 1 << 50);
        /// The units that the response tells in a header, a trailer or its body. Default: none are told.
        cost: u64 = count(0, u32::MAX as u64);
    }
}

/// The maximum number of bytes of a body.
const MAX_BODY: usize = 1 << 20;

/// What steps may name.
pub(super) struct StepNames<'p> {
    plan: &'p Plan,
    limits: Directory<'p>,
    consumers: Directory<'p>,
    has_auths: bool,
    /// Some auth verifies credentials, so that it may name any consumer.
    verifies: bool,
    listeners: Directory<'p>,
    /// The name of each listener for clients, in the order of the file.
    of_listeners: Vec<Option<&'p str>>,
}

impl<'p> StepNames<'p> {
    pub(super) fn new(plan: &'p Plan) -> Self {
        let consumers = plan.auths.iter().flat_map(|auth| auth.consumers()).map(|consumer| consumer.name());
        let listeners = || plan.server.client_listeners();
        Self {
            plan,
            limits: Directory::new("limit", plan.limits.iter().map(|limit| &*limit.name)),
            consumers: Directory::new("consumer", consumers),
            has_auths: !plan.auths.is_empty(),
            verifies: plan.auths.iter().any(|auth| auth.api_keys().is_none()),
            listeners: Directory::new(
                "listener",
                listeners().filter_map(|listener| listener.name.as_deref()),
            ),
            of_listeners: listeners().map(|listener| listener.name.as_deref()).collect(),
        }
    }
}

/// Reads a step. `before`: the time of the step before it, also as it is written.
pub(super) fn read(
    value: &ConfigValue<'_>,
    names: &StepNames<'_>,
    before: Option<&(Micros, String)>,
) -> Option<TestStep> {
    let mut table = value.table("`steps`")?;
    let default = before.cloned().unwrap_or((Micros(0), "0s".to_owned()));
    let (at, at_written) = table.or(&TEST_STEP.at, default, |value| at(&value, before));
    let sent = sent(&mut table, names);
    let takes = table.optional(&TEST_STEP.takes, |value| value.duration());
    let response = response(&mut table);
    let (expected, times) = expected(&mut table)?;
    let limit = table.optional(&TEST_STEP.limit, |value| limit_named(&value, names));
    let retry_after = table.optional(&TEST_STEP.retry_after, |value| seconds(&value));
    let shadow =
        table.or(&TEST_STEP.shadow, Vec::new(), |value| value.some_of(|item| limit_named(&item, names)));
    if !table.finish() {
        return None;
    }
    let (Sent { request, described }, response) = (sent?, response?);
    let mut described = described;
    described.logged.duration =
        takes.map(|takes| Micros(u64::try_from(takes.as_micros()).unwrap_or(u64::MAX)));
    described.logged.status = Some(response.status.as_u16());
    described.logged.bytes_out = response.bytes;
    if let Some(own) = &mut described.logged.own {
        own.settled = response.cost;
    }
    Some(TestStep {
        place: place(value),
        at,
        at_written,
        request,
        described,
        times,
        response: response.status,
        expected,
        limit,
        retry_after,
        shadow,
    })
}

/// The place of a value: its file, and the line on which it begins.
pub(super) fn place(value: &ConfigValue<'_>) -> TestPlace {
    let place = value.diagnostics().sources().place(value.span());
    let (file, line) = place.rsplit_once(':').unwrap_or((&place, ""));
    TestPlace { file: file.to_owned(), line: line.parse().unwrap_or(1) }
}

/// The time of a step: a duration, or zero.
fn at(value: &ConfigValue<'_>, before: Option<&(Micros, String)>) -> Option<(Micros, String)> {
    if !value.is_text() {
        return value.mismatch("a duration", "write it in quotes, with a unit: `\"60s\"`");
    }
    let text = value.text()?;
    let is_zero = |text: &str| {
        number_and_unit(text).is_some_and(|(number, unit)| {
            number.bytes().all(|byte| byte == b'0')
                && (unit.is_empty() || TIME_UNITS.iter().any(|(known, _)| *known == unit))
        })
    };
    let at = text.parse("a duration", |text| match is_zero(text) {
        true => Ok(Micros(0)),
        false => units::duration(text).map(|at| Micros(u64::try_from(at.as_micros()).unwrap_or(u64::MAX))),
    })?;
    if let Some((_, written)) = before.filter(|(earlier, _)| *earlier > at) {
        let message =
            format!("{} is earlier than the step before, which is at {}", text.quoted(), quoted(written));
        value.fault(message, "write the steps in the order of time");
        return None;
    }
    Some((at, text.into_string()))
}

/// A request, as it is explained and as it is decided.
struct Sent {
    request: ExplainRequest,
    described: DescribedRequest,
}

/// What the request is made of.
fn sent(table: &mut ConfigTable<'_>, names: &StepNames<'_>) -> Option<Sent> {
    let line = table.require(&TEST_STEP.request, |value| value.text());
    let ip = table.optional(&TEST_STEP.ip, |value| address(&value));
    let listener = table.optional(&TEST_STEP.listener, |value| {
        let text = value.text()?;
        if names.of_listeners.iter().all(Option::is_none) {
            value.fault("no listener has a name", "leave `listener` out");
            return None;
        }
        names.listeners.find(&text).map(|_| text.into_string())
    });
    let mut headers = table.or(&TEST_STEP.headers, Vec::new(), |value| headers(&value));
    let body = table.optional(&TEST_STEP.body, |value| body(&value)).unwrap_or_default();
    let consumer = table.optional(&TEST_STEP.consumer, |value| consumer(&value, names)).unwrap_or_default();
    let tier = table.optional(&TEST_STEP.tier, |value| Some(value.text()?.into_string())).unwrap_or_default();
    let line = line?;
    let Some((method, url)) = line.as_str().split_once(' ') else {
        let help = "write method and path, such as `\"GET /search\"`";
        line.diagnostics().fault(line.span(), format!("{} is not a request", line.quoted()), help);
        return None;
    };
    if method == CALL_OF_DESCRIPTORS {
        let help = "look at it with `tollgate explain`, or replay a log of such calls";
        line.diagnostics().fault(line.span(), "a test has no calls on descriptors", help);
        return None;
    }
    let is_framed = |header: &String| {
        let name = header.split(':').next().unwrap_or_default();
        name.eq_ignore_ascii_case("content-length") || name.eq_ignore_ascii_case("transfer-encoding")
    };
    if !body.is_empty() && !headers.iter().any(is_framed) {
        headers.push(format!("content-length: {}", body.len()));
    }
    let listener = listener.or_else(|| names.of_listeners.first()?.map(str::to_owned));
    let body = Bytes::from(body);
    let request = request(&line, (method, url), &headers, ip)?.at_listener(listener.clone());
    let request = request.with_body(&body, names.plan);
    let own =
        OwnRecord { tier, decision: DecisionLabel::Allowed.as_str().to_owned(), ..OwnRecord::default() };
    let logged = LoggedRequest {
        time: Timestamp(0),
        client: request.peer(),
        head: request.head_text().to_vec(),
        consumer,
        own: Some(own),
        place: LinePlace::default(),
        ..LoggedRequest::default()
    };
    let (peer, secure) = (request.peer(), request.uses_tls(names.plan));
    let described = DescribedRequest { logged, peer, secure, listener, body };
    Some(Sent { request, described })
}

fn request(
    line: &Cursor<'_>,
    (method, url): (&str, &str),
    headers: &[String],
    ip: Option<IpAddr>,
) -> Option<ExplainRequest> {
    match ExplainRequest::new(method, url.trim_start(), headers, ip) {
        Ok(request) => Some(request),
        Err(ExplainFault { message, help }) => {
            line.diagnostics().fault(line.span(), message, help);
            None
        }
    }
}

fn address(value: &ConfigValue<'_>) -> Option<IpAddr> {
    value.text()?.parse("an address", |text| {
        let help = "write the address of the peer, such as `192.0.2.1` or `2001:db8::1`";
        text.parse().map_err(|_| SyntaxError::new(format!("{} is not an address", quoted(text)), help))
    })
}

/// Lines of the head: `x-api-key: k1`.
fn headers(value: &ConfigValue<'_>) -> Option<Vec<String>> {
    let mut lines = Vec::new();
    for entry in value.entries()? {
        let texts = match entry.value.is_list() {
            true => entry.value.some_of(|item| item.text())?,
            false => vec![entry.value.text()?],
        };
        let is_name = !entry.key.is_empty() && !entry.key.contains([':', '\r', '\n']);
        if !is_name || texts.iter().any(|text| text.as_str().contains(['\r', '\n'])) {
            let help = "a name has no colon, and neither name nor value has a line end";
            value.diagnostics().fault(entry.key_span, format!("{} is not a header", quoted(entry.key)), help);
            continue;
        }
        lines.extend(texts.iter().map(|text| format!("{}: {}", entry.key, text.as_str())));
    }
    Some(lines)
}

fn body(value: &ConfigValue<'_>) -> Option<String> {
    let text = value.text()?;
    if text.as_str().len() > MAX_BODY {
        value.fault("`body` is larger than 1 MiB", "shorten it");
        return None;
    }
    Some(text.into_string())
}

/// A consumer of the configuration; any name, if some auth verifies credentials.
fn consumer(value: &ConfigValue<'_>, names: &StepNames<'_>) -> Option<String> {
    let text = value.text()?;
    if text.as_str().is_empty() {
        value.fault("`consumer` is empty", "leave it out: the request then has no verified credential");
        return None;
    }
    if !names.has_auths {
        value.fault("no `[auth.NAME]` names a consumer", "leave `consumer` out");
        return None;
    }
    if !names.verifies {
        names.consumers.find(&text)?;
    }
    Some(text.into_string())
}

fn limit_named(value: &ConfigValue<'_>, names: &StepNames<'_>) -> Option<LimitIndex> {
    names.limits.find(&value.text()?).map(LimitIndex)
}

/// Whole seconds, at least one.
fn seconds(value: &ConfigValue<'_>) -> Option<u64> {
    let duration = value.duration()?;
    if duration.subsec_nanos() > 0 {
        value.fault(
            "`retry_after` is not a number of whole seconds",
            "`retry-after` is rounded up: write `\"2s\"`",
        );
        return None;
    }
    Some(duration.as_secs())
}

/// What a backend answers.
struct TestResponse {
    status: StatusCode,
    bytes: Option<u64>,
    cost: Option<u64>,
}

fn response(table: &mut ConfigTable<'_>) -> Option<TestResponse> {
    let ok = TestResponse { status: StatusCode::OK, bytes: None, cost: None };
    let Some(value) = table.take(&TEST_STEP.response) else { return Some(ok) };
    let of = |status: u16| StatusCode::from_u16(status).ok();
    if value.is_table() {
        let mut table = value.table("`response`")?;
        let status = table.value(&TEST_RESPONSE.status);
        let (bytes, cost) = (table.get(&TEST_RESPONSE.bytes), table.get(&TEST_RESPONSE.cost));
        return (table.finish()).then_some(TestResponse { status: of(status)?, bytes, cost });
    }
    if !value.is_whole() {
        return value.mismatch("a status or a table", "write `404`, or `{ status = 200, bytes = 100 }`");
    }
    let status = value.whole(200..=599).and_then(|status| of(u16::try_from(status).ok()?))?;
    Some(TestResponse { status, ..ok })
}

/// The answers, and the number of requests.
fn expected(table: &mut ConfigTable<'_>) -> Option<(TestAnswers, u32)> {
    let written = table.get(&TEST_STEP.times);
    let value = table.require(&TEST_STEP.expect, Some);
    let Some(value) = value else {
        return Some((TestAnswers::default(), written.unwrap_or(1)));
    };
    if value.is_whole() {
        let times = written.unwrap_or(1);
        let answer = value.whole(100..=599).and_then(status);
        return Some((answer.map(|answer| (answer, u64::from(times))).into_iter().collect(), times));
    }
    if !value.is_table() {
        value.mismatch::<()>("a status or a table", "write `200`, or `{ 200 = 14, 429 = 1 }`");
        return Some((TestAnswers::default(), written.unwrap_or(1)));
    }
    let errors = value.diagnostics().errors();
    let answers: Vec<_> = value.entries()?.iter().filter_map(count_of_status).collect();
    let sum: u64 = answers.iter().map(|(_, count)| count).sum();
    let times = written.map_or(sum, u64::from);
    if value.diagnostics().errors() > errors {
        // The sum is unknown.
    } else if sum != times {
        let message = format!("`expect` has {sum} answers, but the step sends {times} requests");
        value.fault(message, "let the numbers in `expect` add up to `times`, or leave `times` out");
    } else if !(1..=u64::from(MAX_TIMES)).contains(&sum) {
        let message = format!("`expect` has {sum} answers");
        value.fault(message, format!("a step sends 1 to {MAX_TIMES} requests"));
    }
    Some((answers.into_iter().collect(), u32::try_from(times).unwrap_or(MAX_TIMES)))
}

/// `429 = 1`.
fn count_of_status(entry: &Entry<'_>) -> Option<(TestAnswer, u64)> {
    let number = entry.key.parse().ok().filter(|_| entry.key.len() == 3);
    let Some(status) = number.filter(|number| (100..=599).contains(number)).and_then(status) else {
        let help = "each key is a status: `{ 200 = 14, 429 = 1 }`";
        entry.value.diagnostics().fault(
            entry.key_span,
            format!("{} is not a status", quoted(entry.key)),
            help,
        );
        return None;
    };
    Some((status, u64::from(entry.value.count(0, MAX_TIMES)?)))
}

fn status(number: u64) -> Option<TestAnswer> {
    StatusCode::from_u16(u16::try_from(number).ok()?).ok().map(TestAnswer::Status)
}
