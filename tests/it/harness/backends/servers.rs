//! Upstreams of several servers, and servers that fail.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use crate::harness::{Backend, Client, Fault, Gateway, Next};

/// A server that resets every connection as long as the switch is on.
pub(crate) fn failing() -> (Backend, Arc<AtomicBool>) {
    let broken = Arc::new(AtomicBool::new(true));
    let switch = Arc::clone(&broken);
    let backend = Backend::start(move |exchange| {
        exchange.read_body();
        if switch.load(Ordering::SeqCst) {
            return Next::Reset;
        }
        exchange.write("HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok");
        Next::KeepAlive
    });
    (backend, broken)
}

/// One upstream over these servers, with these further lines of its table; and an admin listener.
pub(crate) fn over(servers: &[&Backend], lines: &str) -> String {
    over_within(servers, lines, "30s")
}

/// The same with this `timeout` of the route: for tests of servers that are silent. A busy machine needs some of it.
pub(crate) fn over_within(servers: &[&Backend], lines: &str, timeout: &str) -> String {
    let urls: Vec<String> = servers.iter().map(|server| format!("\"{}\"", server.url())).collect();
    format!(
        "[upstreams.api]\nservers = [{}]\n{lines}\n[[routes]]\npath = \"/*\"\nupstream = \"api\"\n\
         timeout = \"{timeout}\"\n[admin]\nlisten = \"127.0.0.1:0\"\n",
        urls.join(", ")
    )
}

pub(crate) fn is_up(gateway: &Gateway, server: &Backend) -> bool {
    gateway.metric("tollgate_upstream_up", &[&format!("server=\"{}\"", server.addr())]) > 0.0
}

/// One upstream over these servers, with further lines of its table, and of the route.
pub(crate) fn over_http2(servers: &[&str], lines: &str, route: &str) -> String {
    let urls: Vec<String> = servers.iter().map(|url| format!("\"{url}\"")).collect();
    format!(
        "[upstreams.api]\nservers = [{}]\nprotocol = \"http2\"\n{lines}\n[[routes]]\npath = \"/*\"\nupstream = \"api\"\n\
         max_body_bytes = 0\n{route}\n[admin]\nlisten = \"127.0.0.1:0\"\n",
        urls.join(", ")
    )
}

/// One worker, so that it is known which connection is used.
pub(crate) const ALONE: &str = "[server]\nworkers = 1\n";

pub(crate) fn post(body: &str) -> String {
    format!("POST / HTTP/1.1\r\nhost: test\r\ncontent-length: {}\r\n\r\n{body}", body.len())
}

/// A client's connection that is cut tells it that the answer is not whole.
pub(crate) fn is_cut(client: &mut Client) -> bool {
    matches!(client.try_read("GET"), Err(Fault::Cut(_)))
}
