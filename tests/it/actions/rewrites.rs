//! `rewrite`, and base paths of servers: the target that the backend gets.

use crate::harness::{Backend, Gateway, get};

/// Asks for each path, and compares the target that the backend gets; a status: the gateway answers.
fn check(routes: &str, rows: &[(&str, Result<&str, u16>)]) {
    let backend = Backend::ok();
    let toml = format!("[upstreams]\nb = \"{}\"\n{routes}", backend.url());
    let gateway = Gateway::start(&toml);
    for (path, expected) in rows {
        let answer = get(gateway.addr(), path);
        match expected {
            Ok(target) => {
                answer.expect(200);
                assert_eq!(backend.latest().target(), *target, "{path}");
            }
            Err(status) => {
                answer.expect(*status);
            }
        }
    }
    let forwarded = rows.iter().filter(|(_, expected)| expected.is_ok()).count();
    assert_eq!(backend.count(), forwarded);
}

#[test]
fn a_path_is_rewritten_with_its_parts_and_keeps_its_query() {
    let routes = "[[routes]]\npath = \"/users/{id}/posts/{post}\"\nrewrite = \"/v2/{post}/of/{id}\"\nupstream = \"b\"\n\
                  [[routes]]\npath = \"/files/*\"\nrewrite = \"/store/{*}\"\nupstream = \"b\"\n\
                  [[routes]]\npath = \"/all/{x}/*\"\nrewrite = \"/{*}\"\nupstream = \"b\"\n\
                  [[routes]]\npath = \"/fixed\"\nrewrite = \"/index.php\"\nupstream = \"b\"\n";
    check(
        routes,
        &[
            ("/users/5/posts/7", Ok("/v2/7/of/5")),
            ("/users/5/posts/7?a=b&c", Ok("/v2/7/of/5?a=b&c")),
            ("/users/5/posts/7?", Ok("/v2/7/of/5?")),
            ("/Users/Ab/POSTS/Cd/", Ok("/v2/Cd/of/Ab")),
            ("/users;v=1/5;x=1/posts/7", Ok("/v2/7/of/5;x=1")),
            ("/users/%41%2fb/posts/%7e", Ok("/v2/~/of/A%2Fb")),
            ("/users/x/../5//posts/7", Ok("/v2/7/of/5")),
            ("/files", Ok("/store")),
            ("/files?a=b", Ok("/store?a=b")),
            ("/files;p", Ok("/store")),
            ("/files/", Ok("/store/")),
            ("/files/a/b/?q", Ok("/store/a/b/?q")),
            ("/files;p/a;p/b", Ok("/store/a;p/b")),
            ("/all/x/a", Ok("/a")),
            ("/all/x", Ok("/")),
            ("/fixed?a=1", Ok("/index.php?a=1")),
            ("/users/5/posts", Err(404)),
        ],
    );
}

#[test]
fn a_query_of_the_target_replaces_the_requests_and_no_part_adds_a_parameter() {
    let routes = "[[routes]]\npath = \"/users/{id}\"\nrewrite = \"/user?id={id}&v=2\"\nupstream = \"b\"\n\
                  [[routes]]\npath = \"/search/*\"\nrewrite = \"/find?q={*}\"\nupstream = \"b\"\n";
    check(
        routes,
        &[
            ("/users/5", Ok("/user?id=5&v=2")),
            ("/users/5?id=6&admin=1", Ok("/user?id=5&v=2")),
            ("/users/5&admin=1+2;x", Ok("/user?id=5%26admin%3D1%2B2%3Bx&v=2")),
            ("/users/5%26a%3Db", Ok("/user?id=5%26a%3Db&v=2")),
            ("/search/a/b?c", Ok("/find?q=a/b")),
        ],
    );
}

#[test]
fn groups_of_a_regular_expression_are_parts_of_the_path() {
    let routes = "[[routes]]\npath = \"~^/v(?<major>[0-9]+)/([a-z]+)(/.*)?$\"\nrewrite = \"/{2}{3}?version={major}\"\nupstream = \"b\"\n";
    check(
        routes,
        &[
            ("/v2/users", Ok("/users?version=2")),
            ("/v10/users/a/B", Ok("/users/a/B?version=10")),
            ("/V2/Users/", Ok("/Users/?version=2")),
            ("/v/users", Err(404)),
        ],
    );
}

/// `.` and `.` are harmless apart, and a dot segment together.
#[test]
fn parts_that_form_another_path_together_are_refused() {
    let routes = "[[routes]]\npath = \"~^/(.)x(.)(.*)$\"\nrewrite = \"/data/{1}{2}{3}\"\nupstream = \"b\"\n\
                  [[routes]]\npath = \"/kept/*\"\nmerge_slashes = false\nrewrite = \"/k/{*}\"\nupstream = \"b\"\n";
    check(
        routes,
        &[
            ("/axb/c", Ok("/data/ab/c")),
            ("/.x./secret", Err(400)),
            ("/.x/secret", Err(400)),
            ("/ax%/b", Err(400)),
            ("/kept//a//b", Ok("/k//a//b")),
        ],
    );
}

#[test]
fn the_base_path_of_servers_stands_before_every_path() {
    let backend = Backend::ok();
    let routes = "[[routes]]\npath = \"/plain/*\"\nupstream = \"based\"\n\
                  [[routes]]\npath = \"/strip/*\"\nstrip_prefix = \"/strip\"\nupstream = \"based\"\n\
                  [[routes]]\npath = \"/re/*\"\nrewrite = \"/{*}?x\"\nupstream = \"slashed\"\n\
                  [[routes]]\npath = \"/root\"\nrewrite = \"/\"\nupstream = \"slashed\"\n";
    let url = backend.url();
    let toml = format!(
        "[upstreams]\nslashed = \"{url}/api/v1/\"\n[upstreams.based]\nservers = [\"{url}/api/v1\"]\n{routes}"
    );
    let gateway = Gateway::start(&toml);
    for (path, target) in [
        ("/plain/a?b=c", "/api/v1/plain/a?b=c"),
        ("/plain", "/api/v1/plain"),
        ("/strip", "/api/v1"),
        ("/strip?a=b", "/api/v1?a=b"),
        ("/Strip/", "/api/v1/"),
        ("/strip;x", "/api/v1"),
        ("/strip/a/../b?c", "/api/v1/b?c"),
        ("/re/a?c", "/api/v1/a?x"),
        ("/re?c", "/api/v1?x"),
        ("/re/", "/api/v1/?x"),
        ("/root", "/api/v1/"),
    ] {
        get(gateway.addr(), path).expect(200);
        assert_eq!(backend.latest().target(), target, "{path}");
    }
}

/// The prefix alone gets no slash that the client has not sent. Without a base path, its rest is the root.
#[test]
fn a_prefix_alone_gets_no_trailing_slash() {
    let routes = "[[routes]]\npath = \"/verify/*\"\nrewrite = \"/check/{*}\"\nupstream = \"b\"\n\
                  [[routes]]\npath = \"/deep/*\"\nrewrite = \"/a/{*}/b\"\nupstream = \"b\"\n\
                  [[routes]]\npath = \"/strip/*\"\nstrip_prefix = \"/strip\"\nupstream = \"b\"\n\
                  [[routes]]\npath = \"/old/*\"\nredirect = { to = \"https://example.com/new/{*}\" }\n\
                  [[routes]]\npath = \"/home/*\"\nredirect = { to = \"https://example.com/{*}\" }\n";
    check(
        routes,
        &[
            ("/verify", Ok("/check")),
            ("/verify/", Ok("/check/")),
            ("/verify/x/", Ok("/check/x/")),
            ("/deep/x", Ok("/a/x/b")),
            ("/strip", Ok("/")),
            ("/strip?a=b", Ok("/?a=b")),
        ],
    );
    let gateway = Gateway::start(&format!("[upstreams]\nb = \"http://127.0.0.1:1\"\n{routes}"));
    for (path, location) in [
        ("/old", "https://example.com/new"),
        ("/old?a=b", "https://example.com/new?a=b"),
        ("/old/", "https://example.com/new/"),
        ("/home", "https://example.com/"),
    ] {
        assert_eq!(get(gateway.addr(), path).expect(308).header("location"), Some(location), "{path}");
    }
}
