//! `set_response_headers` of `[server]`: every answer has them.

use crate::harness::{AllVersions, Backend, Client, Next};

const HEADER: &str = "strict-transport-security";
const VALUE: &str = "max-age=600";

fn gateway(backend: &Backend) -> AllVersions {
    let url = backend.url();
    AllVersions::start(&format!(
        "[server]\nset_response_headers = {{ {HEADER} = \"{VALUE}\", x-frame-options = \"DENY\" }}\n\
         [upstreams]\napi = \"{url}\"\ngone = \"http://127.0.0.1:1\"\n\
         [limits.none]\nalgorithm = \"fixed-window\"\nkey = \"ip\"\nrate = \"1/h\"\n\
         [[routes]]\npath = \"/here\"\nupstream = \"api\"\n\
         [[routes]]\npath = \"/own\"\nupstream = \"api\"\nset_response_headers = {{ x-frame-options = \"SAMEORIGIN\" }}\n\
         [[routes]]\npath = \"/without\"\nupstream = \"api\"\nremove_response_headers = [\"{HEADER}\"]\n\
         [[routes]]\npath = \"/limited\"\nupstream = \"api\"\nlimits = [\"none\"]\n\
         [[routes]]\npath = \"/rejected\"\nupstream = \"api\"\nlimits = [\"none\"]\n\
         reject = {{ status = 503, headers = {{ x-frame-options = \"SAMEORIGIN\" }} }}\n\
         [[routes]]\npath = \"/gone\"\nupstream = \"gone\"\n\
         [[routes]]\npath = \"/moved\"\nredirect = {{ to = \"/here\" }}\n\
         [[routes]]\npath = \"/fixed\"\nrespond = {{ status = 200, body = \"ok\" }}\n\
         [[routes]]\npath = \"/secure\"\nredirect = \"https\"\nupstream = \"api\"\n\
         [[routes]]\npath = \"/denied\"\nupstream = \"api\"\ndeny = [\"127.0.0.0/8\"]\n"
    ))
}

#[test]
fn every_answer_has_the_headers_of_the_server() {
    let backend = Backend::start(|exchange| {
        exchange
            .write("HTTP/1.1 200 OK\r\ncontent-length: 2\r\nstrict-transport-security: max-age=1\r\n\r\nok");
        Next::KeepAlive
    });
    let gateway = gateway(&backend);
    Client::connect(gateway.addr()).get("/limited", "").expect(200);
    for (request, status) in [
        ("GET /here HTTP/1.1\r\nhost: test\r\n\r\n", 200),
        ("GET /limited HTTP/1.1\r\nhost: test\r\n\r\n", 429),
        ("GET /rejected HTTP/1.1\r\nhost: test\r\n\r\n", 503),
        ("GET /gone HTTP/1.1\r\nhost: test\r\n\r\n", 502),
        ("GET /moved HTTP/1.1\r\nhost: test\r\n\r\n", 308),
        ("GET /secure HTTP/1.1\r\nhost: test\r\n\r\n", 308),
        ("GET /fixed HTTP/1.1\r\nhost: test\r\n\r\n", 200),
        ("GET /denied HTTP/1.1\r\nhost: test\r\n\r\n", 403),
        ("GET /elsewhere HTTP/1.1\r\nhost: test\r\n\r\n", 404),
        ("OPTIONS * HTTP/1.1\r\nhost: test\r\n\r\n", 200),
        ("TRACE /here HTTP/1.1\r\nhost: test\r\n\r\n", 405),
        ("GET /%zz HTTP/1.1\r\nhost: test\r\n\r\n", 400),
        ("nonsense\r\n\r\n", 400),
    ] {
        let response = Client::connect(gateway.addr()).exchange(request);
        let response = response.expect(status);
        assert_eq!(response.header_all(HEADER), [VALUE], "{request}: {}", response.head);
        let frame = if request.contains("/rejected") { "SAMEORIGIN" } else { "DENY" };
        assert_eq!(response.header_all("x-frame-options"), [frame], "{request}: {}", response.head);
    }
    for client in gateway.clients() {
        for (path, status) in [("/here", 200), ("/limited", 429), ("/elsewhere", 404)] {
            let answer = client.get(path).expect(status);
            assert_eq!(
                (answer.header(HEADER), answer.header("x-frame-options")),
                (Some(VALUE), Some("DENY"))
            );
        }
    }
}

/// The refusals of a flood are written from a text that is kept.
#[test]
fn each_refusal_of_a_flood_has_them_once() {
    let backend = Backend::ok();
    let gateway = gateway(&backend);
    let mut client = Client::connect(gateway.addr());
    client.get("/limited", "").expect(200);
    for _ in 0..5 {
        let response = client.get("/limited", "");
        let response = response.expect(429);
        assert_eq!(response.header_all(HEADER), [VALUE], "{}", response.head);
    }
}

#[test]
fn the_edits_of_a_route_win_in_what_its_upstream_answers() {
    let backend = Backend::ok();
    let gateway = gateway(&backend);
    let mut client = Client::connect(gateway.addr());
    let response = client.get("/own", "");
    assert_eq!(response.header_all("x-frame-options"), ["SAMEORIGIN"], "{}", response.head);
    assert_eq!(response.header_all(HEADER), [VALUE], "{}", response.head);
    assert_eq!(client.get("/without", "").header(HEADER), None);
}
