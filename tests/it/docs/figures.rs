//! A figure that several pages give is the same on all of them, and that of the code: `tests/docs/figures.toml` has the
//! rows. Defaults are those of a file that sets nothing, and ratios of the benchmarks those of their tables.

use std::collections::BTreeMap;

use serde::Deserialize;
use serde_json::Value;
use tollgate::config;

use crate::harness::pages::root;

#[derive(Debug, Deserialize)]
struct Rows {
    figure: Vec<Figure>,
}

/// A figure, the constant that sets it (`FILE NAME`), and the pages that give it with the words before it.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Figure {
    name: String,
    constant: Option<String>,
    on: Vec<(String, String)>,
}

/// Units, in bytes or milliseconds.
const UNITS: [(&str, f64); 15] = [
    ("KiB", 1024.0),
    ("MiB", 1_048_576.0),
    ("GiB", 1_073_741_824.0),
    ("KB", 1e3),
    ("MB", 1e6),
    ("B", 1.0),
    ("bytes", 1.0),
    ("ms", 1.0),
    ("s", 1e3),
    ("seconds", 1e3),
    ("min", 60e3),
    ("minutes", 60e3),
    ("h", 3_600e3),
    ("hours", 3_600e3),
    ("day", 86_400e3),
];

/// The text of a page or source, with single spaces.
fn text(path: &str) -> String {
    let text = std::fs::read_to_string(root().join(path)).unwrap_or_else(|error| panic!("{path}: {error}"));
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}

fn figures() -> Vec<Figure> {
    let text = std::fs::read_to_string(root().join("tests/docs/figures.toml")).expect("it is there");
    toml::from_str::<Rows>(&text).expect("its rows have these fields").figure
}

/// The quantity at the begin of a text, behind quotes, brackets and stars.
fn quantity(text: &str) -> Option<f64> {
    let text = text.trim_start_matches(['`', '"', '[', '*', '~']);
    let mut digits = String::new();
    let mut rest = text;
    while let Some(char) = rest.chars().next() {
        let after = &rest[char.len_utf8()..];
        let groups = |text: &str| {
            text.len() >= 3
                && text.chars().take(3).all(|char| char.is_ascii_digit())
                && !text.chars().nth(3).is_some_and(|char| char.is_ascii_digit())
        };
        match char {
            '0'..='9' => digits.push(char),
            '.' if after.starts_with(|char: char| char.is_ascii_digit()) => digits.push(char),
            ' ' | ',' | '_' if !digits.is_empty() && groups(after) => {}
            _ => break,
        }
        rest = after;
    }
    let number: f64 = digits.parse().ok()?;
    let rest = rest.trim_start();
    let word = rest.split(|char: char| !char.is_alphabetic()).next().unwrap_or_default();
    let unit = UNITS.iter().find(|(unit, _)| *unit == word);
    Some(number * unit.map_or(1.0, |(_, factor)| *factor))
}

/// The quantity behind these words on a page.
fn quantity_on(page: &str, words: &str) -> Result<f64, String> {
    let text = text(page);
    let rest = text.split_once(words).ok_or_else(|| format!("{page} does not say `{words}`"))?.1;
    quantity(rest).ok_or_else(|| {
        format!("{page} has no number behind `{words}`: {}", rest.chars().take(30).collect::<String>())
    })
}

/// The value of `const NAME: T = EXPRESSION;` in a file: a number, or milliseconds.
fn constant(place: &str) -> Result<f64, String> {
    let (file, name) = place.split_once(' ').ok_or("`constant` is a file and a name")?;
    let code = text(file);
    let after =
        code.split_once(&format!("const {name}: ")).ok_or_else(|| format!("{file} has no `{name}`"))?.1;
    let expression = after.split_once(" = ").and_then(|(_, rest)| rest.split_once(';')).ok_or("no value")?.0;
    let wrapped = [("Duration::from_secs(", 1e3), ("Duration::from_millis(", 1.0), ("Micros(", 1e-3)];
    let (inner, factor) = wrapped
        .iter()
        .find_map(|(start, factor)| Some((expression.strip_prefix(start)?.strip_suffix(')')?, *factor)))
        .unwrap_or((expression, 1.0));
    let number =
        |text: &str| text.trim().replace('_', "").parse::<f64>().map_err(|_| format!("{place}: {text}"));
    let value = match inner.split_once("<<") {
        Some((left, right)) => number(left)? * number(right)?.exp2(),
        None => inner.split('*').try_fold(1.0, |product, part| Ok::<_, String>(product * number(part)?))?,
    };
    Ok(value * factor)
}

#[track_caller]
fn assert_none(faults: &[String]) {
    assert!(faults.is_empty(), "\n{}", faults.join("\n"));
}

#[test]
fn docs_figures_agree() {
    let mut faults = Vec::new();
    for figure in figures() {
        let of_code = figure.constant.iter().map(|place| (place.clone(), constant(place)));
        let of_pages =
            figure.on.iter().map(|(page, words)| (format!("{page}, `{words}`"), quantity_on(page, words)));
        let mut first: Option<(String, f64)> = None;
        for (place, value) in of_code.chain(of_pages) {
            match (value, &first) {
                (Err(fault), _) => faults.push(format!("{}: {fault}", figure.name)),
                (Ok(value), None) => first = Some((place, value)),
                (Ok(value), Some((other, known))) if (value - known).abs() > known.abs() * 1e-9 => {
                    faults.push(format!("{}: {value} by {place}, but {known} by {other}", figure.name));
                }
                (Ok(_), Some(_)) => {}
            }
        }
    }
    assert_none(&faults);
}

/// Each bound that no setting changes has a row, so that it is compared with the code or with other pages.
#[test]
fn docs_fixed_bounds_have_rows() {
    let figures = figures();
    let page = std::fs::read_to_string(root().join("docs/bounds.md")).expect("the page is there");
    let rows = page.lines().filter(|line| line.starts_with('|') && line.contains("fixed"));
    let mut without = Vec::new();
    let mut count = 0;
    for row in rows.filter(|row| row.contains(|char: char| char.is_ascii_digit())) {
        count += 1;
        let mut places = figures.iter().flat_map(|figure| &figure.on);
        if !places.any(|(page, words)| page == "docs/bounds.md" && row.contains(words.as_str())) {
            without.push(row.to_owned());
        }
    }
    assert!(count > 40, "{count} rows were found");
    assert_none(&without);
}

// ---------------------------------------------------------------------------------------------------------------
// Defaults

/// A setting: its page and the words before its default there, the rows of docs/bounds.md that give the default, and where
/// the schema declares it.
type Setting = (&'static str, &'static str, &'static [&'static str], &'static str);

const BREAKER: &str = "breaker` (none): `{ failures = 0.5, requests = ";

const SETTINGS: &[Setting] = &[
    ("server", "max_connections", &["client connections"], "server/max_connections"),
    (
        "server",
        "max_connections_per_client",
        &["connections of one client"],
        "server/max_connections_per_client",
    ),
    (
        "server",
        "max_requests_per_connection",
        &["requests on one connection"],
        "server/max_requests_per_connection",
    ),
    ("server", "max_connection_age", &["age of a connection"], "server/max_connection_age"),
    ("server", "max_header_bytes", &["request head"], "server/max_header_bytes"),
    ("server", "max_body_bytes", &["request body"], "server/max_body_bytes"),
    (
        "server",
        "header_timeout",
        &["head complete", "TLS handshake", "PROXY protocol preamble"],
        "server/header_timeout",
    ),
    ("server", "body_timeout", &["silence inside a body"], "server/body_timeout"),
    ("server", "idle_timeout", &["kept-alive connection without a request"], "server/idle_timeout"),
    (
        "server",
        "write_timeout",
        &["client acknowledges no byte, also of an interim response"],
        "server/write_timeout",
    ),
    ("server", "drain_timeout", &[], "server/drain_timeout"),
    ("server", "ipv4_prefix", &[], "server/ipv4_prefix"),
    ("server", "ipv6_prefix", &[], "server/ipv6_prefix"),
    ("server", "max_keys", &["counters"], "store/max_keys"),
    ("routes", "timeout", &["response head"], "route/timeout"),
    ("routes", "read_timeout", &["silence inside a response body"], "route/read_timeout"),
    (
        "routes",
        "tunnel_timeout",
        &["silence of a tunnel in both directions", "a side of a tunnel that acknowledges no byte"],
        "route/tunnel_timeout",
    ),
    ("upstreams", "connect_timeout", &["connect to a backend, TLS included"], "upstream/connect_timeout"),
    ("upstreams", "idle_timeout", &["unused backend connections"], "upstream/idle_timeout"),
    ("upstreams", "retry` (`{ attempts = ", &["attempts"], "retry/attempts"),
    ("upstreams", "eject` (`{ failures = ", &["ejection of a server"], "eject/failures"),
    ("health-checks", "interval", &[], "health/interval"),
    ("health-checks", "timeout", &["a health check | one at a time for each server,"], "health/timeout"),
    ("health-checks", "healthy` (", &[], "health/healthy"),
    ("upstreams", BREAKER, &[], "breaker/requests"),
    ("upstreams", "breaker` (none): `{ failures = 0.5, requests = 20, for = ", &[], "breaker/for"),
    ("forward-auth", "timeout", &["an answer of a service (`forward`) | `timeout`,"], "auth/timeout"),
];

fn schema() -> Value {
    serde_json::from_str(&config::schema()).expect("the schema is JSON")
}

/// The quantity of a default as it stands in the file; 0 is written where it means that there is no bound.
fn default(schema: &Value, place: &str) -> Option<f64> {
    let (section, key) = place.split_once('/').expect("a section and its key");
    let property = &schema["$defs"][section]["properties"][key];
    assert!(property.is_object(), "the schema has no {place}");
    let default = &property["default"];
    let number = default.as_f64().or_else(|| quantity(default.as_str()?));
    number.filter(|number| *number > 0.0)
}

#[test]
fn docs_defaults_are_those_of_the_code() {
    let (schema, bounds) = (schema(), text("docs/bounds.md"));
    let mut faults = Vec::new();
    for (page, key, rows, place) in SETTINGS {
        let words = if key.contains('(') { format!("- `{key}") } else { format!("- `{key}` (") };
        let on_page = text(&format!("docs/{page}.md"));
        let of_row = |row: &&str| if row.contains('|') { format!("| {row} ") } else { format!("| {row} | ") };
        let in_bounds = rows.iter().map(|row| (&bounds, of_row(row)));
        let expected = default(&schema, place);
        for (text, words) in [(&on_page, words)].into_iter().chain(in_bounds) {
            let found =
                text.split_once(&words).map(|(_, rest)| quantity(rest).filter(|number| *number > 0.0));
            if found != Some(expected) {
                faults
                    .push(format!("`{words}` of {page}: the page says {found:?}, and the code {expected:?}"));
            }
        }
    }
    assert_none(&faults);
}

/// The page of a section gives each default of a quantity that it names in an item: ``- `idle_timeout` (60s)``.
#[test]
fn docs_pages_of_sections_give_its_defaults() {
    const PAGES: [(&str, &str); 6] = [
        ("server", "server"),
        ("route", "routes"),
        ("upstream", "upstreams"),
        ("limit", "limits"),
        ("store", "shared-limits"),
        ("auth", "forward-auth"),
    ];
    let schema = schema();
    let (mut faults, mut compared) = (Vec::new(), 0);
    for (section, page) in PAGES {
        let on_page = text(&format!("docs/{page}.md"));
        for key in schema["$defs"][section]["properties"].as_object().expect("a section").keys() {
            let Some(expected) = default(&schema, &format!("{section}/{key}")) else { continue };
            let Some((_, rest)) = on_page.split_once(&format!("- `{key}` (")) else { continue };
            compared += 1;
            if quantity(rest) != Some(expected) {
                faults.push(format!(
                    "{section}.{key}: {page} says {:?}, the schema {expected}",
                    quantity(rest)
                ));
            }
        }
    }
    assert!(compared > 15, "{compared} defaults were compared");
    assert_none(&faults);
}

// ---------------------------------------------------------------------------------------------------------------
// Benchmarks

/// The cells of the rows between two marks of a page.
fn rows_of(page: &str, mark: &str) -> Vec<Vec<String>> {
    let text = std::fs::read_to_string(root().join(page)).expect("the page is there");
    let inside = text.split_once(&format!("<!-- {mark} -->")).expect("a mark").1;
    let inside = inside.split_once(&format!("<!-- /{mark} -->")).expect("an end").0;
    let cells = |line: &str| line.trim_matches('|').split('|').map(|cell| cell.trim().to_owned()).collect();
    inside.lines().filter(|line| line.starts_with('|')).skip(2).map(cells).collect()
}

/// The kinds of traffic of the script: name, case, targets, table.
fn traffic_kinds() -> Vec<Vec<String>> {
    let script = std::fs::read_to_string(root().join("benches/compare/document.sh")).expect("the script");
    let kinds =
        script.split_once("<<KINDS\n").and_then(|(_, rest)| rest.split_once("\nKINDS")).expect("kinds").0;
    let fields = |line: &str| line.replace("$many", "1000000").split('|').map(str::to_owned).collect();
    kinds.lines().map(fields).collect()
}

#[test]
fn docs_benchmarks_have_the_rows_of_their_script() {
    let script = text("benches/compare.sh");
    let tables = script.split_once("tables=(").and_then(|(_, rest)| rest.split_once(')')).expect("tables").0;
    let kinds: BTreeMap<_, _> = traffic_kinds().into_iter().map(|kind| (kind[0].clone(), kind)).collect();
    let (traffic, figures) =
        (rows_of("docs/benchmarks.md", "traffic"), rows_of("docs/benchmarks.md", "figures"));
    assert!(traffic.len() >= kinds.len(), "{traffic:?}");
    let runs: Vec<_> = rows_of("docs/benchmarks.md", "runs").into_iter().map(|row| row[0].clone()).collect();
    for row in &traffic {
        let Some(kind) = kinds.get(&row[0]) else {
            assert_eq!(row[6], "by hand", "{row:?}");
            continue;
        };
        assert_eq!((&row[2], &row[4]), (&kind[2], &kind[3]), "the targets of {}", row[0]);
        assert_eq!(row[6], format!("`benches/compare.sh {}`", kind[4]), "{}", row[0]);
    }
    for command in traffic.iter().map(|row| &row[6]).chain(figures.iter().map(|row| &row[5])) {
        let table = command.trim_matches('`').trim_start_matches("benches/compare.sh ");
        assert!(command == "by hand" || tables.split(' ').any(|known| known == table), "{command}");
    }
    for date in traffic.iter().map(|row| &row[5]).chain(figures.iter().map(|row| &row[4])) {
        let by_hand = ["2026-11-22", "November 2026"].contains(&date.as_str());
        assert!(by_hand || runs.contains(date), "{date} is not a run");
    }
}

#[test]
fn docs_benchmarks_have_the_ratios_of_their_tables() {
    let mut faults = Vec::new();
    let mut compared = 0;
    for kind in traffic_kinds() {
        let row = rows_of("docs/benchmarks.md", "traffic").into_iter().find(|row| row[0] == kind[0]);
        let row = row.unwrap_or_else(|| panic!("the page has no row `{}`", kind[0]));
        for page in ["requests", "credentials"] {
            let page = format!("docs/benchmarks/{page}.md");
            let text = std::fs::read_to_string(root().join(&page)).expect("the page is there");
            let mut columns: Vec<String> = Vec::new();
            for line in text.lines().filter(|line| line.starts_with('|')) {
                let cells: Vec<_> =
                    line.trim_matches('|').split('|').map(|cell| cell.trim().to_owned()).collect();
                if cells.iter().any(|cell| cell == "gateway") {
                    columns = cells;
                } else if cells[0] == kind[1] && cells.get(1).is_some_and(|name| name == "tollgate") {
                    for (other, cell) in [("to nginx", &row[1]), ("to haproxy", &row[3])] {
                        let at = columns.iter().position(|column| column == other);
                        let detail = at.and_then(|at| cells[at].split(' ').next()).unwrap_or("");
                        let shown = cell.trim_matches('*').trim_start_matches("not measured");
                        compared += 1;
                        if detail != shown {
                            faults.push(format!("{}, {other}: {shown}, but {detail} in {page}", kind[0]));
                        }
                    }
                }
            }
        }
    }
    assert!(compared > 10, "{compared} ratios were compared");
    assert_none(&faults);
}

#[test]
fn docs_benchmarks_explain_each_figure_that_misses_its_target() {
    let explained =
        std::fs::read_to_string(root().join("docs/benchmarks/targets-not-reached.md")).expect("a page");
    let missed = |row: &Vec<String>| row.iter().any(|cell| cell.starts_with("**"));
    let traffic = rows_of("docs/benchmarks.md", "traffic").into_iter().filter(missed);
    let figures = rows_of("docs/benchmarks.md", "figures").into_iter().filter(missed);
    let names: Vec<_> = traffic.chain(figures).map(|row| row[0].clone()).collect();
    for name in &names {
        assert!(explained.contains(&format!("\n| {name} | [")), "{name} is not explained");
    }
    let listed = explained.lines().filter(|line| line.starts_with("| ") && line.contains(" | [")).count();
    assert_eq!(listed, names.len(), "figures that reach their targets are explained");
}
