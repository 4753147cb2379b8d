//! The recipes of docs/cost.md and docs/model-apis.md, asked by the client libraries of the APIs' vendors:
//! `tests/cost/client.py` says what must hold. Each response through the gateway is the server's, byte for byte, and each
//! limit counts what the responses tell.

use serde_json::Value;

use crate::harness::pages::pages;
use crate::harness::{CostServer, Gateway, Versions, eventually};

const HEADING: &str = "## Recipes";

/// The recipes of both pages, together.
fn recipes() -> String {
    let models =
        pages().into_iter().find(|page| page.path == "docs/model-apis.md").expect("the page is there");
    let models: Vec<_> = models.blocks().into_iter().map(|block| block.text).collect();
    assert_eq!(models.len(), 4, "one block an API");
    models.concat() + &of_costs()
}

/// The blocks of docs/cost.md below the heading, together.
fn of_costs() -> String {
    let page = pages().into_iter().find(|page| page.path == "docs/cost.md").expect("the page is there");
    let line_of = |found: &dyn Fn(&str) -> bool| page.text.lines().position(found);
    let begin = line_of(&|line| line == HEADING).expect("the heading is there");
    let end = page.text.lines().skip(begin + 1).position(|line| line.starts_with("## "));
    let end = end.map_or(usize::MAX, |lines| begin + 1 + lines);
    let blocks = page.blocks().into_iter().filter(|block| (begin..end).contains(&block.line));
    let blocks: Vec<_> =
        blocks.filter(|block| block.info == "toml fragment").map(|block| block.text).collect();
    assert_eq!(blocks.len(), 4, "one block a recipe");
    blocks.concat()
}

/// Goes through a case of `client.py` with all recipes, and with a route that settles nothing: by the pinned versions.
#[track_caller]
fn go_through(case: &str) -> (Gateway, Vec<String>) {
    go_through_with(case, Versions::Pinned)
}

/// By both versions of the libraries: each settlement of this limit has one of these words.
#[track_caller]
fn go_through_both(case: &str, limit: &str, words: &[&str]) -> Gateway {
    let (gateway, _) = go_through_with(case, Versions::Newest);
    is_told(&gateway, limit, words);
    let (gateway, _) = go_through_with(case, Versions::Pinned);
    is_told(&gateway, limit, words);
    gateway
}

#[track_caller]
fn go_through_with(case: &str, versions: Versions) -> (Gateway, Vec<String>) {
    let server = CostServer::start();
    let gateway = Gateway::start(&format!(
        "[admin]\nlisten = \"127.0.0.1:0\"\n[upstreams]\napi = \"{}\"\n[[routes]]\npath = \"/plain/*\"\n\
         upstream = \"api\"\n{}",
        server.url(),
        recipes()
    ));
    let lines = server.ask(&gateway, case, versions);
    (gateway, lines)
}

/// As many units as the log tells to be settled are the metrics' sum; each settlement has one of these words.
#[track_caller]
fn is_told(gateway: &Gateway, limit: &str, words: &[&str]) -> u64 {
    let labels =
        |more: &str| gateway.metric("tollgate_settled_units_total", &[&format!("limit=\"{limit}\""), more]);
    let settled: Vec<Value> = eventually("as many lines of the log as settlements", || {
        let count = gateway.metric("tollgate_settlements_total", &[&format!("limit=\"{limit}\"")]);
        let log = gateway.access_log(0);
        let lines: Vec<_> =
            log.into_iter().filter(|line| line["limit"] == limit && !line["settled"].is_null()).collect();
        (count > 0.0 && lines.len() as f64 >= count).then_some(lines)
    });
    let sum: u64 = settled.iter().filter_map(|line| line["settled"].as_u64()).sum();
    let reserved = gateway.metric("tollgate_reserved_units_total", &[&format!("limit=\"{limit}\"")]);
    let metrics = reserved + labels("direction=\"charged\"") - labels("direction=\"refunded\"");
    assert_eq!(sum as f64, metrics, "{settled:?}");
    for word in words {
        assert!(settled.iter().any(|line| line["settlement"] == *word), "{word}: {settled:?}");
    }
    let unknown = settled.iter().find(|line| !words.iter().any(|word| line["settlement"] == *word));
    assert_eq!(unknown, None);
    sum
}

#[test]
fn the_openai_library_is_counted_by_its_usage() {
    go_through_both("openai_style", "openai-tokens", &["measured", "missing"]);
}

#[test]
fn the_anthropic_library_is_counted_by_its_usage() {
    go_through_both("anthropic_style", "anthropic-tokens", &["measured"]);
}

#[test]
fn a_graphql_service_tells_its_cost() {
    let (gateway, _) = go_through("graphql");
    is_told(&gateway, "graphql-points", &["measured", "missing"]);
}

#[test]
fn downloads_are_counted_by_bytes() {
    let (gateway, _) = go_through("downloads");
    is_told(&gateway, "download-mib", &["measured"]);
}

#[test]
fn only_failed_logins_are_counted() {
    let (gateway, _) = go_through("failed_logins");
    assert_eq!(is_told(&gateway, "failed-logins", &["measured"]), 20);
}

#[test]
fn a_report_is_counted_by_its_duration() {
    let (gateway, lines) = go_through("reports");
    let sum = is_told(&gateway, "report-seconds", &["measured"]);
    assert_eq!(lines, [format!("used {sum}")]);
}

/// Each pays what the library has read, and none has failed.
#[test]
fn clients_that_leave_at_the_last_event_are_counted_by_their_usage() {
    let (gateway, _) = go_through("late");
    is_told(&gateway, "openai-tokens", &["measured"]);
    is_told(&gateway, "anthropic-tokens", &["measured"]);
    let failed: Vec<_> = gateway.access_log(12).into_iter().filter(|line| !line["error"].is_null()).collect();
    assert_eq!(failed, Vec::<Value>::new());
}

/// With and without a cost to settle, coded or not: the server sends an event only after the client has told that it got
/// the one before.
#[test]
fn no_event_of_a_stream_is_held_back() {
    let (gateway, _) = go_through("order");
    is_told(&gateway, "openai-tokens", &["measured"]);
    is_told(&gateway, "anthropic-tokens", &["measured"]);
}

#[test]
fn openai_responses_and_embeddings_are_counted_by_their_usage() {
    go_through_both("openai_responses", "openai-tokens", &["measured"]);
}

#[test]
fn servers_with_openais_api_are_counted_by_their_usage() {
    go_through_both("openai_compatible", "openai-tokens", &["measured"]);
}

#[test]
fn the_gemini_library_is_counted_by_its_usage() {
    go_through_both("gemini_style", "gemini-tokens", &["measured"]);
}

#[test]
fn the_ollama_library_is_counted_by_its_usage() {
    go_through_both("ollama_style", "ollama-tokens", &["measured"]);
}

#[test]
fn no_document_of_a_stream_is_held_back() {
    let (gateway, _) = go_through("order_of_documents");
    is_told(&gateway, "ollama-tokens", &["measured"]);
    is_told(&gateway, "gemini-tokens", &["measured"]);
}

#[test]
fn clients_that_leave_at_the_last_line_are_counted_by_their_usage() {
    let (gateway, _) = go_through("late_lines");
    is_told(&gateway, "ollama-tokens", &["measured"]);
    let failed: Vec<_> = gateway.access_log(4).into_iter().filter(|line| !line["error"].is_null()).collect();
    assert_eq!(failed, Vec::<Value>::new());
}

/// Each response is cut in two at each byte, plain and coded.
mod cuts {
    use super::go_through_both;

    #[test]
    fn of_openai() {
        go_through_both("cuts_openai", "openai-tokens", &["measured"]);
    }

    #[test]
    fn of_openai_responses() {
        go_through_both("cuts_responses", "openai-tokens", &["measured"]);
    }

    #[test]
    fn of_anthropic() {
        go_through_both("cuts_anthropic", "anthropic-tokens", &["measured"]);
    }

    #[test]
    fn of_gemini() {
        go_through_both("cuts_gemini", "gemini-tokens", &["measured"]);
    }

    #[test]
    fn of_ollama() {
        go_through_both("cuts_ollama", "ollama-tokens", &["measured"]);
    }
}

/// Which libraries ask again by themselves, and whether they wait as long as the refusal says.
#[test]
fn libraries_ask_again_as_the_page_says() {
    for versions in [Versions::Newest, Versions::Pinned] {
        for (case, rate) in [("retries", "1/2s"), ("long_waits", "1/h")] {
            let server = CostServer::start();
            let gateway = Gateway::start(&format!(
                "[admin]\nlisten = \"127.0.0.1:0\"\n[upstreams]\napi = \"{}\"\n[[routes]]\npath = \"/*\"\n\
                 upstream = \"api\"\nlimits = [\"one\"]\n[limits.one]\nkey = [\"ip\", \"path\"]\n\
                 algorithm = \"fixed-window\"\nrate = \"{rate}\"\nalign = \"first-request\"\n",
                server.url()
            ));
            server.ask(&gateway, case, versions);
        }
    }
}
