//! The pages of `tests/migrate/` whose files are Traefik's or Caddy's: their requests beside these proxies.

use crate::harness::published::{Kind, Published};

fn play(name: &str) {
    Published::named(name).run_original(&[Kind::Traefik, Kind::Caddy]);
}

#[test]
fn traefik_authelia() {
    play("traefik-authelia");
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
