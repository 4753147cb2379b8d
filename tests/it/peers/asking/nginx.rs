//! nginx with `auth_request`.

use std::fs;

use super::{Asking, get, start_gateway};
use crate::harness::page_run::{PageRun, follow_page};
use crate::harness::tools;

pub(super) const NGINX: Asking = Asking {
    page: "ask-nginx.md",
    files: &["shop.conf"],
    start,
    admitted: &["ratelimit", "ratelimit-policy"],
    own_refusals: &[],
    same_body: false,
    alone: 503,
    refuses_connection: false,
};

/// The file of the page is one of `conf.d`. Around it stands what lets nginx run in a folder of the test's.
fn start(page: &mut PageRun) {
    let folders = ["client_body", "proxy", "fastcgi", "uwsgi", "scgi"];
    let folders = folders.map(|name| format!("{name}_temp_path {name};")).concat();
    let file = format!("events {{}}\nhttp {{ access_log off; {folders} include shop.conf; }}\n");
    fs::write(page.path("nginx.conf"), file).expect("it can be written");
    let prefix = page.path("");
    let mut nginx = tools::needed("nginx");
    nginx.args(["-e", "stderr", "-c", "nginx.conf", "-g", "daemon off; master_process off; pid nginx.pid;"]);
    page.program(nginx.arg("-p").arg(prefix), 8000);
}

#[test]
fn the_recipe() {
    NGINX.recipe();
}

#[test]
fn clients_of_nginx_see_what_clients_of_a_gateway_see() {
    NGINX.story();
}

/// The line of the page that lets requests pass: only while no gateway answers.
#[test]
fn nginx_passes_requests_without_a_gateway_if_it_is_told_to() {
    follow_page("docs/recipes/ask-nginx.md", |page| {
        page.edit("shop.conf", "# error_page 502 504 =", "error_page 502 504 =");
        let _front = NGINX.start_with_routes(page);
        let peer = page.address(8000);
        let statuses = |source| [(); 4].map(|()| get(source, peer, "/orders/1", "").status);
        let with = statuses(2);
        page.kill_gateway();
        let without = statuses(3);
        start_gateway(page);
        let again = statuses(4);
        let found = [with, without, again];
        let expected = [[200, 200, 200, 429], [200; 4], [200, 200, 200, 429]];
        (found != expected).then(|| format!("{found:?}, not {expected:?}")).into_iter().collect()
    });
}

/// A request that nginx redirects internally is asked about twice, as the page warns.
#[test]
fn an_index_page_costs_two_questions() {
    follow_page("docs/recipes/ask-nginx.md", |page| {
        fs::create_dir_all(page.path("pages/orders")).expect("a directory");
        fs::write(page.path("pages/orders/index.html"), "orders\n").expect("it can be written");
        let root = page.path("pages").display().to_string();
        let pages = format!("location /orders/ {{ root {root}; index index.html; }}\n    location / {{");
        page.edit("shop.conf", "location / {", &pages);
        let _front = NGINX.start_with_routes(page);
        let statuses = [(); 2].map(|()| get(2, page.address(8000), "/orders/", "").status);
        (statuses != [200, 429]).then(|| format!("{statuses:?}")).into_iter().collect()
    });
}
