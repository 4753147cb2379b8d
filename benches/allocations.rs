//! How often the gateway asks for memory in the course of one GET without a body, once it is warm.
//!
//! `cargo bench --bench allocations`. The whole gateway runs here, with one worker, behind an allocator that counts. Client
//! and backend are threads that allocate nothing after their start, so whatever is counted between two requests is the
//! gateway's own.
#![expect(clippy::unwrap_used, reason = "a benchmark that cannot be set up should stop")]

use std::alloc::System;
use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::Path;
use std::thread;
use std::time::Duration;

use stats_alloc::{INSTRUMENTED_SYSTEM, Region, StatsAlloc};

#[global_allocator]
static ALLOCATOR: &StatsAlloc<System> = &INSTRUMENTED_SYSTEM;

/// Connections, buffers and the runtime's queues have their final size after these.
const WARM_UP: usize = 2_000;
/// Together with the warm-up fewer than a connection may carry.
const REQUESTS: usize = 4_000;
/// What the project's issue about speed demands of an admitted request.
const MUST: u32 = 6;
const ANSWER: &[u8] = b"HTTP/1.1 200 OK\r\nserver: bench\r\ndate: Thu, 01 Jan 1970 00:00:00 GMT\r\n\
    content-type: text/plain\r\ncontent-length: 3\r\nconnection: keep-alive\r\n\r\nok\n";

fn main() {
    let folder = tempfile::tempdir().unwrap();
    let gateway = start_gateway(folder.path(), start_backend());
    println!("{:<10} {:>12} {:>14} {:>16}", "case", "allocations", "reallocations", "bytes allocated");
    for case in ["unlimited", "admitted", "refused"] {
        let admitted = measure(gateway, case);
        if case == "admitted" {
            println!(
                "must: allocations of a GET without a body, with a limit that admits | {MUST} | {admitted:.2}"
            );
        }
    }
}

/// Prints what a request of the case takes, and gives its allocations, those that grow or shrink others included.
#[expect(clippy::cast_precision_loss, reason = "small numbers")]
fn measure(gateway: SocketAddr, case: &str) -> f64 {
    let request = format!("GET /{case} HTTP/1.1\r\nhost: localhost\r\n\r\n");
    let (mut connection, mut buffer) = (TcpStream::connect(gateway).unwrap(), [0; 4096]);
    let mut ask = |times: usize| {
        for _ in 0..times {
            connection.write_all(request.as_bytes()).unwrap();
            read_whole(&mut connection, &mut buffer, answer_length);
        }
    };
    ask(WARM_UP);
    let region = Region::new(ALLOCATOR);
    ask(REQUESTS);
    let change = region.change();
    let each = |count: usize| count as f64 / REQUESTS as f64;
    println!(
        "{case:<10} {:>12.2} {:>14.2} {:>16.0}",
        each(change.allocations),
        each(change.reallocations),
        each(change.bytes_allocated)
    );
    each(change.allocations + change.reallocations)
}

fn start_gateway(folder: &Path, backend: SocketAddr) -> SocketAddr {
    let address = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let file = folder.join("gateway.toml");
    std::fs::write(&file, configuration(address, backend)).unwrap();
    thread::spawn(move || tollgate::serve::run(&file, tollgate::serve::RunOptions::default()).unwrap());
    while TcpStream::connect(address).is_err() {
        thread::sleep(Duration::from_millis(10));
    }
    address
}

fn configuration(gateway: SocketAddr, backend: SocketAddr) -> String {
    format!(
        r#"
        server = {{ listen = ["{gateway}"], workers = 1, ratelimit_headers = "off" }}
        log = {{ access = "off", level = "error" }}
        upstreams = {{ api = "http://{backend}" }}
        [[routes]]
        path = "/unlimited"
        upstream = "api"
        [[routes]]
        path = "/admitted"
        upstream = "api"
        limits = ["open"]
        [[routes]]
        path = "/refused"
        upstream = "api"
        limits = ["closed"]
        [limits.open]
        algorithm = "token-bucket"
        key = "ip"
        rate = "1000000/s"
        [limits.closed]
        algorithm = "token-bucket"
        key = "ip"
        rate = "1/day"
        "#
    )
}

/// One thread a connection, each of which lasts as long as the gateway keeps it.
fn start_backend() -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    thread::spawn(move || {
        for connection in listener.incoming() {
            thread::spawn(move || answer_all(connection.unwrap()));
        }
    });
    address
}

fn answer_all(mut connection: TcpStream) {
    let mut buffer = [0; 4096];
    while read_whole(&mut connection, &mut buffer, head_length) {
        connection.write_all(ANSWER).unwrap();
    }
}

/// Reads until `length` knows of the bytes so far how many there will be, and they are there; false at the end.
fn read_whole(connection: &mut TcpStream, buffer: &mut [u8], length: fn(&[u8]) -> Option<usize>) -> bool {
    let mut filled = 0;
    while length(&buffer[..filled]).is_none_or(|whole| filled < whole) {
        match connection.read(&mut buffer[filled..]).unwrap() {
            0 => return false,
            count => filled += count,
        }
    }
    true
}

fn head_length(bytes: &[u8]) -> Option<usize> {
    memchr::memmem::find(bytes, b"\r\n\r\n").map(|end| end + 4)
}

fn answer_length(bytes: &[u8]) -> Option<usize> {
    let head = head_length(bytes)?;
    let text = std::str::from_utf8(&bytes[..head]).unwrap();
    let mut fields = text.lines().filter_map(|line| line.split_once(": "));
    let (_, length) = fields.find(|(name, _)| name.eq_ignore_ascii_case("content-length")).unwrap();
    Some(head + length.parse::<usize>().unwrap())
}
