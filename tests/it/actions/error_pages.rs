//! `[errors]`: the bodies of errors that the gateway itself answers.

use crate::harness::{Backend, Gateway, get, send};

#[test]
fn errors_of_the_gateway_have_the_files_bodies() {
    let (away, _socket) = Backend::refusing();
    let gateway = Gateway::start(&format!(
        "[upstreams]\nb = \"http://{away}\"\n\
         [[routes]]\npath = \"/gone\"\nupstream = \"b\"\n\
         [[routes]]\npath = \"/limited\"\nrespond = {{}}\nlimits = [\"none\"]\n\
         [[routes]]\npath = \"/own\"\nrespond = {{}}\nlimits = [\"none\"]\nreject = {{ body = \"own\" }}\n\
         [[routes]]\npath = \"/deny\"\nrespond = {{}}\ndeny = [\"127.0.0.0/8\"]\n\
         [limits.none]\nalgorithm = \"token-bucket\"\nkey = \"header:x-key\"\nmissing = \"deny\"\nrate = \"1/day\"\n\
         [errors]\n400 = {{ body = \"bad\" }}\n\
         404 = {{ body = '<p title=\"{{path}}\">{{host}} {{route}}</p>', content_type = \"text/html\" }}\n\
         502 = {{ body = '{{\"error\":\"{{route}}\",\"id\":\"{{request_id}}\"}}', content_type = \"application/json\" }}\n\
         429 = {{ body = \"{{limit}}\" }}\n"
    ));
    let answer = get(gateway.addr(), "/\"<script>").expect(404);
    assert_eq!(answer.text(), "<p title=\"/&quot;&lt;script&gt;\">test </p>");
    assert_eq!(
        (answer.header("content-type"), answer.header("cache-control")),
        (Some("text/html"), Some("no-store"))
    );
    let answer = get(gateway.addr(), "/gone").expect(502);
    let id = answer.header("x-request-id").expect("an id").to_owned();
    assert_eq!((&answer.json()["error"], &answer.json()["id"]), (&"/gone".into(), &id.into()));
    let answer = get(gateway.addr(), "/limited").expect(429);
    assert_eq!(
        (answer.text().as_str(), answer.header("content-type")),
        ("none", Some("text/plain; charset=utf-8"))
    );
    assert_eq!(get(gateway.addr(), "/own").expect(429).text(), "own", "the route's form comes first");
    let answer = get(gateway.addr(), "/deny").expect(403);
    assert_eq!(answer.header("content-type"), Some("application/problem+json"), "there is no page of 403");
    for bytes in ["GET /a%zz HTTP/1.1\r\nhost: a\r\n\r\n", "nonsense\r\n\r\n"] {
        assert_eq!(send(gateway.addr(), bytes).expect(400).text(), "bad");
    }
    let head = send(gateway.addr(), "HEAD /none HTTP/1.1\r\nhost: test\r\n\r\n").expect(404);
    assert_eq!(head.text(), "");
}

#[test]
fn errors_of_backends_stay_theirs() {
    let backend = Backend::answering("HTTP/1.1 404 Not Found\r\ncontent-length: 4\r\n\r\nmine");
    let gateway = Gateway::start(&format!(
        "[upstreams]\nb = \"{}\"\n[[routes]]\npath = \"/*\"\nupstream = \"b\"\n[errors]\n404 = {{ body = \"gateway\" }}\n",
        backend.url()
    ));
    assert_eq!(get(gateway.addr(), "/a").expect(404).text(), "mine");
}
