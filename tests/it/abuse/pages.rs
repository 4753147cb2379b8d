//! Large answers of the gateway itself, for clients that do not read them.

use std::io::{Read as _, Write as _};
use std::net::TcpStream;

use socket2::{Domain, Socket, Type};

use crate::harness::frames::{Frames, HEADERS, get};
use crate::harness::{Client, Gateway};

const PAGE: usize = 1 << 20;
/// RFC 9113 §6.5.2.
const INITIAL_WINDOW_SIZE: u16 = 4;
/// The most that 200 unread responses may hold. As copies of the page they would hold 200 MiB.
const MAX_KIB: u64 = 24 << 10;

/// A page of one MiB as the answer to `/page`, and of all requests without a route.
fn gateway() -> Gateway {
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("page.html");
    let page: Vec<u8> = (0..PAGE).map(|place| b'a' + u8::try_from(place % 23).expect("small")).collect();
    std::fs::write(&file, page).expect("it is written");
    let gateway = Gateway::start(&format!(
        "[server]\nworkers = 1\n[[routes]]\npath = \"/page\"\nrespond = {{ body_file = \"{0}\" }}\n\
         [[routes]]\npath = \"/refused\"\nrespond = {{}}\nlimits = [\"none\"]\n\
         [limits.none]\nalgorithm = \"token-bucket\"\nkey = \"header:x-key\"\nmissing = \"deny\"\nrate = \"1/day\"\n\
         [errors]\n404 = {{ body_file = \"{0}\" }}\n429 = {{ body_file = \"{0}\" }}\n",
        file.display()
    ));
    for (path, status) in PATHS {
        let answer = gateway.get(path).expect(status);
        assert_eq!(answer.body.len(), PAGE, "{path}");
        assert!(answer.body.iter().enumerate().all(|(place, byte)| usize::from(byte - b'a') == place % 23));
    }
    gateway
}

const PATHS: [(&str, u16); 3] = [("/page", 200), ("/none", 404), ("/refused", 429)];

#[test]
fn streams_with_closed_windows_share_one_page() {
    let gateway = gateway();
    let before = gateway.anonymous_kib();
    let clients: Vec<Frames> = (0..4)
        .map(|_| {
            let mut client = Frames::over(Client::connect(gateway.addr()), &[(INITIAL_WINDOW_SIZE, 1_000)]);
            for stream in 0..50 {
                client.request(2 * stream + 1, &get(PATHS[stream as usize % 3].0, &[]));
            }
            // Each has its head, and as much of the page as the window lets through.
            (0..50).for_each(|_| drop(client.read_until(HEADERS)));
            client
        })
        .collect();
    let held = gateway.anonymous_kib().saturating_sub(before);
    println!("{held} KiB");
    assert!(held < MAX_KIB, "{held} KiB are held for {} clients", clients.len());
    gateway.get("/page").expect(200);
}

#[test]
fn connections_that_are_not_read_share_one_page() {
    let gateway = gateway();
    let before = gateway.anonymous_kib();
    let mut clients: Vec<TcpStream> = (0..200)
        .map(|number| {
            let socket = Socket::new(Domain::IPV4, Type::STREAM, None).expect("a socket");
            // What the kernels hold is little.
            socket.set_recv_buffer_size(4096).expect("a socket option");
            socket.connect(&gateway.addr().into()).expect("a connection");
            let mut client = TcpStream::from(socket);
            let path = PATHS[number % 3].0;
            write!(client, "GET {path} HTTP/1.1\r\nhost: test\r\nconnection: close\r\n\r\n")
                .expect("it is sent");
            client
        })
        .collect();
    let mut begin = [0; 9];
    for client in &mut clients {
        client.read_exact(&mut begin).expect("the begin of the response");
        assert_eq!(&begin, b"HTTP/1.1 ");
    }
    let held = gateway.anonymous_kib().saturating_sub(before);
    println!("{held} KiB");
    assert!(held < MAX_KIB, "{held} KiB are held for {} clients", clients.len());
    for client in &mut clients {
        let mut rest = Vec::new();
        client.read_to_end(&mut rest).expect("the rest");
        assert!(rest.len() > PAGE && rest.ends_with(b"stuvwabcdef"), "{} bytes", rest.len());
    }
}
