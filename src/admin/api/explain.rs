//! `POST explain`: what would happen to a request, without charging it.

use std::net::IpAddr;
use std::sync::Arc;

use http::StatusCode;
use serde_json::{Value, json};

use super::key::ends;
use super::policies::{self, PolicyState};
use super::time::{moment, span};
use super::{ApiError, only};
use crate::explain::{
    Applied, AppliedStatus, ExplainFault, ExplainRequest, Explanation, Running, Taken, explain_live,
};
use crate::limit::units::{Micros, Timestamp};
use crate::limit::{Verdict, Wait};
use crate::plan::{Mode, Plan};
use crate::route::key::{LACKS, REPEATED};
use crate::shared::Shared;

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

pub(super) async fn explain(shared: &Shared, body: &Value) -> Result<Value, ApiError> {
    let request = request(body)?;
    let plan = shared.plan.load_full();
    let (secret, ids) = (shared.secret(&plan), shared.short_ids(&plan));
    let running = Running { secret: &secret, ids: &ids, loop_mark: &shared.loop_mark };
    let explanation = explain_live(&plan, &request, running);
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
        let ban = charged.and_then(|owner| limit.refusing_ban(shared.store.bans(), owner, now));
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
        let limit = plan.limit(applied.index);
        let (standing, detail) = standing(applied);
        let cost = match applied.standing {
            AppliedStatus::Charged(cost) => cost.units(),
            _ => 0,
        };
        json!({
            "name": applied.name, "mode": applied.mode.as_str(), "standing": standing, "detail": detail, "cost": cost,
            "tier": limit.tier_name(applied.tier),
            "id": applied.owner.map(super::key_id), "key": applied.owner.map(|_| &applied.label),
            "verdict": self.fate().map(ExplainVerdict::word), "banned_until": ends(banned.map(|(until, _)| until)),
            "ban": applied.ban,
            "policies": state.as_ref().map_or_else(|| policies::without_state(limit, applied.tier), |state| state.to_json(limit)),
        })
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

fn standing(applied: &Applied) -> (&'static str, Option<String>) {
    match &applied.standing {
        AppliedStatus::Charged(_) => ("charged", None),
        AppliedStatus::Free => ("free", None),
        AppliedStatus::Exempt(exemption) => ("exempt", Some(exemption.clone())),
        AppliedStatus::Skipped => ("skipped", Some(lacking(applied, LACKS))),
        AppliedStatus::Missing => ("missing", Some(lacking(applied, LACKS))),
        AppliedStatus::Repeated => ("repeated", Some(lacking(applied, REPEATED))),
    }
}

/// The part of the key that is named; another part may be missing as well.
fn lacking(applied: &Applied, how: &str) -> String {
    let parts = || applied.key.iter().map(|(part, _)| part.as_str());
    let is = |how: &str| parts().find(|part| part.ends_with(how)).map(str::to_owned);
    is(how).or_else(|| is(REPEATED)).unwrap_or_else(|| format!("a part of the key {how}"))
}

fn tell(shared: &Shared, plan: &Plan, explanation: &Explanation, heard: &[LimitOutcome<'_>]) -> Value {
    let refuses = |heard: &&LimitOutcome<'_>| heard.applied.mode == Mode::Enforce || heard.banned.is_some();
    // Of equal waits the first limit on the route leads, as in a refusal.
    let refusing = heard.iter().filter(refuses).rev().filter_map(|heard| Some((heard.fate()?, heard)));
    let worst = refusing.max_by_key(|(fate, _)| *fate);
    let (verdict, status) = outcome(plan, explanation, worst.as_ref());
    let charged = !matches!(verdict, "no_route" | "redirected" | "answered");
    let worst = worst.filter(|(fate, _)| charged && *fate != ExplainVerdict::Admitted);
    let wait = worst.as_ref().and_then(|(fate, _)| fate.wait());
    let others: Vec<Value> = explanation.others.iter().map(|(name, why)| json!([name, why])).collect();
    json!({
        "request": explanation.request,
        "client": explanation.client.address.to_string(),
        "identified": explanation.identified,
        "consumer": explanation.consumer.as_ref().map(|consumer| &consumer.name),
        "tier": explanation.consumer.as_ref().and_then(|consumer| consumer.tier.as_ref()),
        "verdict": verdict, "status": status,
        "reason": explanation.answer.as_ref().map(|answer| &answer.reason),
        "limit": worst.map(|(_, heard)| &heard.applied.name),
        "wait_ms": wait.map(span), "until": wait.map(|wait| moment(shared.clock.now().plus(wait))),
        "route": explanation.route.as_ref().map(route),
        "limits": heard.iter().map(|heard| heard.tell(plan)).collect::<Vec<_>>(),
        "others": others, "untold": explanation.untold,
    })
}

/// The decision as a word, and the status of the gateway's own response.
fn outcome(
    plan: &Plan,
    explanation: &Explanation,
    worst: Option<&(ExplainVerdict, &LimitOutcome<'_>)>,
) -> (&'static str, Option<u16>) {
    let answer = explanation.answer.as_ref().map(|answer| answer.status);
    let Some(route) = &explanation.route else {
        let unrouted = answer.is_none_or(|status| status == StatusCode::NOT_FOUND);
        let verdict = if unrouted { "no_route" } else { "answered" };
        return (verdict, Some(answer.unwrap_or(StatusCode::NOT_FOUND).as_u16()));
    };
    if let Some(status) = answer {
        return ("answered", Some(status.as_u16()));
    }
    if route.redirect.is_some() {
        return ("redirected", Some(StatusCode::PERMANENT_REDIRECT.as_u16()));
    }
    match worst {
        Some((fate @ (ExplainVerdict::Refused(_) | ExplainVerdict::Banned(_)), heard)) => {
            (fate.word(), Some(refusal(plan, route, heard.applied)))
        }
        Some((fate, _)) => (fate.word(), None),
        None => ("admitted", None),
    }
}

/// The route's response if this limit refuses.
fn refusal(plan: &Plan, route: &Taken, refuses: &Applied) -> u16 {
    if refuses.standing == AppliedStatus::Repeated {
        return StatusCode::BAD_REQUEST.as_u16();
    }
    let reject = plan.route(route.index).reject_of(plan.limit(refuses.index));
    reject.map_or(StatusCode::TOO_MANY_REQUESTS, |reject| reject.status).as_u16()
}

fn route(route: &Taken) -> Value {
    let conditions: Vec<Value> = route.conditions.iter().map(|(name, why)| json!([name, why])).collect();
    json!({
        "name": route.name, "conditions": conditions, "upstream": route.upstream, "forwarded": route.forwarded,
        "redirect": route.redirect,
    })
}
