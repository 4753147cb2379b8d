//! `compress` of `[server]`, of sets and of routes.

use crate::harness::config::parse;
use crate::harness::{Backend, Gateway, get_with};

fn coding(gateway: &Gateway, path: &str, accepted: &str) -> Option<String> {
    let answer = get_with(gateway.addr(), path, &format!("accept-encoding: {accepted}\r\n")).expect(200);
    answer.header("content-encoding").map(str::to_owned)
}

#[test]
fn a_route_has_the_settings_of_the_server_unless_it_has_its_own() {
    let backend = Backend::answering(format!(
        "HTTP/1.1 200 OK\r\ncontent-type: text/x-log\r\ncontent-length: 2000\r\n\r\n{}",
        "a".repeat(2_000)
    ));
    let all = "zstd, br, gzip";
    let toml = format!(
        "[server]\nlisten = [\"127.0.0.1:0\"]\ncompress = {{ types = [\"text/*\"], encodings = [\"gzip\", \"br\"] }}\n\
         [upstreams]\napi = \"{}\"\n[sets.zstd]\ncompress = {{ types = [\"text/x-log\"], encodings = [\"zstd\"] }}\n\
         [[routes]]\npath = \"/*\"\nupstream = \"api\"\n\
         [[routes]]\npath = \"/off\"\nupstream = \"api\"\ncompress = false\n\
         [[routes]]\npath = \"/default\"\nupstream = \"api\"\ncompress = true\n\
         [[routes]]\npath = \"/long\"\nupstream = \"api\"\ncompress = {{ types = [\"text/*\"], min = 2001 }}\n\
         [[routes]]\npath = \"/exactly\"\nupstream = \"api\"\ncompress = {{ types = [\"text/*\"], min = 2000 }}\n\
         [[routes]]\npath = \"/set\"\nuse = [\"zstd\"]\nupstream = \"api\"\n",
        backend.url()
    );
    let gateway = Gateway::start(&toml);
    assert_eq!(coding(&gateway, "/", all).as_deref(), Some("gzip"), "the first of the file");
    assert_eq!(coding(&gateway, "/", "zstd"), None);
    assert_eq!(coding(&gateway, "/off", all), None);
    assert_eq!(coding(&gateway, "/default", all), None, "text/x-log is not among the default types");
    assert_eq!(coding(&gateway, "/long", all), None);
    assert_eq!(coding(&gateway, "/exactly", all).as_deref(), Some("zstd"));
    assert_eq!(coding(&gateway, "/set", all).as_deref(), Some("zstd"));
    let off = toml.replace("types = [\"text/*\"], encodings", "types = [\"text/css\"], encodings");
    gateway.reload(&off, "compress");
    assert_eq!(coding(&gateway, "/", all), None, "after a reload");
}

#[test]
fn media_types_are_patterns() {
    let reads = |types: &str| {
        let route = "[upstreams]\na = \"http://127.0.0.1:1\"\n[[routes]]\npath = \"/*\"\nupstream = \"a\"";
        parse(format!("{route}\ncompress = {{ types = [{types}] }}\n")).is_ok()
    };
    for sound in [
        "\"text/html\"",
        "\"TEXT/*\"",
        "\"application/*+json\"",
        "\"application/vnd.api+json\", \"font/ttf\"",
    ] {
        assert!(reads(sound), "{sound}");
    }
    for unsound in [
        "",
        "\"*\"",
        "\"*/*\"",
        "\"text\"",
        "\"text/\"",
        "\"/html\"",
        "\"text/html; charset=utf-8\"",
        "\"text/h*\"",
        "\"text/*json\"",
        "\"text/html\", \"text/html\"",
        "1",
    ] {
        assert!(!reads(unsound), "{unsound}");
    }
}
