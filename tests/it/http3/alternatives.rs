//! `alt-svc`, by which clients of TCP learn of HTTP/3.

use super::http3_config;
use crate::harness::{
    Authority, Backend, Client, Gateway, Http2, Next, everything_to, free_address, free_address_of_datagrams,
};

#[test]
fn clients_of_tcp_learn_of_http3_unless_a_route_says_otherwise() {
    let backend = Backend::start(|exchange| {
        exchange.write("HTTP/1.1 200 OK\r\nalt-svc: h3=\":1\"\r\ncontent-length: 2\r\n\r\nok");
        Next::KeepAlive
    });
    let authority = Authority::new();
    authority.certify("a", &["a.test"]);
    let (address, plain) = (free_address_of_datagrams(), free_address());
    let routes = "[[routes]]\npath = \"/clear\"\nupstream = \"api\"\nset_response_headers = { alt-svc = \"clear\" }\n\
        [[routes]]\npath = \"/none\"\nupstream = \"api\"\nremove_response_headers = [\"alt-svc\"]\n\
        [[routes]]\npath = \"/fixed\"\nrespond = { status = 200, body = \"ok\" }\n";
    let listen =
        format!("{{ address = \"{address}\", http3 = true }}, {{ address = \"{plain}\", tls = false }}");
    let config = http3_config(&authority, "", &everything_to(&backend, routes))
        .replace("{ address = \"127.0.0.1:0\", http3 = true }", &listen);
    let gateway = Gateway::start(&config);
    let own = format!("h3=\":{}\"; ma=3600", address.port());
    let http2 = Http2::connect_tls(address, &authority.client_offering(&["h2"]), "a.test");
    let mut http1 = Client::connect_tls(address, &authority.client(), "a.test");
    for (path, expected) in
        [("/", Some(&*own)), ("/fixed", Some(&*own)), ("/clear", Some("clear")), ("/none", None)]
    {
        let answer = http1.get(path, "").expect(200);
        assert_eq!(answer.header_all("alt-svc"), expected.into_iter().collect::<Vec<_>>(), "{path}");
        assert_eq!(http2.get(path).expect(200).header("alt-svc"), expected, "{path}");
    }
    // Without HTTP/3, the word of the backend passes: it may mean another port.
    let answer = Client::connect(gateway.addresses()[1]).get("/", "").expect(200);
    assert_eq!(answer.header_all("alt-svc"), ["h3=\":1\""]);
}
