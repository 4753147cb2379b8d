//! `POST explain`: what would happen to a request, without charging it. Only a wrong credential is charged.

mod credential;

use std::net::IpAddr;
use std::sync::Arc;

use serde_json::{Value, json};

use super::policies::{self, PolicyState};
use super::values::{moment, span};
use super::{ApiError, ApiRequest, only};
use crate::explain::{
    ExplainFault, ExplainRequest, Explanation, LimitExplanation, LimitStatus, LiveCredential, LiveVerdict,
    Running, decide_live, explain_live, json, pending_credential,
};
use crate::limit::units::{Fingerprint, Micros, Timestamp};
use crate::limit::{Decision, Verdict};
use crate::plan::admin::AdminRight;
use crate::plan::{Mode, Plan};
use crate::shared::Shared;
use credential::verify;

/// The decision of one limit.
struct LimitOutcome<'e> {
    applied: &'e LimitExplanation,
    /// `None`: nothing is charged there.
    state: Option<PolicyState>,
    /// The end of its key's ban, and the time until then.
    banned: Option<(Timestamp, Micros)>,
}

pub(super) async fn explain(asked: &ApiRequest<'_>) -> Result<Value, ApiError> {
    let (shared, request) = (asked.shared, request(&asked.body)?);
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
    for applied in explanation.route.iter().flat_map(|route| &route.limits) {
        outcomes.push(LimitOutcome::ask(shared, &plan, applied).await?);
    }
    let decisions = outcomes.iter().flat_map(|outcome| outcome.decisions(&plan)).collect();
    let verdict = decide_live(&plan, &request, running, &credential, &decisions);
    Ok(to_json(shared, &plan, &explanation, &outcomes, verdict))
}

/// The request described in the body.
fn request(body: &Value) -> Result<ExplainRequest, ApiError> {
    only(body, &["method", "url", "headers", "ip"])?;
    let text = |name: &str| match body.get(name) {
        None | Some(Value::Null) => Ok(None),
        Some(Value::String(text)) => Ok(Some(text.as_str())),
        Some(_) => Err(ApiError::bad(format!("`{name}` is not a string"))),
    };
    let url = text("url")?.ok_or_else(|| ApiError::bad("`url` is missing: a URL, or a path"))?;
    let ip = text("ip")?.map(str::parse::<IpAddr>).transpose();
    let ip = ip.map_err(|_| ApiError::bad("`ip` is not an address"))?;
    let headers = match body.get("headers") {
        None | Some(Value::Null) => Vec::new(),
        Some(Value::Object(fields)) => fields.iter().map(field).collect::<Result<Vec<_>, _>>()?.concat(),
        Some(_) => return Err(ApiError::bad("`headers` is not an object of names and values")),
    };
    let method = text("method")?.unwrap_or("GET");
    ExplainRequest::new(method, url, &headers, ip).map_err(bad)
}

fn bad(fault: ExplainFault) -> ApiError {
    ApiError::bad(format!("{fault}; {}", fault.help))
}

/// One header, with one or several values.
fn field((name, value): (&String, &Value)) -> Result<Vec<String>, ApiError> {
    let values = match value {
        Value::Array(values) => values.as_slice(),
        value => std::slice::from_ref(value),
    };
    let line = |value: &Value| {
        let value = value.as_str();
        let line = value.map(|value| format!("{name}: {value}"));
        line.ok_or_else(|| ApiError::bad(format!("the value of `{}` is not a string", name.escape_debug())))
    };
    values.iter().map(line).collect()
}

impl<'e> LimitOutcome<'e> {
    async fn ask(shared: &Shared, plan: &Arc<Plan>, applied: &'e LimitExplanation) -> Result<Self, ApiError> {
        let state = match (&applied.status, applied.key_hash) {
            (LimitStatus::Charged(cost), Some(key_hash)) => {
                Some(PolicyState::look(shared, plan, (applied.index, applied.tier), key_hash, *cost).await?)
            }
            _ => None,
        };
        let now = shared.clock.now();
        let limit = plan.limit(applied.index);
        let charged = applied.key_hash.filter(|_| state.is_some());
        let ban = charged.and_then(|key_hash| {
            limit.refusing_ban(shared.store.bans(), key_hash, applied.by_hand_only, now)
        });
        Ok(Self { applied, state, banned: ban.map(|ban| (ban.until, ban.until.since(now))) })
    }

    /// What its counters would decide, by key.
    fn decisions(&self, plan: &Plan) -> Vec<(Fingerprint, Decision)> {
        let (Some(state), Some(key_hash)) = (&self.state, self.applied.key_hash) else { return Vec::new() };
        let policies = plan.limit(self.applied.index).policies_of(self.applied.tier);
        let keys = policies.iter().map(|policy| key_hash.of_policy(policy.shared_key.identity));
        keys.zip(state.decisions.iter().copied()).collect()
    }

    /// The decision of this limit as a word.
    fn as_str(&self) -> Option<&'static str> {
        match (&self.state, &self.applied.status) {
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

    fn to_json(&self, plan: &Plan) -> Value {
        let Self { applied, state, banned } = self;
        let mut object = json::limit(plan, applied);
        object["id"] = json!(applied.key_hash.map(super::key_id));
        object["verdict"] = json!(self.as_str());
        object["banned_until"] = json!(banned.map(|(until, _)| moment(until)));
        if let Some(state) = state {
            object["policies"] = json!(state.allowances(plan.limit(applied.index)));
        }
        object
    }
}

fn to_json(
    shared: &Shared,
    plan: &Plan,
    explanation: &Explanation,
    outcomes: &[LimitOutcome<'_>],
    decided: Option<LiveVerdict>,
) -> Value {
    let (verdict, status) = outcome(plan, explanation, decided);
    let decided = decided.filter(|_| matches!(verdict, "refused" | "banned" | "delayed"));
    // Of equal delays the first limit on the route leads.
    let delaying =
        || outcomes.iter().rev().max_by_key(|outcome| outcome.delay()).map(|outcome| outcome.applied.index);
    let (limit, wait) = match decided {
        Some(LiveVerdict::Refused { limit, wait, .. }) => (Some(limit), wait),
        Some(LiveVerdict::Admitted(delay)) => (delaying(), Some(delay)),
        None => (None, None),
    };
    let mut object = json::object(plan, explanation);
    object["verdict"] = json!(verdict);
    object["status"] = json!(status);
    object["limit"] = json!(limit.map(|limit| &*plan.limit(limit).name));
    object["wait_ms"] = json!(wait.map(span));
    object["until"] = json!(wait.map(|wait| moment(shared.clock.now().plus(wait))));
    object["limits"] = Value::Array(outcomes.iter().map(|outcome| outcome.to_json(plan)).collect());
    object
}

/// The decision as a word, and the status of the gateway's own response.
fn outcome(
    plan: &Plan,
    explanation: &Explanation,
    decided: Option<LiveVerdict>,
) -> (&'static str, Option<u16>) {
    if let Some(known) = json::early_outcome(explanation) {
        return known;
    }
    match (decided, json::admitted_outcome(explanation)) {
        (Some(LiveVerdict::Refused { limit, banned, .. }), _) => {
            let route = explanation.route.as_ref();
            let refuses = route.and_then(|route| {
                let applied = route.limits.iter().find(|applied| applied.index == limit)?;
                Some(json::refusal_status(plan, route, applied))
            });
            (if banned { "banned" } else { "refused" }, refuses)
        }
        (Some(LiveVerdict::Admitted(delay)), ("admitted", _)) if delay > Micros(0) => ("delayed", None),
        (_, admitted) => admitted,
    }
}
