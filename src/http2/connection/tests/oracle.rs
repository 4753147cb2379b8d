//! Exchanges with the `h2` crate as the peer, which also checks the windows.

use std::future::poll_fn;
use std::io;
use std::pin::Pin;
use std::time::Duration;

use bytes::Bytes;
use http::{HeaderMap, HeaderValue};
use proptest::collection::vec;
use proptest::option;
use proptest::prelude::*;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::sync::mpsc;
use tokio::task::{JoinSet, LocalSet, spawn_local};
use tokio::time::{sleep, timeout};

use super::super::Reset;
use super::*;
use crate::http2::hpack::encoder::Scheme;

/// The end of a pipe, with tokio's traits.
struct Adapter(Pipe);

impl AsyncRead for Adapter {
    fn poll_read(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        out: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let mut received = BytesMut::new();
        let read = self.0.poll_read(context, &mut received, out.remaining());
        out.put_slice(&received);
        read.map_ok(drop)
    }
}

impl AsyncWrite for Adapter {
    fn poll_write(self: Pin<&mut Self>, context: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        self.0.poll_write(context, bytes, &[])
    }

    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.0.close_sending();
        Poll::Ready(Ok(()))
    }
}

/// The body that one side sends, and its timing.
#[derive(Clone, Copy, Debug)]
struct Body {
    length: usize,
    /// Bytes per write.
    piece: usize,
    /// The sender waits after each group of this number of writes.
    pause: usize,
    trailers: bool,
    /// The body is aborted after this number of bytes.
    reset: Option<usize>,
}

impl Body {
    fn piece_at(&self, sent: usize) -> Vec<u8> {
        let end = self.length.min(sent + self.piece).min(self.reset.unwrap_or(usize::MAX));
        (sent..end).map(byte).collect()
    }

    async fn pause(&self, pieces: usize) {
        if pieces.is_multiple_of(self.pause) {
            sleep(Duration::from_millis(1)).await;
        }
    }

    fn breaks_off(&self, sent: usize) -> bool {
        self.reset.is_some_and(|reset| sent >= reset)
    }
}

/// The byte of a body at an index.
fn byte(index: usize) -> u8 {
    u8::try_from(index * 31 % 251).expect("below 251")
}

fn assert_goes_on(bytes: &[u8], from: usize) {
    assert!(
        bytes.iter().enumerate().all(|(index, found)| *found == byte(from + index)),
        "not in order at {from}"
    );
}

/// The outcome of a received body.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Came {
    Whole { length: usize, trailers: bool },
    Broken,
}

/// A request and its response.
#[derive(Clone, Copy, Debug)]
struct Exchange {
    up: Body,
    down: Body,
    interim: bool,
}

impl Exchange {
    /// Asserts that both bodies were received completely, unless one was aborted, which resets the stream.
    fn check(&self, body: &Body, came: Came) {
        let whole = Came::Whole { length: body.length, trailers: body.trailers };
        let broken = self.up.reset.is_some() || self.down.reset.is_some();
        assert!(came == whole || broken && came == Came::Broken, "{came:?} of {body:?}");
    }
}

fn body() -> impl Strategy<Value = Body> {
    let length = prop_oneof![Just(0_usize), 1..2_000_usize, 1..300_000_usize];
    let piece = prop_oneof![1..40_000_usize, 5_000..9_000_usize];
    let reset = option::weighted(0.1, 0..100_000_usize);
    (length, piece, 1..9_usize, any::<bool>(), reset).prop_map(|(length, piece, pause, trailers, reset)| {
        Body { length, piece: piece.max(length / 200 + 1), pause, trailers, reset }
    })
}

fn exchanges() -> impl Strategy<Value = Vec<Exchange>> {
    let exchange = (body(), body(), any::<bool>());
    vec(exchange.prop_map(|(up, down, interim)| Exchange { up, down, interim }), 1..12)
}

async fn receive(stream: &StreamHandle, body: &Body) -> Came {
    let (mut length, mut pieces, mut received, mut held) = (0, 0, BytesMut::new(), 0);
    loop {
        // Bytes are released when more are requested: those of the last read never are.
        stream.release(std::mem::take(&mut held));
        match poll_fn(|context| stream.poll_read(context, &mut received)).await {
            Ok(0) => {
                let trailers = stream.trailers().expect("the body is over");
                assert!(trailers.is_empty() || &trailers[..] == b"a: b\r\n");
                return Came::Whole { length, trailers: !trailers.is_empty() };
            }
            Ok(read) => {
                assert_eq!(received.len(), read);
                assert_goes_on(&received, length);
                length += read;
                pieces += 1;
                body.pause(pieces).await;
                received.clear();
                held = read;
            }
            Err(_) => return Came::Broken,
        }
    }
}

async fn send(stream: &StreamHandle, body: &Body) {
    let (mut sent, mut pieces) = (0, 0);
    while sent < body.length {
        if body.breaks_off(sent) {
            return stream.reset(ErrorCode::INTERNAL_ERROR);
        }
        let piece = body.piece_at(sent);
        let mut rest = &piece[..];
        while !rest.is_empty() {
            let Ok(room) = poll_fn(|context| stream.poll_room(context, rest.len())).await else { return };
            assert!(room > 0 && room <= rest.len());
            let written = stream.send_data(&rest[..room], false).expect("there was room");
            assert_eq!(written, room);
            rest = &rest[written..];
        }
        sent += piece.len();
        pieces += 1;
        body.pause(pieces).await;
    }
    let _reset = stream.send_end(if body.trailers { b"a: b\r\n" } else { b"" });
}

async fn receive_h2(mut from: h2::RecvStream, body: &Body) -> Came {
    let (mut length, mut pieces) = (0, 0);
    while let Some(data) = from.data().await {
        let Ok(data) = data else { return broken(data.err()) };
        assert_goes_on(&data, length);
        length += data.len();
        pieces += 1;
        body.pause(pieces).await;
        let _gone = from.flow_control().release_capacity(data.len());
    }
    match from.trailers().await {
        Ok(trailers) => Came::Whole { length, trailers: trailers.is_some() },
        Err(error) => broken(Some(error)),
    }
}

/// A stream may be reset; `h2` checks the rules of the protocol.
fn broken(error: Option<h2::Error>) -> Came {
    let reason = error.as_ref().and_then(h2::Error::reason);
    let honest = [h2::Reason::INTERNAL_ERROR, h2::Reason::CANCEL, h2::Reason::NO_ERROR];
    assert!(reason.is_some_and(|reason| honest.contains(&reason)), "{error:?}");
    Came::Broken
}

async fn send_h2(mut to: h2::SendStream<Bytes>, body: &Body) {
    let (mut sent, mut pieces) = (0, 0);
    while sent < body.length {
        if body.breaks_off(sent) {
            return to.send_reset(h2::Reason::INTERNAL_ERROR);
        }
        let piece = body.piece_at(sent);
        to.reserve_capacity(piece.len());
        let room = poll_fn(|context| to.poll_capacity(context)).await;
        let Some(Ok(room)) = room else { return };
        let piece = Bytes::copy_from_slice(&piece[..room.min(piece.len())]);
        sent += piece.len();
        if to.send_data(piece, false).is_err() {
            return;
        }
        pieces += 1;
        body.pause(pieces).await;
    }
    let _reset = if body.trailers {
        to.send_trailers(HeaderMap::from_iter([(
            http::HeaderName::from_static("a"),
            HeaderValue::from_static("b"),
        )]))
    } else {
        to.send_data(Bytes::new(), true)
    };
}

/// Sizes of windows: ours for a stream and for the connection, then the peer's for a stream and for the connection.
type Windows = (u32, u32, u32, u32);

fn windows() -> impl Strategy<Value = Windows> {
    let stream = || prop_oneof![Just(1_000_u32), 2_000..70_000_u32];
    (stream(), 65_535..200_000_u32, stream(), 65_535..200_000_u32)
}

fn settings((stream_window, connection_window, ..): Windows) -> LocalSettings {
    LocalSettings { stream_window, max_stream_window: stream_window, connection_window, ..SETTINGS }
}

/// Asserts that all bytes were released.
fn assert_windows_are_open(connection: &Http2Codec) {
    assert_eq!(connection.state.borrow().receiving.window.used(), 0);
    assert!(connection.state.borrow().streams.is_empty());
    assert!(connection.state.borrow().sending.waiters.is_empty());
}

/// The number of a request, from its path.
fn number(path: &str) -> usize {
    path.trim_start_matches('/').parse().expect("a number")
}

async fn serve_ours(connection: Rc<Http2Codec>, exchanges: Rc<Vec<Exchange>>) {
    let mut tasks = JoinSet::new();
    while let Some(request) = poll_fn(|context| connection.poll(context)).await {
        let exchanges = Rc::clone(&exchanges);
        tasks.spawn_local(async move {
            let head = request.head.expect("a good head");
            let text = String::from_utf8(head.text.to_vec()).expect("text");
            let exchange = exchanges[number(text.split(' ').nth(1).expect("a path"))];
            let stream = request.stream;
            if exchange.interim && stream.send_response(b"HTTP/1.1 103 Early Hints\r\n\r\n", false).is_err() {
                return;
            }
            if stream.send_response(RESPONSE, false).is_ok() {
                let ((), came) = tokio::join!(send(&stream, &exchange.down), receive(&stream, &exchange.up));
                exchange.check(&exchange.up, came);
            }
        });
    }
    while let Some(task) = tasks.join_next().await {
        task.expect("no task panicked");
    }
}

async fn with_h2_client(exchanges: Vec<Exchange>, windows: Windows, sizes: Vec<u32>) {
    let exchanges = Rc::new(exchanges);
    let (ours, theirs) = Pipe::new();
    let connection =
        Http2Codec::server(Rc::new(Stream::Pipe(ours)), BytesMut::new(), Rc::default(), &settings(windows));
    let serving = spawn_local(serve_ours(Rc::clone(&connection), Rc::clone(&exchanges)));
    let mut builder = h2::client::Builder::new();
    builder.initial_window_size(windows.2).initial_connection_window_size(windows.3);
    let (requests, mut client) = builder.handshake::<_, Bytes>(Adapter(theirs)).await.expect("a handshake");
    let (resize, mut resized) = mpsc::unbounded_channel();
    let driving = spawn_local(poll_fn(move |context| {
        while let Poll::Ready(Some(size)) = resized.poll_recv(context) {
            let _another_waits = client.set_initial_window_size(size);
        }
        Pin::new(&mut client).poll(context)
    }));
    for _round in 0..2 {
        let mut tasks = JoinSet::new();
        for (index, exchange) in exchanges.iter().copied().enumerate() {
            let requests = requests.clone();
            tasks.spawn_local(async move {
                let mut requests = requests.ready().await.expect("the server is there");
                let uri = format!("http://a/{index}");
                let request = http::Request::post(uri).body(()).expect("a request");
                let (answer, to) = requests.send_request(request, false).expect("it is sent");
                let receiving = async {
                    match answer.await {
                        Ok(answer) => receive_h2(answer.into_body(), &exchange.down).await,
                        Err(error) => broken(Some(error)),
                    }
                };
                let ((), came) = tokio::join!(send_h2(to, &exchange.up), receiving);
                exchange.check(&exchange.down, came);
            });
        }
        for size in &sizes {
            sleep(Duration::from_millis(3)).await;
            let _open = resize.send(*size);
        }
        while let Some(task) = tasks.join_next().await {
            task.expect("no task panicked");
        }
        // Frames in flight arrive.
        sleep(Duration::from_secs(1)).await;
        assert_windows_are_open(&connection);
    }
    connection.shut_down();
    drop(requests);
    driving.await.expect("no panic").expect("a good end");
    serving.await.expect("no panic");
}

async fn serve_h2(theirs: Pipe, exchanges: Rc<Vec<Exchange>>, windows: Windows, sizes: Vec<u32>) {
    let mut builder = h2::server::Builder::new();
    builder
        .initial_window_size(windows.2)
        .initial_connection_window_size(windows.3)
        .max_concurrent_streams(5);
    let mut server = builder.handshake::<_, Bytes>(Adapter(theirs)).await.expect("a handshake");
    let (mut tasks, mut sizes) = (JoinSet::new(), sizes.iter());
    while let Some(request) = server.accept().await {
        let (request, mut respond) = request.expect("no rule is broken");
        let exchange = exchanges[number(request.uri().path())];
        if let Some(size) = sizes.next() {
            let _another_waits = server.set_initial_window_size(*size);
        }
        tasks.spawn_local(async move {
            if exchange.interim {
                let head = http::Response::builder().status(103).body(()).expect("a head");
                let _reset = respond.send_informational(head);
            }
            let Ok(to) = respond.send_response(http::Response::new(()), false) else { return };
            let receiving = receive_h2(request.into_body(), &exchange.up);
            let ((), came) = tokio::join!(send_h2(to, &exchange.down), receiving);
            exchange.check(&exchange.up, came);
        });
    }
    while let Some(task) = tasks.join_next().await {
        task.expect("no task panicked");
    }
}

async fn ask_ours(connection: Rc<Http2Codec>, index: usize, exchange: Exchange) {
    poll_fn(|context| connection.poll_open(context)).await.expect("the server is there");
    let head = format!("POST /{index} HTTP/1.1\r\nhost: a\r\ntransfer-encoding: chunked\r\n\r\n");
    let stream = connection.open(head.as_bytes(), Scheme::Http, false).expect("it is open");
    let receiving = async {
        loop {
            match poll_fn(|context| stream.poll_head(context)).await {
                Ok((head, ended)) => {
                    assert!(!ended);
                    if head.status == 200 {
                        return receive(&stream, &exchange.down).await;
                    }
                }
                Err(reset) => {
                    assert!(matches!(reset, Reset::Remote(_) | Reset::Fault), "{reset:?}");
                    return Came::Broken;
                }
            }
        }
    };
    let ((), came) = tokio::join!(send(&stream, &exchange.up), receiving);
    exchange.check(&exchange.down, came);
}

async fn with_h2_server(exchanges: Vec<Exchange>, windows: Windows, sizes: Vec<u32>) {
    let exchanges = Rc::new(exchanges);
    let (ours, theirs) = Pipe::new();
    // After it has reduced a window, `h2` may never send the update that the peer needs.
    let mut sizes: Vec<u32> = sizes.into_iter().filter(|size| *size > windows.2).collect();
    sizes.sort_unstable();
    let serving = spawn_local(serve_h2(theirs, Rc::clone(&exchanges), windows, sizes));
    let connection = Http2Codec::client(Rc::new(Stream::Pipe(ours)), &settings(windows));
    let driven = Rc::clone(&connection);
    let driving = spawn_local(async move {
        let request = poll_fn(|context| driven.poll(context)).await;
        assert!(request.is_none());
    });
    for _round in 0..2 {
        let mut tasks = JoinSet::new();
        for (index, exchange) in exchanges.iter().copied().enumerate() {
            tasks.spawn_local(ask_ours(Rc::clone(&connection), index, exchange));
        }
        while let Some(task) = tasks.join_next().await {
            task.expect("no task panicked");
        }
        sleep(Duration::from_secs(1)).await;
        assert_windows_are_open(&connection);
    }
    connection.abort(ErrorCode::NO_ERROR);
    driving.await.expect("no panic");
    drop(connection);
    serving.await.expect("no panic");
}

/// Runs a test with paused time, so that a hang fails at once.
fn run(test: impl Future<Output = ()>) {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build();
    let test = async {
        timeout(Duration::from_secs(3_600), test).await.expect("it hangs");
    };
    runtime.expect("a runtime").block_on(LocalSet::new().run_until(test));
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 25, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn exchanges_with_a_client_of_h2_are_whole(
        exchanges in exchanges(),
        windows in windows(),
        sizes in vec(0..100_000_u32, 0..4),
        last in 100_000..200_000_u32,
    ) {
        run(with_h2_client(exchanges, windows, [sizes, ::std::vec![last]].concat()));
    }

    #[test]
    fn exchanges_with_a_server_of_h2_are_whole(
        exchanges in exchanges(),
        windows in windows(),
        sizes in vec(1..100_000_u32, 0..4),
    ) {
        run(with_h2_server(exchanges, windows, sizes));
    }
}

/// A server that opens the window of a stream late, as that is larger than half of the connection's window.
#[test]
fn uploads_to_a_server_with_large_stream_windows_are_whole() {
    let upload = |length| Exchange {
        up: Body { length, piece: 8_737, pause: 1, trailers: false, reset: None },
        down: Body { length: 0, piece: 1, pause: 1, trailers: false, reset: None },
        interim: false,
    };
    for connection_window in [65_535, 72_094, 200_000] {
        let windows = (1_000, 91_591, 1 << 20, connection_window);
        run(with_h2_server(
            vec![upload(33_226), upload(132_775), upload(500_000)],
            windows,
            vec![99_723, 17_652],
        ));
    }
}
