//! The pages of `tests/migrate/`: what `check` says of them, and what becomes of their requests: at the gateway, and at
//! nginx or HAProxy with the page's own file. `peers::published` has Traefik and Caddy.

use std::ffi::OsString;

use crate::harness::Client;
use crate::harness::pages::root;
use crate::harness::published::{ALL, Kind, Published, check};

/// What stands above the lines that people write in vain.
const BASE: &str =
    "[upstreams]\na = \"http://127.0.0.1:9001\"\n[[routes]]\npath = \"/*\"\nupstream = \"a\"\n";

/// All of the counterparts are good, but for the warnings that the page has. What people write in vain is answered with
/// what stands for it.
#[test]
fn check_says_what_the_pages_say() {
    let mut faults = Vec::new();
    for published in ALL {
        let page = published.page();
        let folder = published.folder(&page);
        let mut asked = String::new();
        let mut answered = 0;
        for block in page.blocks() {
            match block.info.as_str() {
                "toml" => asked = check(&folder, &block.text),
                "toml refused" => asked = check(&folder, &format!("{BASE}{}", block.text)),
                "text check" | "text answer" => {
                    answered += 1;
                    if asked != block.text.trim() {
                        faults.push(format!("{}: `check` says\n{asked}", block.place()));
                    }
                }
                _ => {}
            }
        }
        let refused = page.blocks().iter().filter(|block| block.info == "toml refused").count();
        assert_eq!(answered, refused + 1, "{}: each block has its answer", page.path);
    }
    assert!(faults.is_empty(), "{}", faults.join("\n\n"));
}

#[test]
fn each_page_has_its_test() {
    let files = std::fs::read_dir(root().join("tests/migrate")).expect("it is there");
    let names = files.map(|file| file.expect("it can be listed").file_name());
    let is_page = |name: &OsString| name.to_string_lossy().ends_with(".md");
    let mut found: Vec<_> = names.filter(is_page).collect();
    let known = ALL.iter().map(|published| format!("{}.md", published.name).into());
    let mut known: Vec<OsString> = known.collect();
    found.sort();
    known.sort();
    assert_eq!(found, known);
}

/// A page whose file is not found would be played at the gateway only. Kong does not run in tests.
#[test]
fn the_files_of_other_proxies_are_found() {
    for published in ALL {
        let is_kong = published.name.contains("kong");
        assert_eq!(published.kind().is_none(), is_kong, "{}", published.name);
    }
}

/// The requests of a page at the gateway, and at nginx or HAProxy.
fn play(name: &str) {
    let published = Published::named(name);
    published.run();
    published.run_original(&[Kind::Nginx, Kind::Haproxy]);
}

#[test]
fn open_food_facts() {
    play("open-food-facts");
}

#[test]
fn haproxy_maps() {
    let running = Published::named("haproxy-maps").run();
    // `conn_cur gt 20`: the next connection of the address is refused.
    let connect = || Client::connect_from([127, 0, 0, 20].into(), running.addr());
    let mut held: Vec<_> = (0..20).map(|_| connect()).collect();
    for client in &mut held {
        client.write("GET / HTTP/1.1\r\nhost: other.test\r\n\r\n");
        client.read().expect(404);
    }
    connect().read().expect(503);
    play("haproxy-maps");
}

#[test]
fn traefik_authelia() {
    play("traefik-authelia");
}

#[test]
fn supabase_kong() {
    play("supabase-kong");
}

#[test]
fn caddy_rate_limit() {
    play("caddy-rate-limit");
}

#[test]
fn nginx_mastodon() {
    play("nginx-mastodon");
}

#[test]
fn nginx_api_keys() {
    play("nginx-api-keys");
}

#[test]
fn haproxy_cloud_foundry() {
    play("haproxy-cloud-foundry");
}

#[test]
fn haproxy_couchdb() {
    play("haproxy-couchdb");
}

#[test]
fn traefik_lottery() {
    play("traefik-lottery");
}

#[test]
fn traefik_mirror_node() {
    play("traefik-mirror-node");
}

#[test]
fn caddy_netbird() {
    play("caddy-netbird");
}

#[test]
fn caddy_sticky() {
    play("caddy-sticky");
}

#[test]
fn kong_journals() {
    play("kong-journals");
}

#[test]
fn kong_clinic() {
    play("kong-clinic");
}
