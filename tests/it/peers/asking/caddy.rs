//! Caddy with `forward_auth`, written out.

use super::{Asking, get};
use crate::harness::page_run::{PageRun, follow_page};
use crate::harness::tools;

pub(super) const CADDY: Asking = Asking {
    page: "ask-caddy.md",
    files: &["Caddyfile"],
    start,
    admitted: &["ratelimit", "ratelimit-policy"],
    own_refusals: &[],
    same_body: true,
    alone: 502,
    refuses_connection: false,
};

fn start(page: &mut PageRun) {
    // A port of the page is reserved at the loopback address only.
    let site = format!("http://:{} {{", page.address(8000).port());
    page.edit("Caddyfile", &site, &format!("{site}\n\tbind 127.0.0.1"));
    let home = page.path("home");
    let mut caddy = tools::peer("caddy");
    // Its files and its admin API are of this test only.
    caddy
        .env("HOME", &home)
        .env("XDG_DATA_HOME", &home)
        .env("XDG_CONFIG_HOME", &home)
        .env("CADDY_ADMIN", "localhost:0");
    page.program(caddy.args(["run", "--config", "Caddyfile"]), 8000);
}

#[test]
fn the_recipe() {
    CADDY.recipe();
}

#[test]
fn clients_of_caddy_see_what_clients_of_a_gateway_see() {
    CADDY.story();
}

/// The line of the page that lets requests pass.
#[test]
fn caddy_passes_requests_without_a_gateway_if_it_is_told_to() {
    follow_page("docs/recipes/ask-caddy.md", |page| {
        let (peer, backend) = (page.address(8000), page.address(9001));
        let site = format!("http://:{} {{", peer.port());
        page.edit(
            "Caddyfile",
            &site,
            &format!("{site}\n\thandle_errors 502 {{\n\t\treverse_proxy {backend}\n\t}}"),
        );
        let _front = CADDY.start_with_routes(page);
        let statuses = |source| [(); 4].map(|()| get(source, peer, "/orders/1", "").status);
        let with = statuses(2);
        page.kill_gateway();
        let without = statuses(3);
        let is_right = with == [200, 200, 200, 429] && without == [200; 4];
        (!is_right).then(|| format!("{with:?}, {without:?}")).into_iter().collect()
    });
}
