//! What requests hold before they are decided: the framing of a body, and the budget of the whole process.

use std::sync::mpsc;
use std::thread;

use crate::harness::frames::{DATA, END_HEADERS, Frames, HEADERS, WINDOW_UPDATE, block, frame};
use crate::harness::{Backend, Client, Gateway, HoldingBackend, Response, eventually, everything_to};

const JSON: &str = "content-type: application/json\r\n";

/// A gateway whose limit counts by `/user` of JSON bodies, and never refuses.
fn gateway(backend: &Backend, server: &str) -> Gateway {
    Gateway::start(&everything_to(
        backend,
        &format!(
            "limits = [\"user\"]\n[limits.user]\nalgorithm = \"fixed-window\"\nkey = \"json:/user\"\nrate = \"1000000/day\"\n\
             [server]\nworkers = 2\nbody_timeout = \"5min\"\nipv4_prefix = 32\n{server}\n\
             [admin]\nlisten = \"127.0.0.1:0\"\n[log]\naccess = \"json\"\n"
        ),
    ))
}

fn chunked(extension: usize, chunks: usize, data: &str) -> Vec<u8> {
    let head = format!("POST / HTTP/1.1\r\nhost: a\r\n{JSON}transfer-encoding: chunked\r\n\r\n");
    let whole = format!("{:x}\r\n{data}\r\n", data.len());
    let extension = if extension == 0 { String::new() } else { format!(";{}", "e".repeat(extension)) };
    let padding = format!("1{extension}\r\n \r\n").repeat(chunks);
    [head, whole, padding, "0\r\n\r\n".to_owned()].concat().into_bytes()
}

#[test]
fn framing_far_beyond_the_data_is_refused_and_takes_no_memory() {
    let backend = Backend::ok();
    let gateway = gateway(&backend, "");
    Client::connect(gateway.addr()).exchange(chunked(0, 3_000, r#"{"user":"a"}"#)).expect(200);
    assert_eq!(backend.latest().body, [br#"{"user":"a"}"#.as_slice(), &[b' '; 3_000]].concat());
    let before = gateway.anonymous_kib();
    let clients: Vec<Client> = (0..8)
        .map(|_| {
            let mut client = Client::connect(gateway.addr());
            client.write_within(&chunked(1_010, 65_000, "{}"), std::time::Duration::from_secs(1));
            client
        })
        .collect();
    for mut client in clients {
        assert_eq!(client.try_read("POST").map(|response: Response| response.status), Ok(400));
    }
    let grown = gateway.anonymous_kib().saturating_sub(before);
    assert!(grown < 16 << 10, "{grown} KiB more");
    assert_eq!(backend.count(), 1);
}

/// Sends the begins of requests on the streams of one connection: heads of 4 KB, and bodies of 20 KB that go on.
fn begin_streams(client: Client) -> Frames {
    let mut frames = Frames::over(client, &[]);
    let padding = "p".repeat(4_000);
    let mut window = 65_535;
    for stream in (1..200).step_by(2) {
        let head = block(&[
            (":method", "POST"),
            (":scheme", "http"),
            (":path", "/"),
            (":authority", "test"),
            ("content-type", "application/json"),
            ("x-padding", &padding),
        ]);
        frames.client.write(frame(HEADERS, END_HEADERS, stream, &head));
        for _ in 0..2 {
            while window < 10_000 {
                let frame = frames.read().expect("the connection is open");
                if frame.kind == WINDOW_UPDATE && frame.stream == 0 {
                    window += i64::from(u32::from_be_bytes(frame.payload.try_into().expect("four bytes")));
                }
            }
            frames.client.write(frame(DATA, 0, stream, &[b' '; 10_000]));
            window -= 10_000;
        }
    }
    frames
}

#[test]
fn a_flood_of_half_sent_bodies_stays_within_the_budget_and_honest_clients_lose_none() {
    let backend = Backend::ok();
    let gateway = gateway(&backend, "max_buffered = \"16MiB\"");
    let (address, body) = (gateway.addr(), r#"{"user":"honest"}"#);
    let honest = || {
        let mut client = Client::connect_from([127, 0, 0, 9].into(), address);
        client.write(format!("POST / HTTP/1.1\r\nhost: a\r\n{JSON}content-length: {}\r\n\r\n{{", body.len()));
        client
    };
    let finish = |mut client: Client| {
        client.write(&body[1..]);
        client.read().expect(200);
    };
    finish(honest());
    let before = gateway.anonymous_kib();
    let waiting = honest();
    let (sender, receiver) = mpsc::channel();
    for number in 0..64 {
        let sender = sender.clone();
        thread::spawn(move || {
            let client = Client::connect_from([127, 0, 0, 2 + number % 4].into(), address);
            sender.send(begin_streams(client))
        });
    }
    let flood: Vec<Frames> = (0..64)
        .map(|_| {
            finish(honest());
            receiver.recv_timeout(crate::harness::TIMEOUT).expect("all was read")
        })
        .collect();
    eventually("the gateway to evict", || {
        (gateway.metric("tollgate_buffer_evictions_total", &[]) > 0.5).then_some(())
    });
    let held = gateway.metric("tollgate_buffered_bytes", &[]);
    assert!(held <= f64::from(16 << 20), "{held} bytes held");
    // Refused requests are read to their ends for a moment, and the allocator gives pages back a little later.
    eventually("the memory to be given back", || {
        let grown = gateway.anonymous_kib().saturating_sub(before);
        (grown < (16 + 32) << 10).then_some(())
    });
    let held = gateway.metric("tollgate_buffered_bytes", &[]);
    assert!(held > f64::from(8 << 20), "the flood still waits: {held} bytes held");
    finish(waiting);
    finish(honest());
    drop(flood);
    eventually("nothing to be held", || (gateway.metric("tollgate_buffered_bytes", &[]) < 0.5).then_some(()));
}

#[test]
fn heads_that_wait_for_a_place_count_too() {
    let backend = HoldingBackend::start();
    let rest = "limits = [\"few\"]\n[limits.few]\nalgorithm = \"concurrency\"\nkey = \"global\"\nmax = 1\nqueue = 1000\nmax_wait = \"5min\"\n\
                [server]\nmax_buffered = \"1MiB\"\n[admin]\nlisten = \"127.0.0.1:0\"\n[log]\naccess = \"json\"\n";
    let url = backend.url();
    let gateway = Gateway::start(&format!(
        "[upstreams]\napi = \"{url}\"\n[[routes]]\npath = \"/*\"\nupstream = \"api\"\n{rest}"
    ));
    let padding = format!("x-padding: {}\r\n", "p".repeat(12_000)).repeat(2);
    let mut clients: Vec<Client> = (0..60)
        .map(|_| {
            let mut client = Client::connect(gateway.addr());
            client.write(format!("GET / HTTP/1.1\r\nhost: a\r\n{padding}\r\n"));
            client
        })
        .collect();
    // The budget has room for 34 such heads at most. One request is being served.
    eventually("the gateway to evict", || {
        (gateway.metric("tollgate_buffer_evictions_total", &[]) >= 25.0).then_some(())
    });
    backend.open();
    let mut statuses: Vec<u16> = clients.iter_mut().map(|client| client.read().status).collect();
    statuses.sort_unstable();
    let refused = statuses.iter().filter(|&&status| status == 503).count();
    assert!(statuses.iter().all(|status| [200, 503].contains(status)), "{statuses:?}");
    assert!((25..59).contains(&refused), "{refused} were refused");
    let log = gateway.access_log(60);
    assert_eq!(log.iter().filter(|line| line["error"] == "overloaded").count(), refused);
}
