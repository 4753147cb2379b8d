//! Remedies: "did you mean …?" for a mistyped name, and the right form of what people write by habit, from other
//! proxies or from other tables of the file.

use std::sync::LazyLock;

use serde_json::Value;
use toml::de::DeValue;

use super::SCHEMA;
use super::report::{cut_for_help, quoted};

/// Tables with their keys, as the JSON Schema knows them, in the order in which a message names them.
static TABLES: LazyLock<Vec<(String, Vec<String>)>> = LazyLock::new(|| tables().unwrap_or_default());

/// The sections of the file by their names in the schema.
const SECTIONS: [&str; 9] =
    ["route", "limit", "auth", "upstream_table", "server", "admin", "store", "log", "trace"];

fn tables() -> Option<Vec<(String, Vec<String>)>> {
    let schema: Value = serde_json::from_str(SCHEMA).ok()?;
    let table = |name: &str| {
        let section = schema.get("$defs")?.get(name)?;
        let keys = section.get("properties")?.as_object()?.keys().cloned().collect();
        Some((section.get("title")?.as_str()?.to_owned(), keys))
    };
    Some(SECTIONS.into_iter().filter_map(table).collect())
}

/// The remedy for an unknown key of the table `title` whose setting is written in another way.
pub(super) fn other_key(title: &str, key: &str, value: &DeValue<'_>) -> Option<String> {
    if title == "`cost`" {
        return key_of_cost(key).map(str::to_owned);
    }
    if key == "status" && !title.contains("reject") {
        let status = value.as_integer().map_or("429", |number| number.as_str());
        let reject = format!("write `reject = {{ status = {} }}`", cut_for_help(status));
        let is_here = title.contains("[routes]") || title.contains("[limits.");
        let where_it_is = if is_here { "" } else { " in `[[routes]]` or `[limits.NAME]`" };
        return Some(format!("{reject}{where_it_is}"));
    }
    if key == "shadow" && title.contains("[limits.") {
        let mode = if value.as_bool() == Some(false) { "enforce" } else { "shadow" };
        return Some(format!("write `mode = \"{mode}\"`"));
    }
    None
}

/// The remedy for an unknown key of `cost`.
fn key_of_cost(key: &str) -> Option<&'static str> {
    let help = match key {
        "source" | "value" | "path" => {
            "write `from` for a place in the request, or `settle` for one in the response"
        }
        "json" | "json_path" | "jsonpath" | "pointer" => "write `settle = \"json:/usage/total_tokens\"`",
        "sse" => "write `settle = \"sse:/usage/total_tokens\"`",
        "header" => {
            "write `from = \"header:NAME\"` for the request, or `settle = \"header:NAME\"` for the response"
        }
        "query" => "write `from = \"query:NAME\"`",
        "trailer" => "write `settle = \"trailer:NAME\"`",
        "status" => "write `settle = \"status\"` and `reserve`: the status is known after the request",
        "estimate" | "initial" | "upfront" | "hold" => "write `reserve`",
        "default" | "fallback" | "otherwise" => "write `missing`",
        "div" | "divide" | "divisor" | "scale" | "unit" => "write `per`",
        "cap" | "ceiling" => "write `max`",
        _ => return None,
    };
    Some(help)
}

/// Where a key belongs that another table knows: `` `timeout` belongs to `[[routes]]` or `[store]` ``.
pub(super) fn belongs_to(title: &str, key: &str) -> Option<String> {
    let has_key = |(_, keys): &&(String, Vec<String>)| keys.iter().any(|known| known == key);
    let own = title.trim_matches('`');
    let own =
        |section: &str| section == own || section.starts_with("[limits.") && own.starts_with("[limits.");
    let found = TABLES.iter().filter(has_key).filter(|(section, _)| !own(section));
    let names: Vec<_> = found.map(|(section, _)| quoted(section)).collect();
    (!names.is_empty()).then(|| format!("{} belongs to {}", quoted(key), names.join(" or ")))
}

/// How a rate is written here that is written as in nginx (`10r/s`), in words (`10 per second`) or as a fraction (`0.5/s`).
pub(super) fn rate(text: &str, time_unit: fn(&str) -> Option<&'static str>) -> Option<String> {
    let plain: String = text.to_lowercase().replace(" per ", "/").replace(' ', "");
    let (count, period) = plain.split_once('/')?;
    let count =
        ["requests", "request", "req", "r"].iter().find_map(|word| count.strip_suffix(word)).unwrap_or(count);
    let split = period.bytes().take_while(u8::is_ascii_digit).count();
    let (number, unit) = period.split_at(split);
    let number: u64 = if number.is_empty() { 1 } else { number.parse().ok()? };
    let unit = time_unit(unit)?;
    let (count, number) = whole(count, number)?;
    Some(if number == 1 { format!("{count}/{unit}") } else { format!("{count}/{number}{unit}") })
}

/// A count with at most six decimals in a period, as a whole count in a longer period.
fn whole(count: &str, period: u64) -> Option<(u64, u64)> {
    let (integer, decimals) = count.split_once('.').unwrap_or((count, ""));
    let digits = format!("{integer}{decimals}");
    if decimals.len() > 6 || digits.is_empty() || !digits.bytes().all(|byte| byte.is_ascii_digit()) {
        return None;
    }
    let scale = 10_u64.pow(u32::try_from(decimals.len()).ok()?);
    let (count, period) = (digits.parse::<u64>().ok()?, period.checked_mul(scale)?);
    let shared = common_divisor(count, scale);
    (count > 0).then(|| (count / shared, period / shared))
}

fn common_divisor(a: u64, b: u64) -> u64 {
    if b == 0 { a } else { common_divisor(b, a % b) }
}

/// The remedy for the URL of a server with the scheme of HTTP/2 or gRPC. What may be a password is not repeated.
pub(super) fn http2_url(text: &str) -> Option<String> {
    const SCHEMES: [(&str, &str); 4] =
        [("h2c://", "http"), ("grpc://", "http"), ("h2://", "https"), ("grpcs://", "https")];
    let (rest, scheme) =
        SCHEMES.into_iter().find_map(|(scheme, ours)| Some((text.strip_prefix(scheme)?, ours)))?;
    let authority = rest.split('/').next().unwrap_or_default();
    let server = if authority.is_empty() || rest.contains('@') { "HOST:PORT" } else { authority };
    Some(format!("write `{scheme}://{}` with `protocol = \"http2\"`", cut_for_help(server)))
}

/// The remedy for a port where an address should stand, in a list or alone.
pub(super) fn port(number: &str, in_list: bool) -> Option<String> {
    let port: u16 = number.parse().ok()?;
    let (open, close) = if in_list { ("[", "]") } else { ("", "") };
    let listen = |address: &str| format!("`{open}\"{address}:{port}\"{close}`");
    Some(format!("write {}, or {} for all addresses of this machine", listen("127.0.0.1"), listen("0.0.0.0")))
}

/// The same for the admin listener, which is not for everyone.
pub(super) fn admin_port(number: &str) -> Option<String> {
    let port: u16 = number.parse().ok()?;
    Some(format!("write `\"127.0.0.1:{port}\"`"))
}

/// Longer texts than this are not compared: typing errors occur in short ones.
const MAX_COMPARED: usize = 64;
/// The maximum number of candidates compared.
const MAX_CANDIDATES: usize = 1_000;

/// The candidate that differs least from `text`, if it differs by a third of its letters or less.
pub(super) fn nearest<'a>(text: &str, candidates: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    let letters = text.chars().count();
    let allowed = (letters / 3).max(1).min(letters.saturating_sub(1));
    let lower = text.to_lowercase();
    let distance = |candidate: &str| strsim::damerau_levenshtein(&lower, candidate);
    candidates
        .into_iter()
        .take(MAX_CANDIDATES)
        .filter(|candidate| text.len().max(candidate.len()) <= MAX_COMPARED)
        .map(|candidate| (distance(candidate), !begins_alike(text, candidate), candidate))
        .filter(|&(distance, ..)| distance <= allowed)
        .min()
        .map(|(.., candidate)| candidate)
}

/// The remedy for a name that is not among `candidates`: the nearest of them, if any is near, then `otherwise`.
pub(super) fn did_you_mean<'a>(
    text: &str,
    candidates: impl IntoIterator<Item = &'a str>,
    otherwise: &str,
) -> String {
    match nearest(text, candidates) {
        Some(candidate) => format!("did you mean {}? {otherwise}", quoted(candidate)),
        None => otherwise.to_owned(),
    }
}

/// Of two equally near candidates, the one that begins alike is suggested: `hosts` and not `cost` for `host`.
fn begins_alike(text: &str, candidate: &str) -> bool {
    text.chars().next() == candidate.chars().next()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_tables_of_the_schema_are_known() {
        assert_eq!(TABLES.len(), SECTIONS.len());
    }
}
