//! The lines of the program log in the documents are lines that a gateway logs. In these blocks `10.0.0.…` stands for the
//! servers of the test, and `…` for any characters.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use crate::harness::pages::{Page, line_matches, pages};
use crate::harness::{Backend, Gateway, Next, Redis, eventually};

#[test]
fn docs_lines_of_the_program_log_are_logged() {
    let blocks = pages().iter().flat_map(Page::blocks).collect::<Vec<_>>();
    let logs = blocks.iter().filter(|block| block.info == "text program log");
    let shown: Vec<_> = logs.flat_map(|block| block.text.lines()).collect();
    assert!(shown.len() >= 7, "{shown:?}");
    let logged = [refused_and_back(), without_response(), unhealthy(), store_lost_and_back()].concat();
    let unknown: Vec<_> =
        shown.iter().filter(|line| !logged.iter().any(|logged| line_matches(line, logged))).collect();
    assert!(unknown.is_empty(), "not logged: {unknown:#?}\nlogged: {logged:#?}");
}

/// One server, which refuses connections and then serves.
fn refused_and_back() -> Vec<String> {
    let (address, socket) = Backend::refusing();
    let gateway = Gateway::start(&upstream(&[address], ""));
    wait_for(&gateway, "is down", || _ = gateway.get("/"));
    socket.listen(16).expect("a listener");
    let listener = std::net::TcpListener::from(socket);
    std::thread::spawn(move || {
        for mut stream in listener.incoming().flatten() {
            let _ = std::io::Write::write_all(&mut stream, b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n");
        }
    });
    wait_for(&gateway, "is up again", || _ = gateway.get("/"));
    lines(&gateway, address, "10.0.0.1:9000")
}

/// Two servers, of which one does not respond.
fn without_response() -> Vec<String> {
    let hanging = Backend::start(|exchange| {
        exchange.hang();
        Next::Close
    });
    let good = Backend::ok();
    let gateway = Gateway::start(&upstream(&[good.addr(), hanging.addr()], ""));
    wait_for(&gateway, "is down and is ejected", || _ = gateway.get("/"));
    lines(&gateway, hanging.addr(), "10.0.0.2:9000")
}

/// Two servers, of which one fails its health checks for a time.
fn unhealthy() -> Vec<String> {
    let status = Arc::new(AtomicUsize::new(500));
    let answered = Arc::clone(&status);
    let sick = Backend::start(move |exchange| {
        exchange.read_body();
        let status = answered.load(Ordering::SeqCst);
        exchange.write(format!("HTTP/1.1 {status} Status\r\ncontent-length: 0\r\n\r\n"));
        Next::KeepAlive
    });
    let good = Backend::ok();
    let health = "health = { path = \"/\", interval = \"20ms\", timeout = \"5s\" }";
    let gateway = Gateway::start(&upstream(&[good.addr(), sick.addr()], health));
    wait_for(&gateway, "is unhealthy", || ());
    status.store(200, Ordering::SeqCst);
    wait_for(&gateway, "is healthy again", || ());
    lines(&gateway, sick.addr(), "10.0.0.2:9000")
}

/// A Redis server that starts after the gateway.
fn store_lost_and_back() -> Vec<String> {
    let mut redis = Redis::start();
    // Its port stays known.
    redis.kill();
    let gateway = Gateway::start(&format!(
        "[store]\nbackend = \"redis\"\nurl = \"{}\"\n[upstreams]\ndemo = \"builtin:echo\"\n\
         [limits.all]\nalgorithm = \"token-bucket\"\nkey = \"ip\"\nrate = \"1000000/s\"\n\
         [[routes]]\npath = \"/*\"\nupstream = \"demo\"\nlimits = [\"all\"]\n",
        redis.url()
    ));
    wait_for(&gateway, "is unreachable", || _ = gateway.get("/"));
    redis.restart();
    wait_for(&gateway, "is asked again", || _ = gateway.get("/"));
    lines(&gateway, redis.addr(), "10.0.0.5:6379")
}

/// A file with the upstream `search`.
fn upstream(servers: &[SocketAddr], lines: &str) -> String {
    let urls: Vec<_> = servers.iter().map(|server| format!("\"http://{server}\"")).collect();
    format!(
        "[upstreams.search]\nservers = [{}]\n{lines}\n[[routes]]\npath = \"/*\"\nupstream = \"search\"\n\
         timeout = \"100ms\"\n",
        urls.join(", ")
    )
}

fn wait_for(gateway: &Gateway, words: &str, step: impl Fn()) {
    eventually(words, || {
        step();
        gateway.stderr().contains(words).then_some(())
    });
}

/// The lines that the gateway has logged, from their level on, with this address in place of the server's.
fn lines(gateway: &Gateway, server: SocketAddr, shown: &str) -> Vec<String> {
    let from_level = |line: &str| {
        let start = ["WARN ", "INFO ", "ERROR "].iter().filter_map(|level| line.find(level)).min()?;
        Some(line[start..].replace(&server.to_string(), shown))
    };
    gateway.stderr_lines().iter().filter_map(|line| from_level(line)).collect()
}
