//! What the documents show is what the binary says.

use std::path::Path;

use serde_json::Value;

use crate::harness::api::api;
use crate::harness::pages::{Block, Page, pages};
use crate::harness::{Authority, Backend, Gateway, eventually, everything_to};

fn text(file: &str) -> String {
    std::fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join(file)).expect("it is there")
}

#[test]
fn the_version_in_the_api_is_that_of_the_program() {
    let page = text("docs/api.md");
    let (_, rest) = page.split_once("## Status\n\n```json\n").expect("the status is shown");
    let shown: Value = serde_json::from_str(rest.split("```").next().unwrap_or_default()).expect("JSON");
    assert_eq!(shown["version"], env!("CARGO_PKG_VERSION"));
    let backend = Backend::ok();
    let gateway = Gateway::start(&everything_to(&backend, "[admin]\nlisten = \"127.0.0.1:0\""));
    let told = api(&gateway, "status");
    assert_eq!(told["version"], env!("CARGO_PKG_VERSION"));
    let names = |value: &Value| value.as_object().unwrap().keys().cloned().collect::<Vec<_>>();
    assert_eq!(names(&shown), names(&told));
}

#[test]
fn docs_refusal_is_that_of_a_gateway() {
    let info = "text response of a limit with 10/s and burst 50";
    let blocks = pages().iter().flat_map(Page::blocks).collect::<Vec<_>>();
    let block = blocks.iter().find(|block| block.info == info).expect("the refusal is shown");
    let (head, body) = block.text.trim_end().split_once("\n\n").expect("head and body");
    let gateway = Gateway::start(
        "[upstreams]\ndemo = \"builtin:echo\"\n[limits.per-client]\nalgorithm = \"token-bucket\"\nkey = \"ip\"\n\
         rate = \"10/s\"\nburst = 50\n[[routes]]\npath = \"/*\"\nupstream = \"demo\"\nlimits = [\"per-client\"]\n",
    );
    let refusal = eventually("a refusal", || Some(gateway.get("/")).filter(|answer| answer.status == 429));
    assert_eq!(refusal.text(), body);
    let sent: Vec<_> = refusal.head.lines().map(str::trim_end).collect();
    assert!(head.lines().all(|line| sent.contains(&line)), "{head}\n--- but sent is\n{}", refusal.head);
}

/// The example of the guide redirects; docs_blocks checks that it loads without a warning.
#[test]
fn the_guides_redirect_to_https_works() {
    let blocks = pages().iter().flat_map(Page::blocks).collect::<Vec<_>>();
    let is_example = |block: &&Block| {
        block.page == "docs/routes.md" && block.info == "toml" && block.text.contains("redirect = \"https\"")
    };
    let example = blocks.iter().find(is_example);
    let authority = Authority::new();
    authority.certify("example.com", &["example.com"]);
    let path = |file: &str| authority.path(file).display().to_string();
    let file = example
        .expect("a complete file")
        .text
        .replace("\"example.com.pem\"", &format!("\"{}\"", path("example.com.pem")))
        .replace("\"example.com.key\"", &format!("\"{}\"", path("example.com.key")))
        .replace("0.0.0.0:80\"", "127.0.0.1:0\"")
        .replace("0.0.0.0:443\"", "127.0.0.1:0\"");
    let gateway = Gateway::start(&file);
    let answer = crate::harness::send(
        gateway.addr(),
        "GET /a?b HTTP/1.1\r\nhost: example.com:8080\r\nconnection: close\r\n\r\n",
    );
    assert_eq!((answer.status, answer.header("location")), (308, Some("https://example.com/a?b")));
}
