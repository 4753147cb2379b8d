//! Runs a test, and tells the first step whose answers differ.

use std::collections::BTreeSet;

use http::StatusCode;

use super::answers::{TestAnswer, TestAnswers};
use super::{PolicyTest, TestPlace, TestStep};
use crate::explain::explain;
use crate::limit::units::Timestamp;
use crate::log_reader::request::LoggedRequest;
use crate::plan::action::RouteAction;
use crate::plan::admission::RequestCharges;
use crate::plan::{LimitIndex, Plan};
use crate::replay::report::number::Span;
use crate::replay::{
    DescribedRequest, LoggedConsumers, ReplaySink, ReplayVerdict, ReplayedRequest, VirtualGateway,
};
use crate::route::RouteIndex;
use crate::store::memory::OutOfMemory;
use crate::telemetry::metrics::DecisionLabel;

/// Keys the hashes of keys: each run has the same, so that a trial enforces a limit for the same keys each time.
const SECRET: [u8; 16] = *b"tests of limits.";

/// The result of a test.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PolicyTestResult {
    /// The first step whose answers differ; `None`: the test has passed.
    pub difference: Option<StepDifference>,
}

/// A step with other answers than the test expects.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StepDifference {
    /// The step, counted from 1.
    pub step: usize,
    /// Where it stands.
    pub place: TestPlace,
    /// What it sends: `at 60s, GET /search, 15 times`.
    pub sent: String,
    /// What the test expects.
    pub expected: String,
    /// What came.
    pub got: String,
    /// The first request whose answer differs, and the limit that decided it.
    pub decision: Option<String>,
    /// The explanation of the request.
    pub explanation: String,
}

/// What came of a step.
#[derive(Clone, Debug, Default)]
struct StepResult {
    answers: TestAnswers,
    /// The requests that were decided.
    decided: u64,
    /// The first answer that is one too many, in words.
    unexpected: Option<String>,
    /// The last answer in words, where none is too many.
    last: Option<String>,
    /// The limits that refused.
    refused_by: BTreeSet<String>,
    /// The seconds in `retry-after` of what was refused; 0: there was no such header.
    retry_after: BTreeSet<u64>,
    /// Limits in shadow mode that would have refused.
    shadow: BTreeSet<usize>,
}

/// Takes the decisions of a test.
struct TestRecorder<'t> {
    plan: &'t Plan,
    test: &'t PolicyTest,
    results: Vec<StepResult>,
}

/// Runs a test from unused counters.
///
/// # Errors
///
/// The system has no memory for the counters.
pub fn run(plan: &Plan, test: &PolicyTest) -> Result<PolicyTestResult, OutOfMemory> {
    let logged = LoggedConsumers::default();
    let mut gateway = VirtualGateway::new(plan, &logged, SECRET)?;
    let results = vec![StepResult::default(); test.steps.len()];
    let mut recorder = TestRecorder { plan, test, results };
    for (number, step) in test.steps.iter().enumerate() {
        let described = described(test, step, number);
        (0..step.times).for_each(|_| gateway.described(&described, &mut recorder));
    }
    gateway.finish(&mut recorder);
    let results = recorder.results;
    let steps = test.steps.iter().zip(&results).enumerate();
    let difference = steps.map(|(index, (step, result))| difference(plan, index + 1, step, result));
    Ok(PolicyTestResult { difference: difference.flatten().next() })
}

/// The request of a step at its time. Its number stands for the line of a log.
fn described(test: &PolicyTest, step: &TestStep, number: usize) -> DescribedRequest {
    let mut described = step.described.clone();
    described.logged.time = Timestamp(test.start.0.saturating_add(step.at.0));
    described.logged.place.line = number as u64;
    described
}

/// How the answers to a step differ from those that are expected.
fn difference(plan: &Plan, number: usize, step: &TestStep, result: &StepResult) -> Option<StepDifference> {
    let (expected, got) = mismatch(plan, step, result)?;
    let times = if step.times == 1 { String::new() } else { format!(", {} times", step.times) };
    Some(StepDifference {
        step: number,
        place: step.place.clone(),
        sent: format!("at {}, {}{times}", step.at_written, step.request.title()),
        expected,
        got,
        decision: result.unexpected.clone().or_else(|| result.last.clone()),
        explanation: explain(plan, &step.request).to_string(),
    })
}

/// What is expected, and what came in place of it.
fn mismatch(plan: &Plan, step: &TestStep, result: &StepResult) -> Option<(String, String)> {
    let name = |limit: LimitIndex| plan.limit(limit).name.to_string();
    let quoted = |names: &mut dyn Iterator<Item = &String>| {
        let names: Vec<_> = names.map(|name| format!("`{name}`")).collect();
        if names.is_empty() { "no limit".to_owned() } else { names.join(" and ") }
    };
    if step.expected != result.answers {
        return Some((step.expected.to_string(), result.answers.to_string()));
    }
    if let Some(limit) = step.limit.map(name)
        && !result.refused_by.iter().eq([&limit])
    {
        let by = quoted(&mut result.refused_by.iter());
        return Some((format!("refused by `{limit}`"), format!("refused by {by}")));
    }
    if let Some(seconds) = step.retry_after
        && !result.retry_after.iter().eq([&seconds])
    {
        let header = |seconds: &u64| match seconds {
            0 => "no `retry-after`".to_owned(),
            seconds => format!("`retry-after: {seconds}`"),
        };
        let got: Vec<_> = result.retry_after.iter().map(header).collect();
        let got = if got.is_empty() { "no refusal".to_owned() } else { got.join(" and ") };
        return Some((header(&seconds), got));
    }
    let missing = step.shadow.iter().find(|limit| !result.shadow.contains(&limit.0))?;
    let refused: Vec<_> = result.shadow.iter().map(|index| name(LimitIndex(*index))).collect();
    let got = quoted(&mut refused.iter());
    Some((format!("`{}` in shadow would refuse", name(*missing)), format!("{got} in shadow would refuse")))
}

impl TestRecorder<'_> {
    fn answer(&self, step: &TestStep, replayed: &ReplayedRequest<'_>) -> TestAnswer {
        let of_route = |route: RouteIndex| match &self.plan.route(route).action {
            RouteAction::Forward(_) | RouteAction::Split(_) => step.response,
            RouteAction::Redirect(redirect) => redirect.status,
            RouteAction::Respond(response) => response.status,
            RouteAction::Decide => StatusCode::OK,
        };
        let status = match (replayed.verdict, &replayed.refusal) {
            (ReplayVerdict::Unverified, _) => return TestAnswer::Unverified,
            (ReplayVerdict::Answered(status), _) => status,
            (ReplayVerdict::Admitted(_), _) => replayed.route.map_or(step.response, of_route),
            (ReplayVerdict::Refused, Some(refusal)) => refusal.status,
            // The store of a test is always there.
            (ReplayVerdict::Refused, None) => StatusCode::SERVICE_UNAVAILABLE,
        };
        TestAnswer::Status(status)
    }
}

/// The answer to one request, and the limit that decided it.
fn in_words((number, times): (u64, u32), answer: TestAnswer, replayed: &ReplayedRequest<'_>) -> String {
    let which = if times == 1 { String::new() } else { format!("request {number} of {times}: ") };
    let mut words = format!("{which}{answer}");
    if answer == TestAnswer::Unverified {
        words
            .push_str(": a running gateway verifies the credential; name whose it is: `consumer = \"NAME\"`");
    }
    if let Some(logged) = &replayed.logged {
        words.push_str(&format!(", {} by `{}`", logged.decision.as_str(), logged.limit));
        words.extend(logged.remaining.map(|left| format!(", {left} left")));
    }
    if let ReplayVerdict::Admitted(delay) = replayed.verdict
        && delay.0 > 0
    {
        words.push_str(&format!(", after {}", Span(delay)));
    }
    words.extend(
        replayed.refusal.and_then(|by| by.retry_after).map(|seconds| format!(", retry-after {seconds}")),
    );
    words
}

impl ReplaySink for TestRecorder<'_> {
    fn expect(&self, _: &LoggedRequest, _: RouteIndex, _: &RequestCharges<'_>) {}

    fn decided(
        &mut self,
        request: &LoggedRequest,
        replayed: &ReplayedRequest<'_>,
        _: &dyn Fn(LimitIndex) -> String,
    ) {
        let number = usize::try_from(request.place.line).unwrap_or(usize::MAX);
        let Some(step) = self.test.steps.get(number) else { return };
        let answer = self.answer(step, replayed);
        let Some(result) = self.results.get_mut(number) else { return };
        result.decided += 1;
        let is_one_too_many = result.answers.add(answer) > step.expected.count(answer);
        let is_last = result.decided == u64::from(step.times);
        if is_one_too_many && result.unexpected.is_none() || is_last {
            let words = in_words((result.decided, step.times), answer, replayed);
            let place = if is_one_too_many { &mut result.unexpected } else { &mut result.last };
            place.get_or_insert(words);
        }
        if let Some(refusal) = &replayed.refusal {
            result.refused_by.insert(refusal.limit.to_owned());
            result.retry_after.insert(refusal.retry_after.unwrap_or_default());
        }
        let in_shadow = replayed.limits.iter().filter(|limit| limit.label == DecisionLabel::ShadowLimited);
        result.shadow.extend(in_shadow.map(|limit| limit.limit.0));
    }
}
