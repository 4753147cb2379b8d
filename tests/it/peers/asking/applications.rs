//! Applications that ask by `/v1/decide`: a dependency of FastAPI, a middleware of Express, and curl.

use super::{get, start_gateway};
use crate::harness::page_run::{PageRun, follow_page};
use crate::harness::tools;

/// Starts the two applications of the page.
fn start(page: &mut PageRun) {
    let port = page.address(8001).port().to_string();
    let mut uvicorn = tools::peer("uvicorn");
    page.program(uvicorn.args(["--port", &port, "--log-level", "error", "shop:app"]), 8001);
    page.program(tools::node_with_express().arg("shop.js"), 8002);
}

#[test]
fn the_recipe() {
    follow_page("docs/recipes/ask-applications.md", |page| {
        start_gateway(page);
        start(page);
        page.sessions()
    });
}

/// Each client has one allowance in both applications. What is no request, and a gateway that is gone, is refused.
#[test]
fn clients_of_applications_have_one_allowance() {
    follow_page("docs/recipes/ask-applications.md", |page| {
        start_gateway(page);
        start(page);
        let [python, node] = [8001, 8002].map(|port| page.address(port));
        let claims =
            "x-forwarded-for: 203.0.113.7\r\nx-real-ip: 203.0.113.7\r\nforwarded: for=203.0.113.7\r\n";
        let responses =
            [python, node, python, node, python].map(|to| get(2, to, "/orders?a=%2F&b=1", claims));
        let found = responses.map(|response| (response.status, response.header("retry-after").is_some()));
        let expected = [(200, false), (200, false), (200, false), (429, true), (429, true)];
        let mut faults: Vec<_> = (found != expected).then(|| format!("{found:?}")).into_iter().collect();
        page.kill_gateway();
        let alone = [python, node].map(|to| get(3, to, "/orders", "").status);
        faults.extend((alone != [503, 503]).then(|| format!("without a gateway: {alone:?}")));
        faults
    });
}
