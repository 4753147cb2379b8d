//! `redirect = { to = "…" }`.

use serde_json::Value;

use crate::harness::{AllVersions, Gateway, get, h2_get, send};

const LIMITED: &str = "limits = [\"two\"]\n\
    [limits.two]\nalgorithm = \"fixed-window\"\nkey = \"ip\"\nrate = \"2/day\"\nalign = \"first-request\"\n";

#[test]
fn clients_are_redirected_with_the_parts_of_their_path() {
    let gateway = Gateway::start(
        "[[routes]]\npath = \"/old/*\"\nredirect = { to = \"https://new.example.com/{*}\", status = 301 }\n\
         [[routes]]\npath = \"/u/{id}\"\nredirect = { to = \"/users?id={id}\" }\n\
         [[routes]]\npath = \"~^/(en|de)/(.*)$\"\nredirect = { to = \"https://new.example.com/{2}?lang={1}\", status = 302 }\n\
         [[routes]]\npath = \"/host\"\nredirect = { to = \"http://[2001:db8::1]:8080\", status = 307 }\n",
    );
    for (path, status, location) in [
        ("/old/a/b?c=d", 301, "https://new.example.com/a/b?c=d"),
        ("/old", 301, "https://new.example.com/"),
        ("/OLD/A/", 301, "https://new.example.com/A/"),
        ("/de/a/b?c", 302, "https://new.example.com/a/b?lang=de"),
        ("/u/a&b?c", 308, "/users?id=a%26b"),
        ("/host?x", 307, "http://[2001:db8::1]:8080?x"),
    ] {
        let answer = get(gateway.addr(), path).expect(status);
        assert_eq!(answer.header("location"), Some(location), "{path}");
        assert_eq!((answer.header("content-length"), answer.text().as_str()), (Some("0"), ""));
        assert!(answer.header("x-request-id").is_some());
    }
}

#[test]
fn no_path_redirects_to_another_host() {
    let gateway = Gateway::start(
        "[[routes]]\npath = \"/r/*\"\nmerge_slashes = false\nredirect = { to = \"/{*}\" }\n\
         [[routes]]\npath = \"/s/*\"\nmerge_slashes = false\nredirect = { to = \"https://a.test/{*}\" }\n",
    );
    for (path, location) in [
        ("/r//evil.test/x", "/evil.test/x"),
        ("/r////evil.test", "/evil.test"),
        ("/r/%2f%2fevil.test", "/%2F%2Fevil.test"),
        ("/s//evil.test", "https://a.test//evil.test"),
        ("/s/@evil.test", "https://a.test/@evil.test"),
        ("/s/a%0d%0aset-cookie:x", "https://a.test/a%0D%0Aset-cookie:x"),
    ] {
        let answer = get(gateway.addr(), path).expect(308);
        assert_eq!(answer.header("location"), Some(location), "{path}");
    }
}

/// A key of the query is for this gateway: only a route with `forward_credentials` tells it to another host.
#[test]
fn a_redirect_to_another_host_has_no_credential() {
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("consumers.csv");
    std::fs::write(&file, "key,name,tier\nsecret-key-1234567890,acme,gold\n").expect("it is written");
    let gateway = Gateway::start(&format!(
        "[[routes]]\npath = \"/away/*\"\nauth = \"keys\"\nredirect = {{ to = \"https://a.test/{{*}}\" }}\n\
         [[routes]]\npath = \"/told/*\"\nauth = \"keys\"\nforward_credentials = true\nredirect = {{ to = \"https://a.test/{{*}}\" }}\n\
         [[routes]]\npath = \"/here/*\"\nauth = \"keys\"\nredirect = {{ to = \"/{{*}}\" }}\n\
         [auth.keys]\ntype = \"api-key\"\nfrom = \"query:key\"\nfile = \"{}\"\n",
        file.display()
    ));
    for (path, location) in [
        ("/away/x?a=1&key=secret-key-1234567890&b", "https://a.test/x?a=1&b"),
        ("/away/x?k%65y=secret-key-1234567890", "https://a.test/x"),
        ("/told/x?key=secret-key-1234567890", "https://a.test/x?key=secret-key-1234567890"),
        ("/here/x?key=secret-key-1234567890", "/x?key=secret-key-1234567890"),
    ] {
        let answer = get(gateway.addr(), path).expect(308);
        assert_eq!(answer.header("location"), Some(location), "{path}");
    }
    get(gateway.addr(), "/away/x").expect(401);
}

#[test]
fn a_redirect_costs_what_its_route_says_and_reads_the_body() {
    let toml = format!("[[routes]]\npath = \"/a\"\nredirect = {{ to = \"/b\" }}\n{LIMITED}");
    let gateway = Gateway::start(&toml);
    let answer = get(gateway.addr(), "/a").expect(308);
    assert_eq!(answer.header("ratelimit"), Some("\"two\";r=1;t=86400"));
    let post = "POST /a HTTP/1.1\r\nhost: a\r\ncontent-length: 4\r\n\r\nbody";
    assert!(!send(gateway.addr(), post).expect(308).closed);
    get(gateway.addr(), "/a").expect(429);
    let lines = gateway.access_log(3);
    assert_eq!(
        (&lines[0]["status"], &lines[0]["upstream"], &lines[0]["error"]),
        (&308.into(), &Value::Null, &Value::Null)
    );
    assert_eq!(lines[1]["bytes_in"], 4);
}

#[test]
fn redirects_and_answers_are_the_same_over_http2_and_http3() {
    let gateway = AllVersions::start(
        "[[routes]]\npath = \"/old/*\"\nredirect = { to = \"/new/{*}\" }\n\
         [[routes]]\npath = \"/page\"\nrespond = { status = 503, body = \"down\", headers = { retry-after = \"7\" } }\n\
         [[routes]]\npath = \"/none\"\nrespond = { status = 204 }\n[errors]\n404 = { body = \"no {path}\" }\n",
    );
    for client in gateway.clients() {
        let answer = client.get("/old/a?b").expect(308);
        assert_eq!(answer.header("location"), Some("/new/a?b"));
        let answer = client.get("/page").expect(503);
        assert_eq!((&answer.body[..], answer.header("retry-after")), (&b"down"[..], Some("7")));
        let answer = client.get("/none").expect(204);
        assert_eq!((answer.body.len(), answer.header("content-length")), (0, None));
        let answer = client.exchange(h2_get("/other"), &b""[..]).expect("an answer").expect(404);
        assert_eq!(&answer.body[..], b"no /other");
    }
}
