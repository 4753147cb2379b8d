//! Values of the request in refusals, answers and headers.

use crate::harness::{Backend, Gateway, get_with};

const FORWARDED: &str = "x-forwarded-for: 203.0.113.9\r\nx-request-id: from-proxy\r\n";

#[test]
fn headers_for_the_backend_and_the_client_have_values_of_the_request() {
    let backend = Backend::ok();
    let gateway = Gateway::start(&format!(
        "[server]\ntrusted_proxies = [\"127.0.0.0/8\"]\n[upstreams]\nb = \"{}\"\n\
         [[routes]]\nname = \"users\"\npath = \"/users/*\"\nupstream = \"b\"\n\
         set_request_headers = {{ x-seen = \"{{client}} {{host}}{{path}} {{route}}\", x-id = \"{{request_id}}\", x-text = \"{{{{route}}}} {{ a }}\" }}\n\
         set_response_headers = {{ x-echo = \"{{path}}|{{limit}}|{{retry_after}}|{{consumer}}\" }}\n",
        backend.url()
    ));
    let answer = get_with(gateway.addr(), "/users//./a%2f%41?q=1", FORWARDED).expect(200);
    let seen = backend.only();
    assert_eq!(seen.header("x-seen").as_deref(), Some("203.0.113.9 test/users/a%2FA users"));
    assert_eq!(seen.header("x-id").as_deref(), Some("from-proxy"));
    assert_eq!(seen.header("x-request-id").as_deref(), Some("from-proxy"));
    assert_eq!(seen.header("x-text").as_deref(), Some("{route} { a }"));
    assert_eq!(answer.header("x-echo"), Some("/users/a%2FA|||"));
}

#[test]
fn refusals_have_values_escaped_for_their_media_type() {
    let gateway = Gateway::start(
        "[server]\ntrusted_proxies = [\"127.0.0.0/8\"]\n\
         [[routes]]\nname = \"json\"\npath = \"/json/*\"\nrespond = {}\nlimits = [\"keyed\"]\n\
         reject = { status = 403, content_type = \"application/json\", \
         body = '{\"why\":\"{limit}\",\"path\":\"{path}\",\"client\":\"{client}\",\"wait\":\"{retry_after}\"}', \
         headers = { x-id = \"{request_id}\", x-path = \"{path}\" } }\n\
         [[routes]]\npath = \"/plain\"\nrespond = {}\nlimits = [\"small\"]\n\
         [limits.keyed]\nalgorithm = \"token-bucket\"\nkey = \"header:x-key\"\nmissing = \"deny\"\nrate = \"1/min\"\n\
         [limits.small]\nalgorithm = \"token-bucket\"\nkey = \"ip\"\nrate = \"1/min\"\n\
         reject = { body = \"{limit}: {retry_after} s\" }\n",
    );
    let answer = get_with(gateway.addr(), "/json/%22\"<a>&\\u0041", FORWARDED);
    // A backslash is no part of a path.
    answer.expect(400);
    let answer = get_with(gateway.addr(), "/json/%22\"<a>&", FORWARDED).expect(403);
    let json = answer.json();
    assert_eq!((&json["path"], &json["client"]), (&"/json/%22\"<a>&".into(), &"203.0.113.9".into()));
    assert_eq!((&json["why"], &json["wait"]), (&"keyed".into(), &"".into()), "the request lacks the key");
    assert_eq!(answer.header("x-id"), Some("from-proxy"));
    assert_eq!(answer.header("x-path"), Some("/json/%22\"<a>&"));
    get_with(gateway.addr(), "/plain", FORWARDED).expect(200);
    let answer = get_with(gateway.addr(), "/plain", FORWARDED).expect(429);
    let wait = answer.header("retry-after").expect("a wait").to_owned();
    assert_eq!(answer.text(), format!("small: {wait} s"));
}

/// The limit is the one that the rate-limit headers describe, also where these are off.
#[test]
fn admitted_responses_name_their_limit() {
    let backend = Backend::ok();
    for ratelimit_headers in ["both", "off"] {
        let gateway = Gateway::start(&format!(
            "[server]\nratelimit_headers = \"{ratelimit_headers}\"\n[upstreams]\nb = \"{}\"\n\
             [[routes]]\npath = \"/forwarded\"\nupstream = \"b\"\nlimits = [\"wide\"]\n\
             set_response_headers = {{ x-limit = \"{{limit}}\" }}\nset_request_headers = {{ x-limit = \"<{{limit}}>\" }}\n\
             [[routes]]\npath = \"/answered\"\nrespond = {{ body = \"{{limit}}\" }}\nlimits = [\"wide\"]\n\
             set_response_headers = {{ x-limit = \"{{limit}}\" }}\n\
             [limits.wide]\nalgorithm = \"token-bucket\"\nkey = \"ip\"\nrate = \"1000/s\"\n",
            backend.url()
        ));
        let answer = get_with(gateway.addr(), "/forwarded", "").expect(200);
        assert_eq!(answer.header("x-limit"), Some("wide"), "{ratelimit_headers}");
        assert_eq!(backend.latest().header("x-limit").as_deref(), Some("<>"));
        let answer = get_with(gateway.addr(), "/answered", "").expect(200);
        assert_eq!((answer.header("x-limit"), answer.text().as_str()), (Some("wide"), "wide"));
    }
}

/// The value of a trusted proxy's request id is put into texts, too.
#[test]
fn no_value_breaks_out_of_its_text() {
    let gateway = Gateway::start(
        "[server]\ntrusted_proxies = [\"127.0.0.0/8\"]\n[[routes]]\npath = \"/json\"\n\
         respond = { body = '{\"id\":\"{request_id}\",\"host\":\"{host}\"}', content_type = \"application/problem+json\" }\n\
         [[routes]]\npath = \"/html\"\nrespond = { body = \"<p>{request_id}</p>\", content_type = \"text/html\" }\n",
    );
    let fields = "x-request-id: a\"b\\c</script>\u{e9}\r\n";
    let answer = get_with(gateway.addr(), "/json", fields).expect(200);
    assert_eq!(answer.json()["id"], "a\"b\\c</script>\u{e9}");
    let answer = get_with(gateway.addr(), "/html", fields).expect(200);
    assert_eq!(answer.text(), "<p>a&quot;b\\c&lt;/script&gt;\u{e9}</p>");
}

#[test]
fn the_consumer_and_its_tier_are_values() {
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("consumers.csv");
    std::fs::write(&file, "key,name,tier\nsecret-key-1234567890,acme,gold\n").expect("it is written");
    let gateway = Gateway::start(&format!(
        "[[routes]]\npath = \"/a\"\nrespond = {{ body = \"{{consumer}} {{tier}}\" }}\nauth = \"keys\"\nauth_optional = true\n\
         [auth.keys]\ntype = \"api-key\"\nfrom = \"header:x-api-key\"\nfile = \"{}\"\n",
        file.display()
    ));
    let answer = get_with(gateway.addr(), "/a", "x-api-key: secret-key-1234567890\r\n").expect(200);
    assert_eq!(answer.text(), "acme gold");
    assert_eq!(get_with(gateway.addr(), "/a", "").expect(200).text(), " ");
}
