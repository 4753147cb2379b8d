//! The files that `tollgate init` writes.

use std::path::Path;

use ipnet::IpNet;

use super::answers::{Answers, ClientKey, InitMode};
use crate::config;
use crate::limit::units::Cost;
use crate::policy_test::MAX_TIMES;

/// The configuration. `tests` is the file with the test of its limit.
pub(super) fn configuration(answers: &Answers, tests: Option<&Path>) -> String {
    let Answers { upstream, clients, rate, burst, mode } = answers;
    let test = tests.map_or(
        "",
        |_| "#     tollgate test              # the test of the limit: it lies beside this file\n",
    );
    let trusted = match clients {
        ClientKey::Proxy(networks) => {
            let networks: Vec<_> = networks.iter().map(|network| quoted(&written(*network))).collect();
            let networks = networks.join(", ");
            format!(
                "# The load balancer before the gateway: from here on, `x-forwarded-for` names the client.\n\
                 trusted_proxies = [{networks}]\n"
            )
        }
        ClientKey::Ip | ClientKey::ApiKey => String::new(),
    };
    let service = match upstream.as_str() {
        "echo" | "builtin:echo" => {
            "service = \"builtin:echo\"       # responds with the request; later: \"http://127.0.0.1:9000\""
                .to_owned()
        }
        url => format!("service = {}", quoted(url)),
    };
    let key = match clients {
        ClientKey::ApiKey => {
            "key       = \"header:x-api-key\"\n\
             missing   = \"shared\"         # all requests without a key share one counter\n"
        }
        ClientKey::Ip | ClientKey::Proxy(_) => "key       = \"ip\"\n",
    };
    let burst = match burst {
        Some(burst) => format!("burst     = {burst}                # at once, after a pause\n"),
        None => format!(
            "# burst   = {:<17}# at once, after a pause; the default is the count of the rate\n",
            answers.at_once()
        ),
    };
    let (beside, per_address) = match clients {
        ClientKey::ApiKey => (", \"per-address\"", per_address(answers)),
        ClientKey::Ip | ClientKey::Proxy(_) => ("", String::new()),
    };
    let mode = match mode {
        InitMode::Shadow => {
            "mode      = \"shadow\"         # only counts what it would refuse; without this line it refuses\n"
        }
        InitMode::Enforce => "# mode    = \"shadow\"         # would only count what it refuses\n",
    };
    format!(
        "# A gateway with one limit, written by `tollgate init`.\n\
         #\n\
         #     tollgate check             # the limit in words, and faults with their remedies\n\
         {test}\
         #     tollgate --watch           # start; reload whenever this file changes\n\
         #     curl -i localhost:8080/    # the `ratelimit` header tells what is left\n\
         #     tollgate schema > gateway.schema.json    # for editors, with a first line `#:schema gateway.schema.json`\n\
         \n\
         [server]\n\
         listen = [\"127.0.0.1:8080\"]       # \"0.0.0.0:8080\" for clients on other machines\n\
         {trusted}\
         \n\
         # Dashboard, metrics, health and readiness: http://127.0.0.1:9900/\n\
         [admin]\n\
         listen = \"127.0.0.1:9900\"\n\
         \n\
         [upstreams]\n\
         {service}\n\
         \n\
         # All requests. Of several routes the most specific one that matches is used.\n\
         [[routes]]\n\
         path     = \"/*\"\n\
         upstream = \"service\"\n\
         limits   = [\"per-client\"{beside}]\n\
         \n\
         [limits.per-client]\n\
         algorithm = \"token-bucket\"   # short bursts pass, the average is bounded\n\
         {key}\
         rate      = {rate}\n\
         {burst}\
         {mode}\
         {per_address}",
        rate = quoted(rate),
    )
}

/// The limit beside one by key: a client can invent keys, but not addresses.
fn per_address(answers: &Answers) -> String {
    let wider = |count: u32| count.saturating_mul(10).min(Cost::MAX);
    let rate = match answers.rate.split_once('/').map(|(count, period)| (count.parse(), period)) {
        Some((Ok(count), period)) => format!("{}/{period}", wider(count)),
        _ => answers.rate.clone(),
    };
    let mode = if answers.mode == InitMode::Shadow { "mode      = \"shadow\"\n" } else { "" };
    format!(
        "\n\
         # A client can invent keys, but not addresses: ten clients may share one. The gateway knows keys by [auth.NAME].\n\
         [limits.per-address]\n\
         algorithm = \"token-bucket\"\n\
         key       = \"ip\"\n\
         rate      = {}\n\
         burst     = {}\n\
         {mode}",
        quoted(&rate),
        wider(answers.at_once()),
    )
}

/// The test of the limit.
pub(super) fn tests(answers: &Answers) -> String {
    let first =
        |networks: &[IpNet]| networks.first().map_or_else(String::new, |network| network.addr().to_string());
    let (one, other) = match &answers.clients {
        ClientKey::Ip => ("ip = \"192.0.2.1\"".to_owned(), "ip = \"192.0.2.2\"".to_owned()),
        ClientKey::ApiKey => {
            ("headers = { x-api-key = \"one\" }".to_owned(), "headers = { x-api-key = \"other\" }".to_owned())
        }
        ClientKey::Proxy(networks) => {
            let proxy = quoted(&first(networks));
            let of = |client: &str| format!("ip = {proxy}, headers = {{ x-forwarded-for = \"{client}\" }}");
            (of("192.0.2.1"), of("192.0.2.2"))
        }
    };
    let at_once = answers.at_once();
    let (name, expected) = match answers.mode {
        // So many requests cannot be sent in a step.
        _ if at_once >= MAX_TIMES => ("a client is admitted".to_owned(), "expect = 200".to_owned()),
        InitMode::Enforce => (
            format!("a client sends {at_once} requests at once, and the next one is refused"),
            format!("expect = {{ 200 = {at_once}, 429 = 1 }}, limit = \"per-client\""),
        ),
        InitMode::Shadow => (
            format!("a client sends {at_once} requests at once, and the next one would be refused"),
            format!("times = {}, expect = 200, shadow = [\"per-client\"]", at_once + 1),
        ),
    };
    format!(
        "# Tests of the limits, written by `tollgate init`. `tollgate test` runs them in virtual time: nothing is sent.\n\
         # 200 stands for a request that the gateway forwards.\n\
         \n\
         [[test]]\n\
         name  = \"{name}\"\n\
         steps = [\n    \
             {{ at = \"0s\", request = \"GET /\", {one}, {expected} }},\n    \
             {{ at = \"0s\", request = \"GET /\", {other}, expect = 200 }}, # another client has its own counter\n\
         ]\n"
    )
}

/// An address stands alone.
fn written(network: IpNet) -> String {
    match network.prefix_len() == network.max_prefix_len() {
        true => network.addr().to_string(),
        false => network.to_string(),
    }
}

/// A text as a string of TOML.
fn quoted(text: &str) -> String {
    toml::Value::String(text.to_owned()).to_string()
}

/// Whether the gateway takes a configuration with these answers.
///
/// # Errors
///
/// The first fault, and its remedy.
pub(super) fn check(answers: &Answers) -> Result<(), String> {
    let text = configuration(answers, None);
    let environment = |variable: &str| std::env::var(variable).ok();
    let Err(report) = config::parse(text.as_bytes(), "gateway.toml", &environment) else { return Ok(()) };
    let first = report.findings().into_iter().find(|finding| finding.severity == "error");
    let fault = first.map(|finding| format!("{}\n  = help: {}", finding.message, finding.help));
    Err(fault.unwrap_or_else(|| report.to_string()))
}
