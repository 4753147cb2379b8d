//! What the proxies ask about requests. The recorded questions are in `tests/peers/questions.txt`, which tests replay
//! without a proxy. To record anew: `INSTA_UPDATE=always`.

use std::cell::RefCell;

use super::{Asking, CLAIMS, TOKEN, caddy, envoy, nginx, send, traefik};
use crate::harness::page_run::{PageRun, follow_page};
use crate::harness::pages::root;
use crate::harness::{Backend, Recorded};

const FILE: &str = "tests/peers/questions.txt";

const HEAD: &str = "\
# Questions of nginx 1.22.1, Traefik 3.7.15, Caddy 2.11.7 and Envoy 1.40.0 (`ext_authz`), recorded by
# tests/it/peers/asking/questions.rs with the files of docs/recipes: the request of the client 127.0.0.2, and the head of
# the question, with its header lines in order of the alphabet.
";

/// Requests: the method, the target, and further fields.
const CASES: [(&str, &str, &str); 3] = [
    ("GET", "/orders/1?x=%2F&status=403", ""),
    ("POST", "/orders/1", "authorization: Bearer acme-5d1c9b7e0a42\r\ncookie: a=b\r\n"),
    ("HEAD", "/orders/1", "origin: https://shop.test\r\nif-none-match: *\r\nrange: bytes=0-1\r\n"),
];

/// The questions of a proxy, each with a line about its request.
fn questions(asking: &Asking) -> String {
    let recorded = RefCell::new(String::new());
    follow_page(&format!("docs/recipes/{}", asking.page), |page| {
        page.serve("server.py", 9001, &[]);
        // It refuses: the server of the page knows no request that would become a tunnel.
        let gateway = Backend::answering("HTTP/1.1 429 Too Many Requests\r\ncontent-length: 0\r\n\r\n");
        for file in asking.files {
            let [shown, recording] =
                [page.address(9901), gateway.addr()].map(|address| address.port().to_string());
            page.edit(file, &shown, &recording);
        }
        page.set("TOLLGATE_DECISIONS_TOKEN", TOKEN);
        (asking.start)(page);
        let claims = CLAIMS[..8].concat();
        let upgrade = ("GET", "/orders/1", CLAIMS[10]);
        let cases = CASES.into_iter().chain([("GET", "/orders/1", claims.as_str())]);
        let cases = cases.chain((!asking.refuses_connection).then_some(upgrade));
        for (method, target, fields) in cases {
            let before = gateway.count();
            send(2, page.address(8000), method, target, fields);
            assert_eq!(gateway.count(), before + 1, "one question for {method} {target}");
            let name = asking.page.trim_start_matches("ask-").trim_end_matches(".md");
            let fields = fields.replace("\r\n", "; ");
            let first = format!("question of {name}: {method} {target} {fields}");
            let head = head(&gateway.latest(), page, &gateway);
            *recorded.borrow_mut() += &format!("\n{}\n{head}\n", first.trim_end());
        }
        Vec::new()
    });
    recorded.into_inner()
}

/// A head with what is of this machine replaced, and in order.
fn head(question: &Recorded, page: &PageRun, gateway: &Backend) -> String {
    assert_eq!(question.raw_body, b"", "no body is sent");
    let mut lines = question.head.trim_end().split("\r\n");
    let first = lines.next().unwrap_or_default();
    let mut fields: Vec<String> = lines.map(|line| of_any_machine(line, page, gateway)).collect();
    fields.sort_by_key(|line| line.to_ascii_lowercase());
    format!("{first}\n{}", fields.join("\n"))
}

fn of_any_machine(line: &str, page: &PageRun, gateway: &Backend) -> String {
    if line.starts_with("X-Forwarded-Server: ") {
        return "X-Forwarded-Server: proxy".to_owned();
    }
    let line = line.replace(&gateway.addr().port().to_string(), "9901");
    line.replace(&page.address(8000).port().to_string(), "8000")
}

#[test]
fn the_recorded_questions_are_those_of_the_proxies() {
    let proxies = [&nginx::NGINX, &traefik::TRAEFIK, &caddy::CADDY, &envoy::ENVOY];
    let text: String = [HEAD.to_owned()].into_iter().chain(proxies.map(questions)).collect();
    if std::env::var("INSTA_UPDATE").is_ok_and(|update| update == "always") {
        std::fs::write(root().join(FILE), &text).expect("it can be written");
    }
    let recorded = std::fs::read_to_string(root().join(FILE)).expect("it is there");
    assert_eq!(text, recorded, "{FILE} is not what the proxies ask: INSTA_UPDATE=always records it anew");
}
