//! Floods over HTTP/2. Whatever a client sends, the gateway lives, holds little memory for it, and serves others meanwhile.

use std::time::Duration;

use crate::harness::frames::{
    CONTINUATION, DATA, END_HEADERS, END_STREAM, Fate, Frame, Frames, HEADERS, PING, PREFACE, PRIORITY,
    RST_STREAM, SETTINGS, WINDOW_UPDATE, block, frame, get,
};
use crate::harness::{Backend, Client, Gateway, Next, TIMEOUT, eventually, everything_to};

/// RFC 9113 §7.
const STREAM_CLOSED: u32 = 5;
const FRAME_SIZE_ERROR: u32 = 6;
const REFUSED_STREAM: u32 = 7;
const COMPRESSION_ERROR: u32 = 9;
const CANCEL: [u8; 4] = [0, 0, 0, 8];
/// RFC 9113 §6.5.2.
const INITIAL_WINDOW_SIZE: u16 = 4;
const ENHANCE_YOUR_CALM: u32 = 11;

/// What one client may have the gateway hold: half more than the window of a connection and what waits for its socket
/// (docs/operations.md).
const MEMORY_KIB: u64 = (1024 + 64) * 3 / 2;

/// Answers `/` at once, anything else when the test opens the gate.
fn backend() -> Backend {
    Backend::start(|exchange| {
        if exchange.target() != "/" {
            exchange.wait_at_gate();
        }
        exchange.write("HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok");
        Next::KeepAlive
    })
}

/// Attacks on one connection, and sees to it that the gateway takes no harm.
fn attack<T: Send>(what: &str, act: impl FnOnce(&mut Frames) -> T + Send) -> T {
    let backend = backend();
    let mut gateway = Gateway::start(&everything_to(&backend, ""));
    gateway.get("/").expect(200);
    let before = gateway.anonymous_kib();
    let mut attacker = Frames::connect(gateway.addr());
    let outcome = std::thread::scope(|scope| {
        let attacking = scope.spawn(|| act(&mut attacker));
        loop {
            gateway.get("/").expect(200);
            if attacking.is_finished() {
                break attacking.join().expect("no panic");
            }
            std::thread::sleep(Duration::from_millis(5));
        }
    });
    gateway.get("/").expect(200);
    let grown = gateway.anonymous_kib().saturating_sub(before);
    assert!(grown < MEMORY_KIB, "{what} had the gateway hold {grown} KiB");
    assert!(gateway.alive());
    outcome
}

/// Sends these frames repeatedly and reads nothing, until this number of bytes is sent or the gateway reads no more.
fn flood(attacker: &mut Frames, frames: &[u8], bytes: usize) {
    let burst = frames.repeat((64 << 10) / frames.len() + 1);
    let mut sent = 0;
    while sent < bytes {
        let part = attacker.client.write_within(&burst, Duration::from_secs(1));
        sent += part;
        if part < burst.len() {
            return;
        }
    }
}

fn request_and_reset(stream: u32) -> Vec<u8> {
    let request = frame(HEADERS, END_HEADERS | END_STREAM, stream, &get("/slow", &[]));
    [request, frame(RST_STREAM, 0, stream, &CANCEL)].concat()
}

#[test]
fn rapid_reset_at_once() {
    let code = attack("rapid reset", |attacker| {
        let frames: Vec<u8> = (0..5000).flat_map(|number| request_and_reset(number * 2 + 1)).collect();
        attacker.client.write_within(&frames, Duration::from_secs(1));
        attacker.end()
    });
    assert_eq!(code, Some(ENHANCE_YOUR_CALM));
}

/// Requests that are served, and taken back before their answers.
#[test]
fn rapid_reset_paced() {
    let code = attack("paced resets", |attacker| {
        for batch in 0..150 {
            let streams = || (0..20).map(move |number| (batch * 20 + number) * 2 + 1);
            let head = get("/slow", &[]);
            let requests =
                streams().flat_map(|stream| frame(HEADERS, END_HEADERS | END_STREAM, stream, &head));
            let resets = streams().flat_map(|stream| frame(RST_STREAM, 0, stream, &CANCEL));
            attacker.client.write_within(&requests.collect::<Vec<u8>>(), Duration::from_secs(1));
            std::thread::sleep(Duration::from_millis(20));
            attacker.client.write_within(&resets.collect::<Vec<u8>>(), Duration::from_secs(1));
            std::thread::sleep(Duration::from_millis(5));
        }
        attacker.end()
    });
    assert_eq!(code, Some(ENHANCE_YOUR_CALM));
}

/// A request that comes with its reset, few at a time, costs its head to read and nothing else.
#[test]
fn requests_that_come_with_their_resets_are_not_served() {
    let backend = backend();
    let gateway = Gateway::start(&everything_to(&backend, ""));
    let mut client = Frames::connect(gateway.addr());
    for number in 0..400 {
        client.client.write(request_and_reset(number * 2 + 1));
        std::thread::sleep(Duration::from_millis(2));
    }
    client.request(801, &get("/", &[]));
    assert_eq!(client.fate(801), Fate::Answered(200));
    assert_eq!(backend.count(), 1, "no other request reached the backend");
}

#[test]
fn made_you_reset() {
    let code = attack("MadeYouReset", |attacker| {
        for number in 0..300 {
            let stream = number * 2 + 1;
            attacker.request(stream, &get("/slow", &[]));
            // Beyond what a window can be, so that the gateway has to reset the stream.
            attacker.send(WINDOW_UPDATE, 0, stream, &0x7fff_ffff_u32.to_be_bytes());
            std::thread::sleep(Duration::from_millis(1));
        }
        attacker.end()
    });
    assert_eq!(code, Some(ENHANCE_YOUR_CALM));
}

#[test]
fn continuation_flood() {
    for part in [&b""[..], &block(&[("x", "y".repeat(1000))])] {
        let code = attack("a flood of CONTINUATION", |attacker| {
            attacker.send(HEADERS, 0, 1, &get("/", &[]));
            flood(attacker, &frame(CONTINUATION, 0, 1, part), 3_000_000);
            attacker.end()
        });
        assert_eq!(code, Some(ENHANCE_YOUR_CALM));
    }
}

#[test]
fn hpack_bomb() {
    // One field of 4,000 bytes for the table (RFC 7541 §6.2.1), and 16,000 times "that again".
    let mut head = get("/", &[]);
    head.extend([0x40, 1, b'x', 127, 0xa1, 0x1e]);
    head.extend([b'y'; 4000]);
    head.extend([0x80 | 62; 8000]);
    let fate = attack("an HPACK bomb", |attacker| {
        attacker.send(HEADERS, END_STREAM, 1, &head);
        attacker.send(CONTINUATION, END_HEADERS, 1, &[0x80 | 62; 16_000]);
        attacker.fate(1)
    });
    assert_eq!(fate, Fate::Answered(431));
}

/// Empty frames are a flood; those of a byte are a slow upload, which is forwarded and harms no other request.
#[test]
fn empty_and_small_data() {
    for (part, expected) in [(&b""[..], Fate::GoneAway(ENHANCE_YOUR_CALM)), (b"x", Fate::Answered(200))] {
        let fate = attack("a flood of small DATA", |attacker| {
            let post = block(&[
                (":method", "POST"),
                (":scheme", "http"),
                (":path", "/slow"),
                (":authority", "test"),
            ]);
            attacker.send(HEADERS, END_HEADERS, 1, &post);
            flood(attacker, &frame(DATA, 0, 1, part), 3_000_000);
            attacker
                .client
                .write_within(&frame(HEADERS, END_HEADERS | END_STREAM, 3, &get("/", &[])), TIMEOUT);
            attacker.fate(3)
        });
        assert_eq!(fate, expected);
    }
}

#[test]
fn padded_data() {
    let code = attack("a flood of padding", |attacker| {
        let post =
            block(&[(":method", "POST"), (":scheme", "http"), (":path", "/slow"), (":authority", "test")]);
        attacker.send(HEADERS, END_HEADERS, 1, &post);
        let mut padded = vec![255];
        padded.resize(256, 0);
        // PADDED.
        flood(attacker, &frame(DATA, 8, 1, &padded), 3_000_000);
        attacker.end()
    });
    assert_eq!(code, Some(ENHANCE_YOUR_CALM));
}

/// Floods until the gateway takes no more, and reads only then: the reason is still told.
fn assert_calmed(what: &str, frames: &[u8]) {
    let code = attack(what, |attacker| {
        flood(attacker, frames, 3_000_000);
        attacker.end()
    });
    assert_eq!(code, Some(ENHANCE_YOUR_CALM), "{what}");
}

#[test]
fn floods_of_frames_that_ask_for_answers() {
    let setting = [0, 3, 0, 0, 0, 7];
    assert_calmed("a flood of PING", &frame(PING, 0, 0, &[7; 8]));
    assert_calmed("a flood of SETTINGS", &frame(SETTINGS, 0, 0, &setting));
    assert_calmed("a flood of acknowledgements", &frame(PING, 1, 0, &[7; 8]));
}

#[test]
fn floods_of_frames_that_ask_for_nothing() {
    let priority = [0, 0, 0, 0, 16];
    let more: Vec<u8> = (0..500).flat_map(|number| frame(PRIORITY, 0, number * 2 + 1, &priority)).collect();
    assert_calmed("a flood of PRIORITY", &more);
    let window = frame(WINDOW_UPDATE, 0, 0, &[0, 0, 0, 1]);
    assert_calmed("a flood of WINDOW_UPDATE", &window);
    assert_calmed("a flood of unknown frames", &frame(99, 7, 3, b"?"));
}

/// The client is told why, where it reads.
#[test]
fn floods_of_frames_without_content_end_with_enhance_your_calm() {
    for (what, kind, flags, stream, payload) in [
        ("WINDOW_UPDATE", WINDOW_UPDATE, 0, 0, &[0, 0, 0, 1][..]),
        ("PRIORITY", PRIORITY, 0, 1, &[0, 0, 0, 0, 16]),
        ("PING", PING, 0, 0, &[7; 8]),
        ("acknowledgements of PING", PING, 1, 0, &[7; 8]),
        ("SETTINGS", SETTINGS, 0, 0, &[]),
        ("unknown types", 99, 7, 3, b"?"),
    ] {
        let code = attack(what, |attacker| {
            attacker.client.write(frame(kind, flags, stream, payload).repeat(1_500));
            attacker.end()
        });
        assert_eq!(code, Some(ENHANCE_YOUR_CALM), "{what}");
    }
}

/// As many such frames as a busy client sends, on one connection.
#[test]
fn frames_of_a_busy_client_are_no_flood() {
    let backend = backend();
    let gateway = Gateway::start(&everything_to(&backend, ""));
    let mut client = Frames::connect(gateway.addr());
    for number in 0..1_000 {
        let stream = number * 2 + 1;
        let frames = [
            frame(PRIORITY, 0, stream, &[0, 0, 0, 0, 16]),
            frame(HEADERS, END_HEADERS | END_STREAM, stream, &get("/", &[])),
            frame(WINDOW_UPDATE, 0, stream, &[0, 1, 0, 0]),
            frame(WINDOW_UPDATE, 0, 0, &[0, 0, 0, 2]),
            frame(PING, 0, 0, &[7; 8]),
        ];
        client.client.write(frames.concat());
        let end = |frame: &Frame| frame.stream == stream && frame.flags & END_STREAM != 0;
        while !end(&client.read().expect("the connection is open")) {}
    }
    assert_eq!(backend.count(), 1_000);
}

/// Clients cause them as often as they like.
#[test]
fn faults_of_clients_are_not_logged() {
    let backend = backend();
    let gateway = Gateway::start(&everything_to(&backend, ""));
    for _ in 0..3 {
        let mut attacker = Frames::connect(gateway.addr());
        for number in 0..100 {
            let stream = number * 2 + 1;
            let request = frame(HEADERS, END_HEADERS | END_STREAM, stream, &get("/slow", &[]));
            let update = frame(WINDOW_UPDATE, 0, stream, &0x7fff_ffff_u32.to_be_bytes());
            attacker.client.write_within(&[request, update].concat(), Duration::from_secs(1));
        }
        attacker.end();
    }
    let lines = gateway.stderr_lines();
    assert_eq!(lines.iter().filter(|line| line.contains(" WARN ")).count(), 0, "{lines:#?}");
}

#[test]
fn streams_over_the_bound_are_refused() {
    attack("many streams", |attacker| {
        for number in 0..100 {
            attacker.request(number * 2 + 1, &get("/slow", &[]));
        }
        for number in 100..110 {
            attacker.request(number * 2 + 1, &get("/slow", &[]));
            assert_eq!(attacker.fate(number * 2 + 1), Fate::Reset(REFUSED_STREAM));
        }
    });
}

#[test]
fn data_of_a_stream_that_is_over() {
    let code = attack("data of a stream that is over", |attacker| {
        attacker.request(1, &get("/", &[]));
        assert_eq!(attacker.fate(1), Fate::Answered(200));
        flood(attacker, &frame(DATA, 0, 1, &[0; 1000]), 5_000_000);
        attacker.end()
    });
    assert_eq!(code, Some(STREAM_CLOSED));
}

#[test]
fn garbage() {
    let mut seed = 1_u64;
    let mut random = || {
        seed ^= seed << 13;
        seed ^= seed >> 7;
        seed ^= seed << 17;
        seed.to_le_bytes()
    };
    for round in 0..20_u8 {
        let bytes: Vec<u8> = (0..2000).flat_map(|_| random()).collect();
        attack("garbage", |attacker| {
            if round % 2 == 0 {
                attacker.send(HEADERS, END_HEADERS | END_STREAM, 1, &bytes[..9000]);
            }
            attacker.client.write_within(&bytes, Duration::from_secs(1));
            let expected = if round % 2 == 0 { COMPRESSION_ERROR } else { FRAME_SIZE_ERROR };
            assert_eq!(attacker.end(), Some(expected));
        });
    }
}

/// The end of such a connection cannot be told to its client, which is no reason to try for ever.
#[test]
fn a_client_that_reads_nothing_and_leaves_a_head_open_is_closed() {
    let backend = backend();
    let config = "[server]\nworkers = 1\nheader_timeout = \"1s\"\n".to_owned() + &everything_to(&backend, "");
    let gateway = Gateway::start(&config);
    let mut narrow = Client::connect_narrow(gateway.addr(), 4096);
    narrow.write([PREFACE, &frame(SETTINGS, 0, 0, &[])].concat());
    // Only as many as fit: the answers fill both sockets, and what is behind them is read still.
    let pings = frame(PING, 0, 0, &[7; 8]).repeat(10_000);
    let mut sent = 0;
    while sent < 5_000_000 {
        let part = narrow.write_within(&pings, Duration::from_millis(500));
        sent += part;
        if part < pings.len() {
            break;
        }
    }
    let open = frame(HEADERS, 0, 1, &get("/", &[]));
    narrow.write_within(&open, Duration::from_millis(500));
    for _ in 0..20 {
        gateway.get("/").expect(200);
        std::thread::sleep(Duration::from_millis(100));
    }
}

/// Connections, and streams on each, of clients that open no window.
const CLOSED: (u32, u32) = (5, 100);
/// What such a stream may have the gateway hold: its task, its head, and what was read of the answer with its head. Half more than
/// the 16 KiB that were measured.
const STREAM_KIB: u64 = 24;

/// What the client has no room for stays with the backend, and what was held is given back once the client has left.
#[test]
fn closed_windows_hold_little_and_only_for_a_while() {
    // It writes until the gateway takes no more.
    let backend = Backend::start(|exchange| {
        exchange.write("HTTP/1.1 200 OK\r\ncontent-length: 1000000\r\n\r\n");
        exchange.write(vec![b'x'; 1_000_000]);
        Next::KeepAlive
    });
    // Five hundred connections at once may take long to be accepted; none of them is given up.
    let upstream = format!(
        "[upstreams.api]\nservers = [\"{}\"]\nconnect_timeout = \"1min\"\neject = {{ failures = 0 }}\n",
        backend.url()
    );
    let route = "[[routes]]\npath = \"/*\"\nupstream = \"api\"\ntimeout = \"2min\"\n[server]\nworkers = 1\n";
    let gateway = Gateway::start(&(upstream + route));
    gateway.get("/").expect(200);
    let before = gateway.anonymous_kib();
    let (connections, streams) = CLOSED;
    let clients: Vec<Frames> = (0..connections)
        .map(|_| {
            let mut client = Frames::over(Client::connect(gateway.addr()), &[(INITIAL_WINDOW_SIZE, 1_000)]);
            (0..streams).for_each(|stream| client.request(2 * stream + 1, &get("/large", &[])));
            client
        })
        .collect();
    backend.wait_for(1 + (connections * streams) as usize);
    // As much of the answers comes as the gateway takes.
    std::thread::sleep(Duration::from_secs(1));
    let held = gateway.anonymous_kib().saturating_sub(before);
    let max = u64::from(connections * streams) * STREAM_KIB;
    println!("{held} KiB for {} streams", connections * streams);
    assert!(held < max, "{held} KiB are held for clients that open no window");
    drop(clients);
    let given_back = || (gateway.anonymous_kib().saturating_sub(before) < held * 3 / 4).then_some(());
    eventually("memory that is given back", given_back);
    gateway.get("/").expect(200);
}
