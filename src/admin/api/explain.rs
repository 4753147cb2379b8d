//! `POST explain`: what would happen to a request, without charging it. Only a wrong credential is charged.

mod credential;

use std::sync::Arc;

use http::StatusCode;

use super::policies::{self, PolicyState};
use super::values::{moment, span};
use super::{ApiError, ApiRequest};
use crate::admin_api::explain::{ExplainQuestion, ExplainReport, ExplainedLimit, HeaderValues};
use crate::explain::{
    ExplainFault, ExplainRequest, Explanation, LimitExplanation, LimitStatus, LiveCredential, LiveVerdict,
    LookedDecision, Running, decide_live, explain_live, json, pending_credential,
};
use crate::limit::Verdict;
use crate::limit::units::{Fingerprint, Micros, Timestamp};
use crate::plan::admin::AdminRight;
use crate::plan::{Mode, Plan};
use crate::shared::Shared;
use crate::store::OnError;
use credential::verify;

/// What the body holds.
const QUESTION: &str = "`url` is a URL or a path, and there may be `method`, `ip` (an address), `listener` (a name), and `headers`: an object \
     of names, each with its value or a list of values";

/// The decision of one limit.
struct LimitOutcome<'e> {
    applied: &'e LimitExplanation,
    /// `None`: nothing is charged there.
    state: Option<PolicyState>,
    /// The end of its key's ban, and the time until then.
    banned: Option<(Timestamp, Micros)>,
    /// It decides nothing: what it is charged has been spent already.
    is_reported: bool,
}

pub(super) async fn explain(asked: &ApiRequest<'_>) -> Result<ExplainReport, ApiError> {
    let (shared, request) = (asked.shared, request(asked)?);
    let plan = shared.plan.load_full();
    let (secret, ids) = (shared.secret(&plan), shared.short_ids(&plan));
    let known = shared.store.known(shared.clock.now());
    let running = Running { secret: &secret, ids: &ids, loop_mark: &shared.loop_mark, known };
    let credential = match asked.caller.rights.allow(AdminRight::Operate) {
        true => {
            let pending = pending_credential(&plan, &shared.auth_states(&plan), &request, running);
            verify(shared, &plan, pending).await?
        }
        false => LiveCredential::Withheld("that needs a token with the right `operate`"),
    };
    let explanation = explain_live(&plan, &request, running, &credential);
    let mut outcomes = Vec::new();
    for applied in explanation.limits() {
        outcomes.push(LimitOutcome::ask(shared, &plan, &explanation, applied).await?);
    }
    // A key that one descriptor asks about, and another is charged to, decides by the greater number.
    let mut deciding: Vec<_> = outcomes.iter().filter(|outcome| !outcome.is_reported).collect();
    deciding.sort_by_key(|outcome| explanation.units_at_once(outcome.applied));
    let decisions = deciding.into_iter().flat_map(|outcome| outcome.decisions(&plan)).collect();
    let verdict = decide_live(&plan, &request, running, &credential, &decisions);
    Ok(report(shared, &plan, &explanation, &outcomes, verdict))
}

/// The request described in the body.
fn request(asked: &ApiRequest<'_>) -> Result<ExplainRequest, ApiError> {
    let ExplainQuestion { method, url, headers, ip, listener } = asked.body(QUESTION)?;
    let line = |name: &str, value: String| format!("{name}: {value}");
    let lines = headers.into_iter().flatten().flat_map(|(name, values)| match values {
        HeaderValues::One(value) => vec![line(&name, value)],
        HeaderValues::Several(values) => values.into_iter().map(|value| line(&name, value)).collect(),
    });
    let bad = |fault: ExplainFault| ApiError::bad(format!("{fault}; {}", fault.help));
    let lines: Vec<String> = lines.collect();
    let request = ExplainRequest::new(method.as_deref().unwrap_or("GET"), &url, &lines, ip).map_err(bad)?;
    Ok(request.at_listener(listener))
}

impl<'e> LimitOutcome<'e> {
    async fn ask(
        shared: &Shared,
        plan: &Arc<Plan>,
        explanation: &Explanation,
        applied: &'e LimitExplanation,
    ) -> Result<Self, ApiError> {
        let state = match (explanation.units_at_once(applied), applied.key_hash) {
            (Some(cost), Some(key_hash)) => Some(
                PolicyState::look_anyhow(shared, plan, (applied.index, applied.tier), key_hash, cost).await?,
            ),
            _ => None,
        };
        let is_reported = explanation.is_reported(applied);
        let now = shared.clock.now();
        let limit = plan.limit(applied.index);
        let charged = applied.key_hash.filter(|_| state.is_some());
        let ban = charged.and_then(|key_hash| {
            limit.refusing_ban(shared.store.bans(), key_hash, applied.by_hand_only, now)
        });
        let banned = ban.map(|ban| (ban.until, ban.until.since(now)));
        Ok(Self { applied, state, banned, is_reported })
    }

    /// What its counters would decide, by key.
    fn decisions(&self, plan: &Plan) -> Vec<(Fingerprint, LookedDecision)> {
        let (Some(state), Some(key_hash)) = (&self.state, self.applied.key_hash) else { return Vec::new() };
        let policies = plan.limit(self.applied.index).policies_of(self.applied.tier);
        let keys = policies.iter().map(|policy| key_hash.of_policy(policy.shared_key.identity));
        let in_process = state.in_process;
        keys.zip(state.decisions().map(|decision| LookedDecision { decision, in_process })).collect()
    }

    /// The rule by which this process decides while the shared store is unavailable; `None`: it is not.
    fn on_error(&self, plan: &Plan) -> Option<OnError> {
        let in_process = self.state.as_ref().is_some_and(|state| state.in_process);
        in_process.then(|| plan.limit(self.applied.index).on_error)
    }

    /// The decision of this limit as a word.
    fn as_str(&self) -> Option<&'static str> {
        match (&self.state, &self.applied.status) {
            (Some(_), _) if self.is_reported => Some("admitted"),
            _ if self.banned.is_some() => Some("banned"),
            (Some(state), _) => Some(policies::verdict(state.verdict())),
            (None, LimitStatus::Missing | LimitStatus::Repeated) => Some("refused"),
            (None, _) => None,
        }
    }

    /// How long this limit delays the request.
    fn delay(&self) -> Option<Micros> {
        match self.state.as_ref()?.verdict() {
            Verdict::Delay(span) if self.applied.mode == Mode::Enforce => Some(span),
            _ => None,
        }
    }

    fn report(&self, plan: &Plan) -> ExplainedLimit {
        let Self { applied, state, banned, is_reported: _ } = self;
        let mut report = json::limit(plan, applied);
        report.id = applied.key_hash.map(super::key_id);
        report.verdict = self.as_str().map(str::to_owned);
        report.banned_until = banned.map(|(until, _)| moment(until));
        if let Some(state) = state {
            let allowances = state.allowances(applied.algorithms.iter());
            report.policies = allowances.into_iter().map(Into::into).collect();
        }
        report.on_error = self.on_error(plan).map(|rule| on_error(rule).to_owned());
        report
    }
}

fn report(
    shared: &Shared,
    plan: &Plan,
    explanation: &Explanation,
    outcomes: &[LimitOutcome<'_>],
    decided: Option<LiveVerdict>,
) -> ExplainReport {
    let waits = |outcome: &LimitOutcome<'_>| {
        outcome.applied.mode == Mode::Enforce
            && outcome.state.as_ref().is_some_and(|state| state.waits_for_place)
            && outcome.delay().is_some()
    };
    let waits_for_place = outcomes.iter().any(waits);
    let (verdict, status) = outcome(plan, explanation, decided, waits_for_place);
    let is_unavailable = decided == Some(LiveVerdict::Unavailable);
    let decided = decided.filter(|_| matches!(verdict, "refused" | "banned" | "delayed"));
    // Of equal delays the first limit on the route leads.
    let delaying =
        || outcomes.iter().rev().max_by_key(|outcome| outcome.delay()).map(|outcome| outcome.applied.index);
    let (limit, wait) = match decided {
        Some(LiveVerdict::Refused { limit, wait, .. }) => (Some(limit), wait),
        Some(LiveVerdict::Admitted(delay)) => (delaying(), Some(delay).filter(|_| !waits_for_place)),
        Some(LiveVerdict::Unavailable) | None => (None, None),
    };
    let known = json::report(explanation);
    let without_store = || {
        outcomes.iter().filter(|outcome| outcome.applied.mode == Mode::Enforce).find_map(|outcome| {
            let (name, rule) = (&outcome.applied.name, outcome.on_error(plan)?);
            let is_leased = plan.limit(outcome.applied.index).lease().is_some();
            let lacks = match (is_leased, rule) {
                (true, OnError::Deny | OnError::Local) => {
                    let is_refused = matches!(outcome.state.as_ref()?.verdict(), Verdict::Deny(_));
                    is_refused.then(|| format!("no units of the lease of `{name}` are left here"))
                }
                (false, OnError::Deny) => Some(format!("`{name}` has `on_error = \"deny\"`")),
                (true, OnError::Allow) | (false, OnError::Allow | OnError::Local) => None,
            };
            Some(format!("the shared store is unreachable, and {}", lacks?))
        })
    };
    let reason = known.reason.clone().or_else(|| without_store().filter(|_| is_unavailable));
    ExplainReport {
        reason,
        verdict: Some(verdict.to_owned()),
        status,
        limit: limit.map(|limit| plan.limit(limit).name.to_string()),
        wait_ms: wait.map(span),
        until: wait.map(|wait| moment(shared.clock.now().plus(wait))),
        limits: outcomes.iter().map(|outcome| outcome.report(plan)).collect(),
        ..known
    }
}

/// The rule as the file has it.
fn on_error(rule: OnError) -> &'static str {
    match rule {
        OnError::Local => "local",
        OnError::Allow => "allow",
        OnError::Deny => "deny",
    }
}

/// The decision as a word, and the status of the gateway's own response. `waits_for_place`: for a time that is not known.
fn outcome(
    plan: &Plan,
    explanation: &Explanation,
    decided: Option<LiveVerdict>,
    waits_for_place: bool,
) -> (&'static str, Option<u16>) {
    if let Some(known) = json::early_outcome(explanation) {
        return known;
    }
    match (decided, json::admitted_outcome(explanation)) {
        (Some(LiveVerdict::Refused { limit, banned, .. }), _) => {
            let refuses = explanation.limits().find(|applied| applied.index == limit);
            let refuses = refuses.map(|applied| json::refusal_status(plan, applied));
            (if banned { "banned" } else { "refused" }, refuses)
        }
        (Some(LiveVerdict::Unavailable), _) => ("answered", Some(StatusCode::SERVICE_UNAVAILABLE.as_u16())),
        (Some(LiveVerdict::Admitted(delay)), ("admitted", _)) if waits_for_place || delay > Micros(0) => {
            ("delayed", None)
        }
        (_, admitted) => admitted,
    }
}
