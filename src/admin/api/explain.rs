//! `POST explain`: what would happen to a request, without charging it. Only a wrong credential is charged.

mod credential;

use std::net::IpAddr;
use std::sync::Arc;

use serde_json::{Value, json};

use super::key::ends;
use super::policies::PolicyState;
use super::values::{moment, span};
use super::{ApiError, ApiRequest, only};
use crate::explain::{
    Applied, AppliedStatus, ExplainFault, ExplainRequest, Explanation, LiveCredential, Running, explain_live,
    json, pending_credential,
};
use crate::limit::units::{Micros, Timestamp};
use crate::limit::{Verdict, Wait};
use crate::plan::admin::AdminRight;
use crate::plan::{Mode, Plan};
use crate::shared::Shared;
use credential::verify;

/// The decision on a request at one limit, or in all.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum ExplainVerdict {
    Admitted,
    /// Admitted after this wait.
    Delayed(Micros),
    Refused(Wait),
    /// Banned for this long.
    Banned(Micros),
}

/// The decision of one limit.
struct LimitOutcome<'e> {
    applied: &'e Applied,
    /// `None`: nothing is charged there.
    state: Option<PolicyState>,
    /// The end of its key's ban, and the time until then.
    banned: Option<(Timestamp, Micros)>,
}

pub(super) async fn explain(asked: &ApiRequest<'_>) -> Result<Value, ApiError> {
    let (shared, request) = (asked.shared, request(&asked.body)?);
    let plan = shared.plan.load_full();
    let (secret, ids) = (shared.secret(&plan), shared.short_ids(&plan));
    let now = shared.clock.now();
    let running = Running { secret: &secret, ids: &ids, loop_mark: &shared.loop_mark, now };
    let credential = match asked.caller.rights.allow(AdminRight::Operate) {
        true => {
            let pending = pending_credential(&plan, &shared.auth_states(&plan), &request, running);
            verify(shared, &plan, pending).await?
        }
        false => LiveCredential::Withheld("that needs a token with the right `operate`"),
    };
    let explanation = explain_live(&plan, &request, running, &credential);
    let mut heard = Vec::new();
    for applied in explanation.route.iter().flat_map(|route| &route.limits) {
        heard.push(LimitOutcome::ask(shared, &plan, applied).await?);
    }
    Ok(tell(shared, &plan, &explanation, &heard))
}

/// The request described in the body.
fn request(body: &Value) -> Result<ExplainRequest, ApiError> {
    only(body, &["method", "url", "headers", "ip"])?;
    let text = |name: &str| match body.get(name) {
        None | Some(Value::Null) => Ok(None),
        Some(Value::String(text)) => Ok(Some(text.as_str())),
        Some(_) => Err(ApiError::bad(format!("`{name}` is no string"))),
    };
    let url = text("url")?.ok_or_else(|| ApiError::bad("`url` is missing: a URL, or a path"))?;
    let ip = text("ip")?.map(str::parse::<IpAddr>).transpose();
    let ip = ip.map_err(|_| ApiError::bad("`ip` is no address"))?;
    let headers = match body.get("headers") {
        None | Some(Value::Null) => Vec::new(),
        Some(Value::Object(fields)) => fields.iter().map(field).collect::<Result<Vec<_>, _>>()?.concat(),
        Some(_) => return Err(ApiError::bad("`headers` is no object of names and values")),
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
        line.ok_or_else(|| ApiError::bad(format!("the value of `{}` is no string", name.escape_debug())))
    };
    values.iter().map(line).collect()
}

impl<'e> LimitOutcome<'e> {
    async fn ask(shared: &Shared, plan: &Arc<Plan>, applied: &'e Applied) -> Result<Self, ApiError> {
        let state = match (&applied.standing, applied.owner) {
            (AppliedStatus::Charged(cost), Some(owner)) => {
                Some(PolicyState::look(shared, plan, applied.index, applied.tier, owner, *cost).await?)
            }
            _ => None,
        };
        let now = shared.clock.now();
        let limit = plan.limit(applied.index);
        let charged = applied.owner.filter(|_| state.is_some());
        let ban = charged
            .and_then(|owner| limit.refusing_ban(shared.store.bans(), owner, applied.by_hand_only, now));
        Ok(Self { applied, state, banned: ban.map(|ban| (ban.until, ban.until.since(now))) })
    }

    fn fate(&self) -> Option<ExplainVerdict> {
        if let Some((_, rest)) = self.banned {
            return Some(ExplainVerdict::Banned(rest));
        }
        match &self.state {
            Some(state) => Some(match state.verdict() {
                Verdict::Allow => ExplainVerdict::Admitted,
                Verdict::Delay(span) => ExplainVerdict::Delayed(span),
                Verdict::Deny(wait) => ExplainVerdict::Refused(wait),
            }),
            None if matches!(self.applied.standing, AppliedStatus::Missing | AppliedStatus::Repeated) => {
                Some(ExplainVerdict::Refused(Wait::Never))
            }
            None => None,
        }
    }

    fn tell(&self, plan: &Plan) -> Value {
        let Self { applied, state, banned } = self;
        let mut object = json::limit(plan, applied);
        object["id"] = json!(applied.owner.map(super::key_id));
        object["verdict"] = json!(self.fate().map(ExplainVerdict::word));
        object["banned_until"] = json!(ends(banned.map(|(until, _)| until)));
        if let Some(state) = state {
            object["policies"] = state.to_json(plan.limit(applied.index));
        }
        object
    }
}

impl ExplainVerdict {
    fn word(self) -> &'static str {
        match self {
            Self::Admitted => "admitted",
            Self::Delayed(_) => "delayed",
            Self::Refused(_) => "refused",
            Self::Banned(_) => "banned",
        }
    }

    /// `None`: waiting does not help, or is not needed.
    fn wait(self) -> Option<Micros> {
        match self {
            Self::Admitted | Self::Refused(Wait::Never | Wait::Unknown) => None,
            Self::Delayed(span) | Self::Refused(Wait::After(span)) | Self::Banned(span) => Some(span),
        }
    }
}

fn tell(shared: &Shared, plan: &Plan, explanation: &Explanation, heard: &[LimitOutcome<'_>]) -> Value {
    let refuses = |heard: &&LimitOutcome<'_>| heard.applied.mode == Mode::Enforce || heard.banned.is_some();
    // Of equal waits the first limit on the route leads, as in a refusal.
    let refusing = heard.iter().filter(refuses).rev().filter_map(|heard| Some((heard.fate()?, heard)));
    let worst = refusing.max_by_key(|(fate, _)| *fate);
    let (verdict, status) = outcome(plan, explanation, worst.as_ref());
    let charged = !matches!(verdict, "no_route" | "redirected" | "answered" | "not_verified");
    let worst = worst.filter(|(fate, _)| charged && *fate != ExplainVerdict::Admitted);
    let wait = worst.as_ref().and_then(|(fate, _)| fate.wait());
    let mut object = json::object(plan, explanation);
    object["verdict"] = json!(verdict);
    object["status"] = json!(status);
    object["limit"] = json!(worst.map(|(_, heard)| &heard.applied.name));
    object["wait_ms"] = json!(wait.map(span));
    object["until"] = json!(wait.map(|wait| moment(shared.clock.now().plus(wait))));
    object["limits"] = Value::Array(heard.iter().map(|heard| heard.tell(plan)).collect());
    object
}

/// The decision as a word, and the status of the gateway's own response.
fn outcome(
    plan: &Plan,
    explanation: &Explanation,
    worst: Option<&(ExplainVerdict, &LimitOutcome<'_>)>,
) -> (&'static str, Option<u16>) {
    if let Some(known) = json::early_outcome(explanation) {
        return known;
    }
    match worst {
        Some((fate @ (ExplainVerdict::Refused(_) | ExplainVerdict::Banned(_)), heard)) => {
            let route = explanation.route.as_ref();
            (fate.word(), route.map(|route| json::refusal_status(plan, route, heard.applied)))
        }
        fate => match json::admitted_outcome(explanation) {
            ("admitted", _) => (fate.map_or("admitted", |(fate, _)| fate.word()), None),
            answered => answered,
        },
    }
}
