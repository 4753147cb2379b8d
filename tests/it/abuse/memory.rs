//! What a connection costs that does nothing.

use std::net::SocketAddr;
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use bytes::Bytes;
use h2::server::{Builder, SendResponse};
use http::Response;
use rustix::process::{Resource, getrlimit};
use socket2::{Domain, Socket, Type};

use crate::harness::frames::{Frames, WINDOW_UPDATE, get};
use crate::harness::servers::over_http2;
use crate::harness::{
    Authority, Backend, Client, Gateway, Http2Backend, binary, eventually, everything_to, send_all,
};

/// Files of this process and of the gateway that are no client's.
const OTHERS: u64 = 1_000;
/// The most that an idle connection may cost: half more than was measured, 5 KiB and behind TLS 20.
const MAX_KIB: f64 = 8.0;
const MAX_TLS_KIB: f64 = 30.0;

/// As many connections as are asked for, or as this system lets a process have.
fn possible(wanted: usize) -> usize {
    let files = getrlimit(Resource::Nofile).current.unwrap_or(u64::MAX).saturating_sub(OTHERS);
    let count = wanted.min(usize::try_from(files).unwrap_or(usize::MAX));
    if count < wanted {
        eprintln!("only {count} connections of {wanted}: this process may open no more files");
    }
    count
}

/// KiB for each of the connections that `connect` makes and that have served a request.
#[expect(clippy::cast_precision_loss, reason = "far below 2^53")]
fn kib_each(gateway: &Gateway, count: usize, connect: impl Fn(usize) -> Client) -> f64 {
    let mut first = connect(0);
    first.get("/", "").expect(200);
    let before = gateway.anonymous_kib();
    let mut idle: Vec<Client> = (0..count).map(connect).collect();
    idle.iter_mut().for_each(|client| drop(client.get("/", "").expect(200)));
    let open = gateway.metric("tollgate_connections", &["listener"]);
    assert_eq!(open, (count + 1) as f64, "none had to make room");
    (gateway.anonymous_kib() - before) as f64 / count as f64
}

#[test]
fn ten_thousand_idle_connections_take_less_than_8_kib_each() {
    let backend = Backend::ok();
    let rest = "[server]\nmax_connections = 20000\nidle_timeout = \"1h\"\nheader_timeout = \"1h\"\n[admin]\nlisten = \"127.0.0.1:0\"\n";
    let gateway = Gateway::start(&everything_to(&backend, rest));
    let each = kib_each(&gateway, possible(10_000), |number| {
        // Several addresses, as one has too few ports where others run beside.
        let source = [127, 0, 0, u8::try_from(2 + number % 8).expect("a small number")];
        Client::connect_from(source.into(), gateway.addr())
    });
    println!("{each:.1} KiB each");
    assert!(each <= MAX_KIB, "{each:.1} KiB each");
}

#[test]
fn idle_connections_behind_tls_take_less_than_30_kib_each() {
    let backend = Backend::ok();
    let authority = Authority::new();
    authority.certify("a", &["a.test"]);
    let rest = "[server]\nmax_connections = 20000\nidle_timeout = \"1h\"\nheader_timeout = \"1h\"\n[admin]\nlisten = \"127.0.0.1:0\"\n";
    let gateway = Gateway::start(&everything_to(&backend, &format!("{rest}{}", authority.server("a"))));
    let config = authority.client();
    let each =
        kib_each(&gateway, possible(1_000), |_| Client::connect_tls(gateway.addr(), &config, "a.test"));
    println!("{each:.1} KiB each");
    assert!(each <= MAX_TLS_KIB, "{each:.1} KiB each");
}

/// Address space that a gateway is given: half of it is taken at the start, mostly unused (stacks, arenas, counters).
const SPACE_KIB: u64 = 512 << 10;
/// The most that a flood may have it hold: of 2,000 idle connections, 200 heads of 8 KB and 200 bodies on their way. Half more
/// than the 30 MiB that were measured.
const FLOOD_KIB: u64 = 45 << 10;

/// A backend that takes connections and reads hardly anything.
fn slow_backend() -> Socket {
    let socket = Socket::new(Domain::IPV4, Type::STREAM, None).expect("a socket");
    socket.set_recv_buffer_size(4096).expect("a socket option");
    socket.bind(&SocketAddr::from(([127, 0, 0, 1], 0)).into()).expect("a free port");
    socket.listen(1024).expect("it listens");
    socket
}

#[test]
fn a_flood_is_borne_where_memory_is_scarce() {
    let (backend, slow) = (Backend::ok(), slow_backend());
    let address = slow.local_addr().expect("bound").as_socket().expect("IPv4");
    let rest = format!(
        "[server]\nheader_timeout = \"1h\"\n[admin]\nlisten = \"127.0.0.1:0\"\n[upstreams.slow]\nservers = [\"http://{address}\"]\n\
         [[routes]]\nname = \"slow\"\npath = \"/slow\"\nupstream = \"slow\"\n"
    );
    let mut shell = Command::new("sh");
    let limited = format!("ulimit -v {SPACE_KIB} && exec \"$0\" \"$@\"");
    shell.args(["-c", &limited, binary()]).stdin(Stdio::null());
    let mut gateway = Gateway::start_by(&everything_to(&backend, &rest), shell);
    gateway.get("/").expect(200);
    let before = gateway.anonymous_kib();
    let connect = |_| Client::connect(gateway.addr());
    let mut idle: Vec<Client> = (0..possible(2_400) - 400).map(connect).collect();
    let mut heads: Vec<Client> = (0..200).map(connect).collect();
    let half = format!("GET / HTTP/1.1\r\nx: {}", "y".repeat(8_000));
    heads.iter_mut().for_each(|client| client.write(&half));
    let mut bodies: Vec<Client> = (0..200).map(connect).collect();
    let post = b"POST /slow HTTP/1.1\r\nhost: test\r\ncontent-length: 1048576\r\n\r\n";
    let post = [&post[..], &vec![b'x'; 1 << 20]].concat();
    // What the gateway does not take waits in the kernel, or here.
    let sent: usize =
        bodies.iter_mut().map(|client| client.write_within(&post, Duration::from_millis(1))).sum();
    let taken: Vec<_> = (0..200).map(|_| slow.accept().expect("a connection")).collect();
    gateway.get("/").expect(200);
    let grown = gateway.anonymous_kib().saturating_sub(before);
    println!("{grown} KiB for {} connections, {} KiB sent", idle.len() + 400, sent >> 10);
    assert!(grown < FLOOD_KIB, "{grown} KiB");
    assert!(gateway.alive());
    idle.last_mut().expect("many").get("/", "").expect(200);
    heads[0].exchange("\r\nhost: test\r\n\r\n").expect(200);
    drop(taken);
}

/// The most that a client may cost that reads nothing of a response from an HTTP/2 server: 64 KiB were measured at most. On a
/// busy machine the server seems far, so that its windows are 32 KiB larger.
const STALLED_KIB: f64 = 96.0;
/// Many, so that the pages of the runtime weigh little.
const STALLED: u32 = 300;

/// Sends 20 MiB as far as it is accepted, and counts the parts.
async fn send_parts(mut respond: SendResponse<Bytes>, sent: Arc<AtomicUsize>) {
    let mut body = respond.send_response(Response::new(()), false).expect("the gateway waits for it");
    let part = Bytes::from(vec![b'x'; 16 << 10]);
    for _ in 0..1280 {
        send_all(&mut body, part.clone(), false).await;
        sent.fetch_add(1, Ordering::Relaxed);
    }
}

/// The gateway holds no more than [`STALLED_KIB`] for each of the clients, once the allocator has returned what only passed
/// through.
fn stalled_clients_cost_little<T>(connect: impl Fn(&Gateway) -> T) {
    let sent = Arc::new(AtomicUsize::new(0));
    let counted = Arc::clone(&sent);
    let backend =
        Http2Backend::start(Builder::new(), move |_, respond| send_parts(respond, Arc::clone(&counted)));
    let server = "[server]\nwrite_timeout = \"5min\"\nmax_connections_per_client = 5000\n";
    let gateway = Gateway::start(&format!("{}{server}", over_http2(&[&backend.url()], "", "")));
    let first = connect(&gateway);
    let before = gateway.anonymous_kib();
    let stalled: Vec<T> = (0..STALLED).map(|_| connect(&gateway)).collect();
    let mut last = 0;
    eventually("the server to be held up", || {
        std::thread::sleep(Duration::from_millis(500));
        let now = sent.load(Ordering::Relaxed);
        (now > 0 && now == std::mem::replace(&mut last, now)).then_some(())
    });
    let each = || gateway.anonymous_kib().saturating_sub(before) as f64 / f64::from(STALLED);
    println!("{:.1} KiB each", each());
    eventually("little memory for each", || (each() <= STALLED_KIB).then_some(()));
    drop((first, stalled));
}

#[test]
fn a_client_of_http_1_that_reads_nothing_costs_little() {
    stalled_clients_cost_little(|gateway| {
        let mut client = Client::connect_narrow(gateway.addr(), 4096);
        client.write("GET / HTTP/1.1\r\nhost: test\r\n\r\n");
        client
    });
}

/// Its windows have room for the whole response.
#[test]
fn a_client_of_http_2_that_reads_nothing_costs_little() {
    stalled_clients_cost_little(|gateway| {
        let client = Client::connect_narrow(gateway.addr(), 4096);
        let mut frames = Frames::over(client, &[(4, 100 << 20)]);
        frames.send(WINDOW_UPDATE, 0, 0, &(100_u32 << 20).to_be_bytes());
        frames.request(1, &get("/", &[]));
        frames
    });
}
