//! Envoy with `ext_authz`. `envoy_limits` has the rate limit filter.

use super::{Asking, get};
use crate::harness::page_run::{PageRun, follow_page};
use crate::harness::tools;

pub(super) const ENVOY: Asking = Asking {
    page: "ask-envoy.md",
    files: &["authz.yaml", "ratelimit.yaml"],
    start,
    admitted: &[
        "ratelimit",
        "ratelimit-policy",
        "x-ratelimit-limit",
        "x-ratelimit-remaining",
        "x-ratelimit-reset",
    ],
    // Envoy takes each 5xx of the service for an error, and answers by itself.
    own_refusals: &[503],
    same_body: true,
    alone: 503,
    refuses_connection: true,
};

fn start(page: &mut PageRun) {
    for (file, port) in [("authz.yaml", 8000), ("ratelimit.yaml", 8001)] {
        let mut envoy = tools::peer("envoy");
        envoy.args(["--concurrency", "1", "--disable-hot-restart", "-l", "error", "-c", file]);
        page.program(&mut envoy, port);
    }
}

#[test]
fn the_recipe() {
    ENVOY.recipe();
}

#[test]
fn clients_of_envoy_see_what_clients_of_a_gateway_see() {
    ENVOY.story();
}

/// As the page says: with `failure_mode_allow: true` also refusals with 503 pass.
#[test]
fn envoy_passes_requests_without_a_gateway_if_it_is_told_to() {
    follow_page("docs/recipes/ask-envoy.md", |page| {
        page.edit("authz.yaml", "failure_mode_allow: false", "failure_mode_allow: true");
        let _front = ENVOY.start_with_routes(page);
        let peer = page.address(8000);
        let statuses = |source, target| [(); 4].map(|()| get(source, peer, target, "").status);
        let with = [statuses(2, "/orders/1"), statuses(2, "/busy/1")];
        page.kill_gateway();
        let without = statuses(3, "/orders/1");
        let expected = [[200, 200, 200, 429], [200; 4]];
        (with != expected || without != [200; 4])
            .then(|| format!("{with:?}, {without:?}"))
            .into_iter()
            .collect()
    });
}
