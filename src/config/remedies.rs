//! Remedies: "did you mean …?" for a mistyped name, and the right form of what people write by habit, from other
//! proxies or from other tables of the file.
//!
//! `movers.txt` is the table of words of other proxies. It is asked about each unknown key, and about each unknown value
//! of a key with few values.

use std::collections::HashMap;
use std::sync::LazyLock;

use toml::de::{DeTable, DeValue};

use super::report::{cut_for_help, quoted};
use super::sections;
use crate::limit::span::number_and_unit;

/// Our name of a unit of time, however it is called elsewhere.
pub(super) type TimeUnit = fn(&str) -> Option<&'static str>;

/// The remedies by place and folded word.
static MOVERS: LazyLock<HashMap<(&str, String), &str>> = LazyLock::new(|| {
    let lines = include_str!("movers.txt").lines().filter(|line| !line.starts_with('#'));
    let rows = lines.filter_map(|line| {
        let (place, rest) = line.split_once(" | ")?;
        let (words, remedy) = rest.split_once(" | ")?;
        Some((place, words, remedy))
    });
    rows.flat_map(|(place, words, remedy)| words.split(' ').map(move |word| ((place, folded(word)), remedy)))
        .collect()
});

/// The places of `movers.txt` by the titles of tables. One that ends in `.` begins the titles of many tables.
const PLACES: [(&str, &str); 13] = [
    ("the file", "file"),
    ("`[[routes]]`", "route"),
    ("`[limits.", "limit"),
    ("`[upstreams.", "upstream"),
    ("`health`", "health"),
    ("`compress`", "compress"),
    ("`mirror`", "mirror"),
    ("`[server]`", "server"),
    ("`[[server.tls]]`", "certificate"),
    ("`[acme]`", "acme"),
    ("`[admin]`", "admin"),
    ("`[store]`", "store"),
    ("`[auth.", "auth"),
];

/// The place of a table in `movers.txt`.
fn place(title: &str) -> Option<&'static str> {
    let is_of = |of: &str| title == of || (of.ends_with('.') && title.starts_with(of));
    PLACES.iter().find(|(of, _)| is_of(of)).map(|(_, place)| *place)
}

/// A word without case, `-` and `_`.
fn folded(word: &str) -> String {
    word.chars().filter(|letter| !matches!(letter, '-' | '_')).flat_map(char::to_lowercase).collect()
}

/// What stands for a word of another proxy.
pub(super) fn movers_word(place: &'static str, word: &str) -> Option<&'static str> {
    MOVERS.get(&(place, folded(word))).copied()
}

/// The remedy for a value of `key` that another proxy has.
pub(super) fn value(key: &str, text: &str) -> Option<&'static str> {
    const KEYS: [(&str, &str); 7] = [
        ("mode", "=mode"),
        ("balance", "=balance"),
        ("algorithm", "=algorithm"),
        ("protocol", "=protocol"),
        ("backend", "=backend"),
        ("on_error", "=on_error"),
        ("ratelimit_headers", "=ratelimit_headers"),
    ];
    let (_, place) = KEYS.iter().find(|(own, _)| *own == key)?;
    movers_word(place, text)
}

/// The remedy for a part of a key as another proxy writes it.
pub(super) fn key_part(text: &str) -> Option<String> {
    if let Some(known) = movers_word("=key", text) {
        return Some(known.to_owned());
    }
    let is_name = |name: &str| {
        let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_');
        (1..=64).contains(&name.len()) && name.bytes().all(is_plain)
    };
    let part = |kind: &str, name: &str| is_name(name).then(|| format!("write `{kind}:{name}`"));
    let header = |name: &str| part("header", &name.to_ascii_lowercase());
    let of_function = |function: &str| text.strip_prefix(function)?.strip_suffix(')');
    if let Some(name) = text.strip_prefix("$http_") {
        return header(&name.replace('_', "-"));
    }
    let placeholder = |of: &str| text.strip_prefix(of)?.strip_suffix('}');
    let placeholder = placeholder("{header.").or_else(|| placeholder("{http.request.header."));
    if let Some(name) = of_function("hdr(").or_else(|| of_function("req.hdr(")).or(placeholder) {
        return header(name);
    }
    if let Some(name) = text.strip_prefix("$cookie_") {
        return part("cookie", name);
    }
    if let Some(name) = text.strip_prefix("$arg_") {
        return part("query", name);
    }
    let is_header = text.contains('-') || ["authorization", "origin", "referer"].contains(&text);
    if is_header { header(text) } else { None }
}

/// The remedy for the URL of a server where the name of an upstream should stand; `None` if it is none. What may be a
/// password is not repeated.
pub(super) fn upstream_url(text: &str) -> Option<String> {
    let port = text.rsplit_once(':').map(|(_, port)| port);
    let is_authority = port.is_some_and(|port| port.parse::<u16>().is_ok());
    let has_scheme = text.contains("://") || text.starts_with("unix:") || text.starts_with("builtin:");
    let server = match text {
        user if user.contains('@') => "http://HOST:PORT".to_owned(),
        url if has_scheme => cut_for_help(url),
        authority if is_authority => format!("http://{}", cut_for_help(authority)),
        _ => return None,
    };
    Some(format!("write `web = \"{server}\"` below `[upstreams]`, and `upstream = \"web\"` here"))
}

/// The remedy for a list of servers where an upstream should stand. `servers`: its texts.
pub(super) fn upstream_list(name: &str, servers: &[&str]) -> String {
    let is_shown = |server: &&str| !server.contains(['@', '"', '\\', '$']);
    let shown = match servers {
        [] => "\"http://HOST:PORT\"".to_owned(),
        few if few.len() <= 3 && few.iter().all(is_shown) => {
            few.iter().map(|server| format!("\"{}\"", cut_for_help(server))).collect::<Vec<_>>().join(", ")
        }
        _ => "…".to_owned(),
    };
    format!("write `{} = {{ servers = [{shown}] }}`", cut_for_help(name))
}

/// The remedy for one text where `methods` should be a list.
pub(super) fn methods(text: &str) -> String {
    let words = text.split([',', '|', ' ']).filter(|word| !word.is_empty()).map(str::to_ascii_uppercase);
    let words: Vec<_> = words.take(10).collect();
    if words.iter().any(|word| matches!(word.as_str(), "*" | "ANY" | "ALL")) {
        return "leave it out: a route without `methods` has all of them".to_owned();
    }
    let is_plain = |word: &String| word.bytes().all(|byte| byte.is_ascii_uppercase());
    match words.is_empty() || !words.iter().all(is_plain) {
        true => "write a list, as `[\"GET\", \"POST\"]`".to_owned(),
        false => {
            let items: Vec<_> = words.iter().map(|word| format!("\"{}\"", cut_for_help(word))).collect();
            format!("write `[{}]`", items.join(", "))
        }
    }
}

/// The folded words for a period of its own beside a count.
const PERIODS: [&str; 11] = [
    "window",
    "period",
    "interval",
    "windowms",
    "windowsize",
    "timewindow",
    "per",
    "unit",
    "fillinterval",
    "every",
    "duration",
];
/// The folded words for a count beside a period.
const COUNTS: [&str; 9] = [
    "average",
    "requests",
    "requestsperunit",
    "events",
    "maxevents",
    "maxrequests",
    "limit",
    "count",
    "tokensperfill",
];
/// The folded words for a count in a period.
const UNITS: [&str; 4] = ["second", "minute", "hour", "day"];
/// The folded words for a limit that refuses nothing.
const SHADOWS: [&str; 8] =
    ["shadow", "dryrun", "shadowmode", "logonly", "reportonly", "limitreqdryrun", "monitor", "simulate"];

/// `rate` for a limit that writes its count and its period apart. `entries`: all of its keys.
fn rate_apart(key: &str, value: &DeValue<'_>, entries: &DeTable<'_>, time_unit: TimeUnit) -> Option<String> {
    let word = folded(key);
    if UNITS.contains(&word.as_str()) {
        return Some(format!("write `rate = \"{}/{}\"`", whole_number(value)?, time_unit(&word)?));
    }
    let is_period = PERIODS.contains(&word.as_str());
    if !is_period && !COUNTS.contains(&word.as_str()) {
        return None;
    }
    let named = |words: &[&str]| {
        let entries = entries.iter().map(|(name, value)| (folded(name.get_ref()), value.get_ref()));
        entries.filter(|(name, _)| words.contains(&name.as_str())).collect::<Vec<_>>()
    };
    let counts = [named(&COUNTS), named(&["rate", "max"])].concat();
    let count = counts.iter().find_map(|(_, value)| whole_number(value)).unwrap_or(10);
    let periods = named(&PERIODS);
    let period = periods.iter().find_map(|(name, value)| period_of(name, value, time_unit));
    let period = period.unwrap_or_else(|| if periods.is_empty() { "s" } else { "min" }.to_owned());
    let why = if is_period { "the period stands in `rate`: " } else { "" };
    Some(format!("{why}write `rate = \"{count}/{period}\"`"))
}

/// A count from 1 to 10^9, alone or in a rate.
fn whole_number(value: &DeValue<'_>) -> Option<u32> {
    let text = value.as_integer().map(|number| number.as_str()).or(value.as_str())?;
    let count = text.split_once('/').map_or(text, |(count, _)| count);
    count.parse().ok().filter(|count| (1..=1_000_000_000).contains(count))
}

/// The period of a rate: `min` for `"1m"` and `"minute"`, `15min` for 900000 ms. A number alone is seconds.
fn period_of(name: &str, value: &DeValue<'_>, time_unit: TimeUnit) -> Option<String> {
    let of = |number: u64, unit: &str| if number == 1 { unit.to_owned() } else { format!("{number}{unit}") };
    if let Some(text) = value.as_str() {
        let text = text.trim().to_lowercase();
        if let Some(unit) = time_unit(&text) {
            return Some(unit.to_owned());
        }
        let (number, unit) = number_and_unit(&text)?;
        return Some(of(number.parse().ok().filter(|number| *number > 0)?, time_unit(unit)?));
    }
    let number: u64 = value.as_integer()?.as_str().parse().ok().filter(|number| *number > 0)?;
    let milliseconds = if name == "windowms" { number } else { number.checked_mul(1_000)? };
    let units = [("h", 3_600_000), ("min", 60_000), ("s", 1_000), ("ms", 1)];
    let (unit, length) = units.into_iter().find(|(_, length)| milliseconds.is_multiple_of(*length))?;
    Some(of(milliseconds / length, unit))
}

/// The remedy for an unknown key of the table `title` whose setting is written in another way. `entries`: all keys of the
/// table.
pub(super) fn other_key(
    title: &str,
    (key, value): (&str, &DeValue<'_>),
    entries: &DeTable<'_>,
    time_unit: TimeUnit,
) -> Option<String> {
    if title == "`cost`" {
        return key_of_cost(key).map(str::to_owned);
    }
    let place = place(title);
    if place == Some("limit") {
        if SHADOWS.contains(&folded(key).as_str()) {
            let mode = if value.as_bool() == Some(false) { "enforce" } else { "shadow" };
            return Some(format!("write `mode = \"{mode}\"`"));
        }
        if let Some(rate) = rate_apart(key, value, entries, time_unit) {
            return Some(rate);
        }
    }
    if let Some(remedy) = place.and_then(|place| movers_word(place, key)) {
        return Some(remedy.to_owned());
    }
    if key == "status" && !title.contains("reject") {
        let status = value.as_integer().map_or("429", |number| number.as_str());
        let reject = format!("write `reject = {{ status = {} }}`", cut_for_help(status));
        let is_here = title.contains("[routes]") || title.contains("[limits.");
        let where_it_is = if is_here { "" } else { " in `[[routes]]` or `[limits.NAME]`" };
        return Some(format!("{reject}{where_it_is}"));
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
    let has_key = |(_, keys): &&(&str, Vec<&str>)| keys.contains(&key);
    let own = title.trim_matches('`');
    let own =
        |section: &str| section == own || section.starts_with("[limits.") && own.starts_with("[limits.");
    let sections = sections();
    let found = sections.iter().filter(has_key).filter(|(section, _)| !own(section));
    let names: Vec<_> = found.map(|(section, _)| quoted(section)).collect();
    (!names.is_empty()).then(|| format!("{} belongs to {}", quoted(key), names.join(" or ")))
}

/// How a rate is written here that is written as in nginx (`10r/s`), in words (`10 per second`) or as a fraction (`0.5/s`).
pub(super) fn rate(text: &str, time_unit: TimeUnit) -> Option<String> {
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

    /// All names of keys that the schema describes.
    fn keys(node: &serde_json::Value, found: &mut Vec<String>) {
        match node {
            serde_json::Value::Object(fields) => {
                let properties = fields.get("properties").and_then(serde_json::Value::as_object);
                found.extend(properties.into_iter().flat_map(|properties| properties.keys().cloned()));
                fields.values().for_each(|inner| keys(inner, found));
            }
            serde_json::Value::Array(items) => items.iter().for_each(|inner| keys(inner, found)),
            _ => {}
        }
    }

    #[test]
    fn the_table_of_movers_words_names_keys_that_exist_and_no_word_twice() {
        let mut known = Vec::new();
        keys(&serde_json::from_str(&crate::config::schema()).unwrap(), &mut known);
        // What stands for a name of the user's choice.
        known.extend(["NAME".to_owned(), "502".to_owned(), "\"2xx\"".to_owned()]);
        let (mut words, mut rows) = (0, 0);
        for line in
            include_str!("movers.txt").lines().filter(|line| !line.is_empty() && !line.starts_with('#'))
        {
            let [place, own, remedy] = line.split(" | ").collect::<Vec<_>>()[..] else {
                panic!("not a row: {line}")
            };
            assert!(place.starts_with('=') || PLACES.iter().any(|(_, known)| *known == place), "{line}");
            words += own.split(' ').count();
            rows += 1;
            for part in remedy.split(" = ").collect::<Vec<_>>().split_last().unwrap().1 {
                let key = part.rsplit([' ', '`', '{']).next().unwrap();
                assert!(known.iter().any(|own| own == key), "`{key}` in: {line}");
            }
        }
        assert_eq!(MOVERS.len(), words, "a word has one row in each place");
        assert!(rows > 100, "{rows}");
    }

    #[test]
    fn rates_with_their_period_apart_are_joined() {
        let unit = |text: &str| match text {
            "m" | "min" | "minute" | "minutes" => Some("min"),
            "s" | "second" => Some("s"),
            "h" | "hour" => Some("h"),
            _ => None,
        };
        for (text, key, expected) in [
            (
                "rate = 10\nwindow = \"1m\"",
                "window",
                "the period stands in `rate`: write `rate = \"10/min\"`",
            ),
            (
                "max = 100\nwindowMs = 900000",
                "windowMs",
                "the period stands in `rate`: write `rate = \"100/15min\"`",
            ),
            ("average = 100\nperiod = \"1s\"", "average", "write `rate = \"100/s\"`"),
            ("average = 100", "average", "write `rate = \"100/s\"`"),
            (
                "requests_per_unit = 5\nunit = \"MINUTE\"",
                "unit",
                "the period stands in `rate`: write `rate = \"5/min\"`",
            ),
            (
                "events = 3\nwindow = \"soon\"",
                "window",
                "the period stands in `rate`: write `rate = \"3/min\"`",
            ),
            ("minute = 5", "minute", "write `rate = \"5/min\"`"),
        ] {
            let table = DeTable::parse(text).unwrap();
            let value = table.get_ref().get(key).unwrap().get_ref();
            let remedy = other_key("`[limits.x]`", (key, value), table.get_ref(), unit);
            assert_eq!(remedy.as_deref(), Some(expected), "{text}");
        }
    }
}
