//! `tollgate explain --live`: asks the running gateway what would happen to a request, and prints its response in the
//! form of `tollgate explain`.

use std::fmt::{self, Display, Formatter};
use std::path::Path;
use std::process::ExitCode;
use std::time::Duration;

use http::{Method, StatusCode};
use serde_json::{Map, Value, json};
use time::OffsetDateTime;

use super::admin::AdminClient;
use super::output::{fault, show};
use super::{ExplainArguments, ExplainForm, FAILED, MISTAKE};
use crate::explain::text::{charges, detail, line, write_others};

/// The timeout for connecting, request and response together; the gateway may have to call a shared store.
const TIMEOUT: Duration = Duration::from_secs(10);

/// Asks the admin listener that `file` names, about a valid request.
pub(super) fn ask(file: &Path, asked: &ExplainArguments, form: ExplainForm) -> ExitCode {
    let ExplainArguments { method, url, headers, ip } = asked;
    let question = json!({ "method": method, "url": url, "headers": fields(headers), "ip": ip }).to_string();
    let admin = match AdminClient::named_in(file) {
        Ok(admin) => admin,
        Err(message) => return fault(MISTAKE, message),
    };
    let authorization = match admin.authorization() {
        Ok(authorization) => authorization,
        Err(message) => return fault(MISTAKE, message),
    };
    let address = admin.address;
    let answer = admin.ask(Method::POST, "/api/v1/explain", authorization, question, TIMEOUT);
    match answer.map(|(status, body)| (status, serde_json::from_slice::<Value>(&body).unwrap_or_default())) {
        Ok((StatusCode::OK, explanation)) if form == ExplainForm::Json => show(&format!("{explanation:#}")),
        Ok((StatusCode::OK, explanation)) => show(&LiveExplanation(&explanation).to_string()),
        Ok((status, problem)) => {
            let detail = problem.get("detail").and_then(Value::as_str).unwrap_or("it says no more");
            fault(FAILED, format_args!("the gateway at {address} answers {status}: {detail}"))
        }
        Err(error) => fault(FAILED, format_args!("no gateway answers at {address}: {error}")),
    }
}

/// `NAME: VALUE` each, as an object; of a name that is repeated all values.
fn fields(headers: &[String]) -> Value {
    let mut fields = Map::new();
    for (name, value) in headers.iter().filter_map(|header| header.split_once(':')) {
        let values = fields.entry(name.trim()).or_insert_with(|| json!([]));
        if let Some(values) = values.as_array_mut() {
            values.push(value.trim().into());
        }
    }
    Value::Object(fields)
}

/// The response of `POST /api/v1/explain`. Missing parts are left out.
struct LiveExplanation<'a>(&'a Value);

impl Display for LiveExplanation<'_> {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let explanation = self.0;
        writeln!(f, "{}\n", text(explanation, "request"))?;
        line(f, "verdict", verdict(explanation))?;
        line(
            f,
            "client",
            format_args!("{}: {}", text(explanation, "client"), text(explanation, "identified")),
        )?;
        if let Some(consumer) = explanation.get("consumer").and_then(Value::as_str) {
            let tier = explanation.get("tier").and_then(Value::as_str);
            let tier = tier.map_or_else(|| "no tier".to_owned(), |tier| format!("tier `{tier}`"));
            line(f, "consumer", format_args!("`{consumer}`, {tier}"))?;
        }
        match explanation.get("route").filter(|route| !route.is_null()) {
            Some(route) => write_route(f, route)?,
            None => line(f, "route", "none matches: answered 404")?,
        }
        list(explanation, "limits").iter().try_for_each(|limit| write_limit(f, limit))?;
        let others = list(explanation, "others").iter().map(|pair| (item(pair, 0), item(pair, 1)));
        let untold = number(explanation, "untold").and_then(|untold| usize::try_from(untold).ok());
        write_others(f, others, untold.unwrap_or_default())
    }
}

/// The decision on the request, the limit that made it, and until when.
fn verdict(explanation: &Value) -> String {
    let refusing = explanation.get("limit").and_then(Value::as_str);
    let by = refusing.map(|limit| format!(" by `{limit}`")).unwrap_or_default();
    let is_it = |limit: &&Value| refusing == Some(text(limit, "name"));
    let in_flight = list(explanation, "limits").iter().find(is_it).is_some_and(bounds_requests_in_flight);
    let status =
        number(explanation, "status").map(|status| format!(": answered {status}")).unwrap_or_default();
    let wait = match (number(explanation, "wait_ms"), explanation.get("until").and_then(Value::as_f64)) {
        (Some(wait), Some(until)) => format!(", until {} ({} more)", clock(until), span(wait)),
        _ => String::new(),
    };
    match text(explanation, "verdict") {
        "admitted" => "admitted".to_owned(),
        "refused" if wait.is_empty() && in_flight => {
            format!("refused{by}{status}, until a request in flight ends")
        }
        "refused" if wait.is_empty() && !by.is_empty() => format!("refused{by}{status}; no wait helps"),
        "no_route" => format!("no route{status}"),
        "not_verified" => format!("not verified: {}", text(explanation, "reason")),
        "answered" => {
            format!(
                "answered {}: {}",
                number(explanation, "status").unwrap_or_default(),
                text(explanation, "reason")
            )
        }
        verdict => format!("{verdict}{by}{status}{wait}"),
    }
}

fn write_route(f: &mut Formatter<'_>, route: &Value) -> fmt::Result {
    line(f, "route", format_args!("`{}`", text(route, "name")))?;
    for pair in list(route, "conditions") {
        detail(f, item(pair, 0), item(pair, 1))?;
    }
    if let Some(location) = route.get("redirect").and_then(Value::as_str) {
        line(f, "redirect", format_args!("without TLS 308 to `{location}`, and nothing below"))?;
    }
    line(f, "upstream", format_args!("{} gets `{}`", text(route, "upstream"), text(route, "forwarded")))
}

fn write_limit(f: &mut Formatter<'_>, limit: &Value) -> fmt::Result {
    let mode = if text(limit, "mode") == "shadow" { " (shadow: only counted, never refuses)" } else { "" };
    let cost = number(limit, "cost").unwrap_or_default();
    let status = match (text(limit, "standing"), text(limit, "detail")) {
        ("charged", _) => {
            let charges = charges(cost, some(limit, "measured"), some(limit, "settled_by"));
            format!("{charges}: {}", text(limit, "verdict"))
        }
        ("free", _) if some(limit, "measured").is_some() => charges(0, some(limit, "measured"), None),
        ("free", _) => "charges nothing: the route costs 0 there".to_owned(),
        ("exempt", exemption) => format!("charges nothing: exempt by `{exemption}`"),
        ("skipped", missing) => format!("does not apply: {missing}"),
        (_, missing) => format!("refuses: {missing}"),
    };
    line(f, "limit", format_args!("`{}`{mode} {status}", text(limit, "name")))?;
    if let Some(id) = limit.get("id").and_then(Value::as_str) {
        let values: Vec<_> = list(limit, "key").iter().filter_map(Value::as_str).collect();
        detail(f, "key", if values.is_empty() { "everybody".to_owned() } else { values.join(", ") })?;
        detail(f, "id", id)?;
    }
    if let Some(until) = limit.get("banned_until").and_then(Value::as_f64) {
        detail(f, "banned", format_args!("until {}", clock(until)))?;
    }
    list(limit, "policies").iter().try_for_each(|policy| detail(f, "allows", state(policy)))?;
    limit.get("ban").and_then(Value::as_str).map_or(Ok(()), |ban| detail(f, "ban", ban))
}

/// Whether it is a concurrency limit: the words of its policy are `max 5`.
fn bounds_requests_in_flight(limit: &Value) -> bool {
    list(limit, "policies").iter().any(|policy| text(policy, "policy").starts_with("max "))
}

/// `10/s, burst 50: 0 of 50 remain; the next in 84 ms, all again in 4.98 s`.
fn state(policy: &Value) -> String {
    let (words, quota) = (text(policy, "policy"), number(policy, "quota").unwrap_or_default());
    let Some(remaining) = number(policy, "remaining") else { return words.to_owned() };
    let next = match number(policy, "next_ms") {
        None if words.starts_with("max ") => "the next when a request in flight ends".to_owned(),
        None => "such a request never passes".to_owned(),
        Some(0) => "the next now".to_owned(),
        Some(wait) => format!("the next in {}", span(wait)),
    };
    let full = match number(policy, "full_ms") {
        None | Some(0) => String::new(),
        Some(wait) => format!(", all again in {}", span(wait)),
    };
    let debt = number(policy, "used").and_then(|used| used.checked_sub(quota)).filter(|debt| *debt > 0);
    let debt = debt.map(|debt| format!(", {debt} in debt")).unwrap_or_default();
    format!("{words}: {remaining} of {quota} remain{debt}; {next}{full}")
}

fn text<'a>(value: &'a Value, name: &str) -> &'a str {
    value.get(name).and_then(Value::as_str).unwrap_or_default()
}

fn some<'a>(value: &'a Value, name: &str) -> Option<&'a str> {
    value.get(name).and_then(Value::as_str)
}

fn number(value: &Value, name: &str) -> Option<u64> {
    value.get(name).and_then(Value::as_u64)
}

fn list<'a>(value: &'a Value, name: &str) -> &'a [Value] {
    value.get(name).and_then(Value::as_array).map(Vec::as_slice).unwrap_or_default()
}

fn item(pair: &Value, index: usize) -> &str {
    pair.get(index).and_then(Value::as_str).unwrap_or_default()
}

/// A moment, in seconds since 1970: `2025-11-21 15:00:00 UTC`.
fn clock(seconds: f64) -> String {
    #[expect(
        clippy::cast_possible_truncation,
        reason = "seconds of this age; a moment is told in whole ones"
    )]
    let whole = seconds.ceil() as i64;
    let moment = OffsetDateTime::from_unix_timestamp(whole).unwrap_or(OffsetDateTime::UNIX_EPOCH);
    let (date, time) = (moment.date(), moment.time());
    format!("{date} {:02}:{:02}:{:02} UTC", time.hour(), time.minute(), time.second())
}

/// A duration for reading: `84 ms`, `4.98 s`, `12 min`, `5 h`, `3 days`; rounded up beyond minutes.
fn span(milliseconds: u64) -> String {
    const MINUTE: u64 = 60_000;
    const HOUR: u64 = 60 * MINUTE;
    const DAY: u64 = 24 * HOUR;
    match milliseconds {
        0..1_000 => format!("{milliseconds} ms"),
        1_000..120_000 => format!("{:.2} s", milliseconds.div_ceil(10) as f64 / 100.0),
        120_000..7_200_000 => format!("{} min", milliseconds.div_ceil(MINUTE)),
        7_200_000..172_800_000 => format!("{} h", milliseconds.div_ceil(HOUR)),
        _ => format!("{} days", milliseconds.div_ceil(DAY)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn spans_are_told_in_units_that_fit() {
        let shown = [0, 84, 4_981, 119_990, 120_001, 7_200_000, 172_800_001].map(span);
        assert_eq!(shown, ["0 ms", "84 ms", "4.99 s", "119.99 s", "3 min", "2 h", "3 days"]);
        assert_eq!(clock(1_763_737_200.207), "2025-11-21 15:00:01 UTC");
    }
    #[test]
    fn a_refusal_for_want_of_a_place_says_what_ends_it() {
        let policy =
            serde_json::json!({ "policy": "max 5, queue 10", "quota": 5, "remaining": 0, "next_ms": null });
        assert_eq!(state(&policy), "max 5, queue 10: 0 of 5 remain; the next when a request in flight ends");
        let debt =
            serde_json::json!({ "policy": "100/h", "quota": 100, "used": 160, "remaining": 0, "next_ms": 9 });
        assert_eq!(state(&debt), "100/h: 0 of 100 remain, 60 in debt; the next in 9 ms");
        let limits = serde_json::json!([{ "name": "exports", "policies": [policy] }]);
        let explanation =
            serde_json::json!({ "verdict": "refused", "status": 429, "limit": "exports", "limits": limits });
        let told = "refused by `exports`: answered 429, until a request in flight ends";
        assert_eq!(verdict(&explanation), told);
    }
}
