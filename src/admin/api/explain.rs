//! `POST explain`: what would happen to a request, without charging it.

use std::net::IpAddr;
use std::sync::Arc;

use http::StatusCode;
use serde_json::{Value, json};

use super::policies::{self, State};
use super::routes::mode;
use super::time::{moment, span};
use super::{Fault, only};
use crate::explain::{Applied, ExplainRequest, Explanation, Standing, Taken, explain_to};
use crate::gateway::{Gateway, Mode};
use crate::limit::units::Micros;
use crate::limit::{Verdict, Wait};
use crate::shared::Shared;

/// What becomes of a request at one limit, or in all.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Fate {
    Admitted,
    /// After this wait.
    Delayed(Micros),
    Refused(Wait),
}

/// A limit's word.
struct Heard<'e> {
    applied: &'e Applied,
    /// `None`: nothing is charged there.
    state: Option<State>,
}

pub(super) async fn explain(shared: &Shared, body: &Value) -> Result<Value, Fault> {
    let request = request(body)?;
    let gateway = shared.gateway.load_full();
    let explanation = explain_to(&gateway, &request, &shared.secret(&gateway));
    let mut heard = Vec::new();
    for applied in explanation.route.iter().flat_map(|route| &route.limits) {
        heard.push(Heard::ask(shared, &gateway, applied).await?);
    }
    Ok(tell(shared, &gateway, &explanation, &heard))
}

/// The request as it is described.
fn request(body: &Value) -> Result<ExplainRequest, Fault> {
    only(body, &["method", "url", "headers", "ip"])?;
    let text = |name: &str| match body.get(name) {
        None | Some(Value::Null) => Ok(None),
        Some(Value::String(text)) => Ok(Some(text.as_str())),
        Some(_) => Err(Fault::bad(format!("`{name}` is no string"))),
    };
    let url = text("url")?.ok_or_else(|| Fault::bad("`url` is missing: a URL, or a path"))?;
    let ip = text("ip")?.map(str::parse::<IpAddr>).transpose();
    let ip = ip.map_err(|_| Fault::bad("`ip` is no address"))?;
    let headers = match body.get("headers") {
        None | Some(Value::Null) => Vec::new(),
        Some(Value::Object(fields)) => fields.iter().map(field).collect::<Result<_, _>>()?,
        Some(_) => return Err(Fault::bad("`headers` is no object of names and values")),
    };
    let method = text("method")?.unwrap_or("GET");
    ExplainRequest::new(method, url, &headers, ip)
        .map_err(|fault| Fault::bad(format!("{fault}; {}", fault.help)))
}

fn field((name, value): (&String, &Value)) -> Result<String, Fault> {
    let value = value
        .as_str()
        .ok_or_else(|| Fault::bad(format!("the value of `{}` is no string", name.escape_debug())))?;
    Ok(format!("{name}: {value}"))
}

impl<'e> Heard<'e> {
    async fn ask(shared: &Shared, gateway: &Arc<Gateway>, applied: &'e Applied) -> Result<Self, Fault> {
        let state = match (&applied.standing, applied.owner) {
            (Standing::Charged(cost), Some(owner)) => {
                Some(State::look(shared, gateway, applied.index, owner, *cost).await?)
            }
            _ => None,
        };
        Ok(Self { applied, state })
    }

    fn fate(&self) -> Option<Fate> {
        match &self.state {
            Some(state) => Some(match state.verdict() {
                Verdict::Allow => Fate::Admitted,
                Verdict::Delay(span) => Fate::Delayed(span),
                Verdict::Deny(wait) => Fate::Refused(wait),
            }),
            None if self.applied.standing == Standing::Missing => Some(Fate::Refused(Wait::Never)),
            None => None,
        }
    }

    fn tell(&self, gateway: &Gateway) -> Value {
        let Self { applied, state } = self;
        let limit = gateway.limit(applied.index);
        let (standing, detail) = standing(applied);
        let cost = match applied.standing {
            Standing::Charged(cost) => cost.units(),
            _ => 0,
        };
        json!({
            "name": applied.name, "mode": mode(applied.mode), "standing": standing, "detail": detail, "cost": cost,
            "id": applied.owner.map(super::key_id), "key": applied.owner.map(|_| &applied.label),
            "verdict": self.fate().map(Fate::word), "banned_until": null,
            "policies": state.as_ref().map_or_else(|| policies::untold(limit), |state| state.tell(limit)),
        })
    }
}

impl Fate {
    fn word(self) -> &'static str {
        match self {
            Self::Admitted => "admitted",
            Self::Delayed(_) => "delayed",
            Self::Refused(_) => "refused",
        }
    }

    /// `None`: no wait helps, or none is needed.
    fn wait(self) -> Option<Micros> {
        match self {
            Self::Admitted | Self::Refused(Wait::Never) => None,
            Self::Delayed(span) | Self::Refused(Wait::After(span)) => Some(span),
        }
    }
}

fn standing(applied: &Applied) -> (&'static str, Option<String>) {
    match &applied.standing {
        Standing::Charged(_) => ("charged", None),
        Standing::Free => ("free", None),
        Standing::Exempt(exemption) => ("exempt", Some(exemption.clone())),
        Standing::Skipped => ("skipped", Some(missing(applied))),
        Standing::Missing => ("missing", Some(missing(applied))),
    }
}

fn missing(applied: &Applied) -> String {
    let parts: Vec<_> = applied.key.iter().map(|(part, _)| part.as_str()).collect();
    parts
        .into_iter()
        .find(|part| part.ends_with("is missing"))
        .unwrap_or("a part of the key is missing")
        .to_owned()
}

fn tell(shared: &Shared, gateway: &Gateway, explanation: &Explanation, heard: &[Heard<'_>]) -> Value {
    let enforced = heard.iter().filter(|heard| heard.applied.mode == Mode::Enforce);
    // Of equal waits the first on the route leads, as it does in a refusal.
    let worst = enforced.rev().filter_map(|heard| Some((heard.fate()?, heard))).max_by_key(|(fate, _)| *fate);
    let (verdict, status) = outcome(gateway, explanation, worst.as_ref().map(|(fate, _)| *fate));
    let charged = !matches!(verdict, "no_route" | "redirected");
    let worst = worst.filter(|(fate, _)| charged && *fate != Fate::Admitted);
    let wait = worst.as_ref().and_then(|(fate, _)| fate.wait());
    let others: Vec<Value> = explanation.others.iter().map(|(name, why)| json!([name, why])).collect();
    json!({
        "request": explanation.request,
        "client": explanation.client.address.to_string(),
        "identified": explanation.identified,
        "verdict": verdict, "status": status,
        "limit": worst.map(|(_, heard)| &heard.applied.name),
        "wait_ms": wait.map(span), "until": wait.map(|wait| moment(shared.clock.now().plus(wait))),
        "route": explanation.route.as_ref().map(route),
        "limits": heard.iter().map(|heard| heard.tell(gateway)).collect::<Vec<_>>(),
        "others": others, "untold": explanation.untold,
    })
}

/// In a word, and the status that the gateway itself would answer.
fn outcome(gateway: &Gateway, explanation: &Explanation, worst: Option<Fate>) -> (&'static str, Option<u16>) {
    let Some(route) = &explanation.route else { return ("no_route", Some(StatusCode::NOT_FOUND.as_u16())) };
    if route.redirect.is_some() {
        return ("redirected", Some(StatusCode::PERMANENT_REDIRECT.as_u16()));
    }
    match worst {
        Some(fate @ Fate::Refused(_)) => (fate.word(), Some(refusal(gateway, route))),
        Some(fate) => (fate.word(), None),
        None => ("admitted", None),
    }
}

/// What the route's refusals answer: that of its first limit with a word on it, should several differ.
fn refusal(gateway: &Gateway, route: &Taken) -> u16 {
    let of_route =
        gateway.routes.iter().find(|one| *one.name == *route.name).and_then(|one| one.reject.as_deref());
    let of_limit = || route.limits.iter().find_map(|applied| gateway.limit(applied.index).reject.as_deref());
    of_route.or_else(of_limit).map_or(StatusCode::TOO_MANY_REQUESTS, |reject| reject.status).as_u16()
}

fn route(route: &Taken) -> Value {
    let conditions: Vec<Value> = route.conditions.iter().map(|(name, why)| json!([name, why])).collect();
    json!({
        "name": route.name, "conditions": conditions, "upstream": route.upstream, "forwarded": route.forwarded,
        "redirect": route.redirect,
    })
}
