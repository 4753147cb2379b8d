//! Traefik with `forwardAuth`.

use super::{Asking, get};
use crate::harness::page_run::{PageRun, follow_page};
use crate::harness::{eventually, tools};

pub(super) const TRAEFIK: Asking = Asking {
    page: "ask-traefik.md",
    files: &["shop.yaml"],
    start,
    // Traefik passes on no header of an answer that admits.
    admitted: &[],
    own_refusals: &[],
    same_body: true,
    alone: 500,
    refuses_connection: false,
};

fn start(page: &mut PageRun) {
    page.program(tools::peer("traefik").arg("--configFile=traefik.yaml"), 8000);
    // It listens before it has read its routers.
    let has_routers = || get(19, page.address(8000), "/", "").body != b"404 page not found\n";
    eventually("Traefik has its routers", || has_routers().then_some(()));
}

#[test]
fn the_recipe() {
    TRAEFIK.recipe();
}

#[test]
fn clients_of_traefik_see_what_clients_of_a_gateway_see() {
    TRAEFIK.story();
}

/// With the page's file for a balancer: the client is the one whom the balancer names, and the request is the one
/// that came.
#[test]
fn behind_a_load_balancer_clients_have_allowances_of_their_own() {
    follow_page("docs/recipes/ask-traefik.md", |page| {
        let address = format!("address: {}", page.address(8000));
        let trusting = format!("{address}\n    forwardedHeaders: {{ trustedIPs: [127.0.0.9] }}");
        page.edit("traefik.yaml", &address, &trusting);
        page.edit("traefik.yaml", "shop.yaml", "balanced.yaml");
        let _front = TRAEFIK.start_with_routes(page);
        page.edit("gateway.toml", "[server]\n", "[server]\ntrusted_proxies = [\"127.0.0.9\"]\n");
        page.run("systemctl reload tollgate");
        let peer = page.address(8000);
        let claims = "x-forwarded-uri: /free/1\r\nx-forwarded-method: POST\r\nx-forwarded-for: 203.0.113.";
        let ask =
            |source, client: &str| get(source, peer, "/orders/1", &format!("{claims}{client}\r\n")).status;
        // The balancer's clients, and one that comes past the balancer and names itself otherwise each time.
        let found = ["1", "1", "1", "1", "2"].map(|client| ask(9, client));
        let past = ["3", "4", "5", "6"].map(|client| ask(8, client));
        let is_right = found == [200, 200, 200, 429, 200] && past == [200, 200, 200, 429];
        (!is_right).then(|| format!("{found:?}, {past:?}")).into_iter().collect()
    });
}
