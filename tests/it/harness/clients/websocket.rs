//! WebSockets over HTTP/2 (RFC 8441) and their handshakes, by the `h2` crate. Their bytes are any bytes: nothing here knows
//! the frames of RFC 6455.

use std::future::poll_fn;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use h2::ext::Protocol;
use h2::server::SendResponse;
use h2::{Reason, RecvStream, SendStream};
use http::{Method, Request, Response, StatusCode};

use super::http2_client::{Answer, Http2};
use crate::harness::{Backend, Exchange, Next};

/// An open one, on the side of the client.
#[derive(Debug)]
pub(crate) struct WebSocket<'c> {
    client: &'c Http2,
    /// The head of the answer that has opened it.
    pub(crate) head: Answer,
    sending: SendStream<Bytes>,
    receiving: RecvStream,
    received: Vec<u8>,
}

/// The extended CONNECT for a WebSocket at `path` of `test`.
pub(crate) fn websocket_at(path: &str) -> Request<()> {
    let request = Request::builder().method(Method::CONNECT).uri(format!("http://test{path}"));
    let request = request.header("sec-websocket-version", "13").extension(Protocol::from_static("websocket"));
    request.body(()).expect("a request")
}

impl<'c> WebSocket<'c> {
    /// Opens one at `path`.
    #[track_caller]
    pub(crate) fn open(client: &'c Http2, path: &str) -> Self {
        Self::ask(client, websocket_at(path)).expect("it opens")
    }

    /// Opens one by this handshake, or gives the answer that refuses it.
    #[track_caller]
    pub(crate) fn ask(client: &'c Http2, request: Request<()>) -> Result<Self, Box<Answer>> {
        client.wait_for_connect_protocol();
        let (sending, answer) = client.begin(request);
        Self::opened(client, sending, answer)
    }

    /// The same once the handshake was sent.
    pub(crate) fn opened(
        client: &'c Http2,
        sending: SendStream<Bytes>,
        answer: h2::client::ResponseFuture,
    ) -> Result<Self, Box<Answer>> {
        let (head, receiving) = client.block_on(answer).expect("an answer").into_parts();
        let (status, headers) = (head.status.as_u16(), head.headers);
        let mut socket = Self {
            client,
            head: Answer { status, headers, ..Answer::default() },
            sending,
            receiving,
            received: Vec::new(),
        };
        if status == 200 {
            return Ok(socket);
        }
        let body = socket.read_to_end().expect("a whole body");
        Err(Box::new(Answer { body, ..socket.head }))
    }

    /// Sends bytes, as the gateway takes them.
    pub(crate) fn write(&mut self, bytes: impl Into<Bytes>) {
        self.try_write(bytes).expect("the gateway takes it");
    }

    /// The same for a gateway that may take no more.
    pub(crate) fn try_write(&mut self, bytes: impl Into<Bytes>) -> Result<(), h2::Error> {
        let (sending, mut bytes) = (&mut self.sending, bytes.into());
        self.client.block_on(async {
            while !bytes.is_empty() {
                sending.reserve_capacity(bytes.len());
                let room = poll_fn(|context| sending.poll_capacity(context)).await;
                let room = room.unwrap_or(Err(Reason::CANCEL.into()))?;
                sending.send_data(bytes.split_to(room.min(bytes.len())), false)?;
            }
            Ok(())
        })
    }

    /// Sends no more. The gateway may have reset the stream already.
    pub(crate) fn end(&mut self) {
        self.sending.send_data(Bytes::new(), true).ok();
    }

    /// Resets the stream.
    pub(crate) fn reset(mut self) {
        self.sending.send_reset(Reason::CANCEL);
    }

    /// Reads this number of bytes, and lets the gateway send as many more.
    pub(crate) fn read_exact(&mut self, count: usize) -> Vec<u8> {
        while self.received.len() < count {
            let more = self.next().expect("no reset").expect("more bytes");
            self.received.extend_from_slice(&more);
        }
        self.received.drain(..count).collect()
    }

    /// Reads to the end.
    pub(crate) fn read_to_end(&mut self) -> Result<Vec<u8>, h2::Error> {
        let mut bytes = std::mem::take(&mut self.received);
        while let Some(more) = self.next()? {
            bytes.extend_from_slice(&more);
        }
        Ok(bytes)
    }

    fn next(&mut self) -> Result<Option<Bytes>, h2::Error> {
        let receiving = &mut self.receiving;
        let Some(data) = self.client.block_on(receiving.data()).transpose()? else { return Ok(None) };
        receiving.flow_control().release_capacity(data.len())?;
        Ok(Some(data))
    }
}

/// The `sec-websocket-accept` for a key (RFC 6455 §4.2.2).
pub(crate) fn accept_for(key: &str) -> String {
    let text = format!("{key}258EAFA5-E914-47DA-95CA-C5AB0DC85B11");
    STANDARD.encode(sha1_smol::Sha1::from(text).digest().bytes())
}

/// Opens the WebSocket that is asked for over HTTP/1.1, with more header lines.
pub(crate) fn accept(exchange: &mut Exchange<'_>, lines: &str) {
    let accept = accept_for(&exchange.field("sec-websocket-key").expect("a key"));
    exchange.write(format!(
        "HTTP/1.1 101 Switching Protocols\r\nconnection: Upgrade\r\nupgrade: websocket\r\n\
         sec-websocket-accept: {accept}\r\n{lines}\r\n"
    ));
}

/// A backend of HTTP/1.1 that opens each WebSocket, and sends back whatever comes.
pub(crate) fn echoing() -> Backend {
    Backend::start(|exchange| {
        accept(exchange, "sec-websocket-protocol: chat\r\n");
        loop {
            let bytes = exchange.read_some();
            if bytes.is_empty() {
                return Next::Close;
            }
            exchange.write(bytes);
        }
    })
}

/// Opens the WebSocket of an extended CONNECT.
pub(crate) fn accept_stream(
    request: &Request<RecvStream>,
    respond: &mut SendResponse<Bytes>,
) -> SendStream<Bytes> {
    let protocol = request.extensions().get::<Protocol>().map(Protocol::as_str);
    assert_eq!((request.method(), protocol), (&Method::CONNECT, Some("websocket")));
    let response = Response::builder().status(StatusCode::OK).header("sec-websocket-protocol", "chat");
    respond.send_response(response.body(()).expect("a head"), false).expect("the stream is open")
}

/// Sends back whatever comes on a stream, and then its end.
pub(crate) async fn echo_stream(mut receiving: RecvStream, mut sending: SendStream<Bytes>) {
    while let Some(Ok(data)) = receiving.data().await {
        receiving.flow_control().release_capacity(data.len()).ok();
        crate::harness::send_all(&mut sending, data, false).await;
    }
    sending.send_data(Bytes::new(), true).ok();
}
