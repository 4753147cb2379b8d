//! Clients that read slowly but steadily get everything; those that stop are cut. A client that sends on behind its answer
//! still gets the answer.

use std::io::{Read as _, Write as _};
use std::net::TcpListener;
use std::sync::mpsc;
use std::time::{Duration, Instant};

use rustix::process::Signal;

use crate::harness::frames::{DATA, END_STREAM, Fate, Frames, WINDOW_UPDATE, get};
use crate::harness::{Authority, Backend, Client, Gateway, Next, eventually, everything_to};

/// A socket of the gateway takes about 2.6 MB before it blocks, and is writable again once a third of that was read.
const ANSWER: usize = 4_000_000;
/// Bytes a second: a third of what the socket takes lasts for about 2.9 s, longer than `write_timeout`, which leaves a busy machine
/// 2 s in which the test is not run.
const RATE: usize = 300_000;
/// Small, so that the client's kernel announces room often.
const RECEIVE_BUFFER: usize = 16 << 10;
const SERVER: &str = "[server]\nwrite_timeout = \"2s\"\n";

/// Answers `GET` at once with a large body. Of another request it does not read the body before.
fn large() -> Backend {
    Backend::start(|exchange| {
        exchange.write(format!("HTTP/1.1 200 OK\r\ncontent-length: {ANSWER}\r\n\r\n"));
        exchange.write(vec![b'x'; ANSWER]);
        if exchange.head.starts_with("GET") { Next::KeepAlive } else { Next::Close }
    })
}

/// Sleeps until this number of bytes since `begun` is within the rate.
fn pace(begun: Instant, bytes: usize, rate: usize) {
    let due = Duration::from_secs_f64(bytes as f64 / rate as f64);
    std::thread::sleep(due.saturating_sub(begun.elapsed()));
}

/// Reads this number of bytes at [`RATE`]; fewer if the connection ends.
fn read_steadily(client: &mut Client, bytes: usize) -> usize {
    let (begun, mut read) = (Instant::now(), 0);
    while read < bytes {
        let piece = client.read_some(8 << 10).len();
        if piece == 0 {
            break;
        }
        read += piece;
        pace(begun, read, RATE);
    }
    read
}

fn gets_everything(mut client: Client, gateway: &Gateway) {
    client.write("GET / HTTP/1.1\r\nhost: test\r\n\r\n");
    assert_eq!(client.read_head().expect("a head").status, 200);
    assert_eq!(read_steadily(&mut client, ANSWER), ANSWER);
    assert_eq!(gateway.access_log(1)[0]["error"], serde_json::Value::Null);
    client.get("/again", "").expect(200);
}

#[test]
fn a_steady_reader_of_http_11_gets_everything() {
    let backend = large();
    let gateway = Gateway::start(&(SERVER.to_owned() + &everything_to(&backend, "")));
    gets_everything(Client::connect_narrow(gateway.addr(), RECEIVE_BUFFER), &gateway);
}

#[test]
fn a_steady_reader_behind_tls_gets_everything() {
    let backend = large();
    let authority = Authority::new();
    authority.certify("a", &["a.test"]);
    let gateway = Gateway::start(&(SERVER.to_owned() + &everything_to(&backend, &authority.server("a"))));
    let client = Client::connect_narrow(gateway.addr(), RECEIVE_BUFFER);
    gets_everything(client.agree_on_tls(&authority.client(), "a.test").expect("a handshake"), &gateway);
}

/// Its windows are open all the time: only the socket is slow.
#[test]
fn a_steady_reader_of_http2_gets_everything() {
    let backend = large();
    let gateway = Gateway::start(&(SERVER.to_owned() + &everything_to(&backend, "")));
    let narrow = Client::connect_narrow(gateway.addr(), RECEIVE_BUFFER);
    let mut client = Frames::over(narrow, &[(4, 1 << 30)]);
    client.send(WINDOW_UPDATE, 0, 0, &(1_u32 << 30).to_be_bytes());
    client.request(1, &get("/", &[]));
    assert_eq!(client.fate(1), Fate::Answered(200));
    let (begun, mut read) = (Instant::now(), 0);
    loop {
        let frame = client.read().unwrap_or_else(|| panic!("cut after {read} bytes"));
        if frame.kind == DATA {
            read += frame.payload.len();
            if frame.flags & END_STREAM != 0 {
                break;
            }
        }
        pace(begun, read, RATE);
    }
    assert_eq!(read, ANSWER);
    assert_eq!(gateway.access_log(1)[0]["error"], serde_json::Value::Null);
}

/// Answers that are handed over to HTTP/2 whole still wait for the socket when no stream is open any more.
#[test]
fn a_connection_of_http2_without_streams_stays_until_its_bytes_are_sent() {
    const STREAMS: u32 = 100;
    const EACH: usize = 40_000;
    let head = format!("HTTP/1.1 200 OK\r\ncontent-length: {EACH}\r\n\r\n");
    let backend = Backend::answering([head.into_bytes(), vec![b'x'; EACH]].concat());
    let server = "[server]\nwrite_timeout = \"2s\"\nidle_timeout = \"1s\"\n";
    let gateway = Gateway::start(&(server.to_owned() + &everything_to(&backend, "")));
    let narrow = Client::connect_narrow(gateway.addr(), RECEIVE_BUFFER);
    let mut client = Frames::over(narrow, &[]);
    client.send(WINDOW_UPDATE, 0, 0, &(1_u32 << 30).to_be_bytes());
    (0..STREAMS).for_each(|number| client.request(number * 2 + 1, &get("/", &[])));
    let (begun, mut read, mut ended) = (Instant::now(), 0, 0);
    while ended < STREAMS {
        let frame = client.read().unwrap_or_else(|| panic!("cut after {read} bytes and {ended} answers"));
        if frame.kind == DATA {
            read += frame.payload.len();
            ended += u32::from(frame.flags & END_STREAM != 0);
        }
        pace(begun, read, 500_000);
    }
    assert_eq!(read, EACH * STREAMS as usize);
}

#[test]
fn a_reader_of_http2_that_stops_is_cut_and_counted() {
    let backend = large();
    let rest = "[server]\nwrite_timeout = \"500ms\"\n[admin]\nlisten = \"127.0.0.1:0\"\n";
    let gateway = Gateway::start(&everything_to(&backend, rest));
    let narrow = Client::connect_narrow(gateway.addr(), RECEIVE_BUFFER);
    let mut client = Frames::over(narrow, &[(4, 1 << 30)]);
    client.send(WINDOW_UPDATE, 0, 0, &(1_u32 << 30).to_be_bytes());
    client.request(1, &get("/", &[]));
    assert_eq!(client.fate(1), Fate::Answered(200));
    let stalled = "reason=\"write_timeout\"";
    eventually("the connection to be cut", || {
        (gateway.metric("tollgate_connections_refused_total", &[stalled]) == 1.0).then_some(())
    });
    assert_eq!(gateway.access_log(1)[0]["error"], "write_timeout");
    eventually("the connection to be gone", || {
        (gateway.metric("tollgate_connections", &["listener"]) == 0.0).then_some(())
    });
}

/// A client that has asked for a tunnel.
fn tunnel(gateway: &Gateway) -> Client {
    let mut client = Client::connect_narrow(gateway.addr(), RECEIVE_BUFFER);
    client.write("GET / HTTP/1.1\r\nhost: test\r\nconnection: upgrade\r\nupgrade: x\r\n\r\n");
    assert_eq!(client.read_head().expect("a switch").status, 101);
    client
}

/// Switches protocols, sends this number of bytes and closes.
fn switching(bytes: usize) -> Backend {
    Backend::start(move |exchange| {
        exchange.write("HTTP/1.1 101 Switching Protocols\r\nconnection: upgrade\r\nupgrade: x\r\n\r\n");
        exchange.write(vec![b'x'; bytes]);
        Next::Close
    })
}

#[test]
fn a_steady_reader_of_a_tunnel_gets_everything() {
    let backend = switching(ANSWER);
    let gateway = Gateway::start(&everything_to(&backend, "tunnel_timeout = \"2s\""));
    assert_eq!(read_steadily(&mut tunnel(&gateway), ANSWER), ANSWER);
}

#[test]
fn a_client_that_sends_on_into_a_tunnel_that_has_ended_reads_all_of_it() {
    const LAST: usize = 300_000;
    let backend = switching(LAST);
    let gateway = Gateway::start(&everything_to(&backend, ""));
    let mut client = tunnel(&gateway);
    // What the client sends resets the backend's connection, and takes with it what is still in the backend's socket.
    eventually("all bytes to be acknowledged", || (unacknowledged(backend.addr().port()) == 0).then_some(()));
    sends_while_it_reads(&mut client, LAST);
}

/// Bytes that the sockets of this port have sent and nobody has acknowledged.
fn unacknowledged(port: u16) -> usize {
    let local = format!(":{port:04X}");
    let sockets = std::fs::read_to_string("/proc/net/tcp").expect("the sockets of this system");
    let fields = sockets.lines().map(|line| line.split_whitespace().collect::<Vec<_>>());
    let ours = fields.filter(|fields| fields.get(1).is_some_and(|address| address.ends_with(&local)));
    // `tx_queue:rx_queue`, in hexadecimal digits.
    let queue = |fields: Vec<&str>| usize::from_str_radix(fields.get(4)?.split(':').next()?, 16).ok();
    ours.filter_map(queue).sum()
}

/// The backend sends until nothing more fits, and is reset by what the client sends. What the gateway's system had by then
/// goes to the client.
#[test]
fn a_client_reads_all_that_a_backend_has_sent_before_it_takes_no_more() {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
    let address = listener.local_addr().expect("bound");
    let (sent, total) = mpsc::channel();
    let (close, may_close) = mpsc::channel::<()>();
    let backend = std::thread::spawn(move || {
        let (mut stream, _) = listener.accept().expect("the gateway connects");
        stream.set_write_timeout(Some(Duration::from_millis(500))).expect("a socket option");
        assert!(stream.read(&mut [0; 4 << 10]).expect("a head") > 0);
        stream
            .write_all(b"HTTP/1.1 101 Switching Protocols\r\nconnection: upgrade\r\nupgrade: x\r\n\r\n")
            .expect("sent");
        let mut total = 0;
        while let Ok(count) = stream.write(&[b'x'; 16 << 10]) {
            total += count;
        }
        sent.send(total).expect("the test waits");
        may_close.recv().expect("the test goes on");
    });
    let gateway = Gateway::start(&format!(
        "[upstreams]\napi = \"http://{address}\"\n[[routes]]\npath = \"/*\"\nupstream = \"api\"\n"
    ));
    let mut client = tunnel(&gateway);
    let received = total.recv().expect("it has sent all that fits") - unacknowledged(address.port());
    client.write([b'x'; 8 << 10]);
    close.send(()).expect("the backend waits");
    backend.join().expect("no panic");
    client.write([b'x'; 8 << 10]);
    let mut read = 0;
    loop {
        match client.read_some(64 << 10).len() {
            0 => break,
            count => read += count,
        }
    }
    assert!(read >= received, "cut after {read} bytes of {received}");
}

/// Reads this number of bytes in about 5 s, and never stops sending.
fn sends_while_it_reads(client: &mut Client, bytes: usize) {
    let mut read = 0;
    while read < bytes {
        client.write([b'x'; 8 << 10]);
        let piece = client.read_some(16 << 10).len();
        assert!(piece > 0, "cut after {read} bytes");
        read += piece;
        std::thread::sleep(Duration::from_millis(75));
    }
}

/// The whole answer waits in the gateway's socket when the connection is closed.
#[test]
fn a_client_that_uploads_on_behind_an_early_answer_reads_all_of_it() {
    const EARLY: usize = 1_000_000;
    let backend = Backend::start(|exchange| {
        exchange.write(format!("HTTP/1.1 403 Forbidden\r\ncontent-length: {EARLY}\r\n\r\n"));
        exchange.write(vec![b'x'; EARLY]);
        exchange.hang();
        Next::Close
    });
    let gateway = Gateway::start(&everything_to(&backend, "max_body_bytes = 0"));
    let mut client = Client::connect_narrow(gateway.addr(), RECEIVE_BUFFER);
    client.write("POST / HTTP/1.1\r\nhost: test\r\ncontent-length: 100000000\r\n\r\n");
    assert_eq!(client.read_head().expect("an early head").status, 403);
    sends_while_it_reads(&mut client, EARLY);
}

/// Has a client sent off that goes on sending, and waits until it is only lingered for.
fn lingering(gateway: &Gateway) -> std::thread::JoinHandle<()> {
    let mut client = Client::connect(gateway.addr());
    client.write("POST /%00 HTTP/1.1\r\nhost: test\r\ncontent-length: 100000000\r\n\r\n");
    client.read().expect(400);
    std::thread::spawn(move || {
        let begun = Instant::now();
        while begun.elapsed() < Duration::from_secs(10) {
            client.write([b'x'; 100]);
            std::thread::sleep(Duration::from_millis(20));
        }
    })
}

#[test]
fn a_connection_that_only_lingers_makes_room() {
    let backend = Backend::ok();
    let config = "[server]\nworkers = 1\nmax_connections = 1\n".to_owned() + &everything_to(&backend, "");
    let gateway = Gateway::start(&config);
    let _sending = lingering(&gateway);
    gateway.get("/").expect(200);
}

#[test]
fn a_connection_that_only_lingers_does_not_hold_up_a_drain() {
    let backend = Backend::ok();
    let mut gateway = Gateway::start(&everything_to(&backend, ""));
    let _sending = lingering(&gateway);
    gateway.signal(Signal::TERM);
    let begun = Instant::now();
    assert!(gateway.wait_for_exit().success());
    assert!(begun.elapsed() < Duration::from_secs(6), "{:?}", begun.elapsed());
}
