//! A client that speaks HTTP/2 as ordinary ones do, by the `h2` crate. The gateway uses the same crate, so what it might
//! misread on both sides is for [`crate::harness::Frames`] to find.

use std::future::poll_fn;
use std::net::SocketAddr;
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use bytes::Bytes;
use h2::client::{Builder, ResponseFuture, SendRequest};
use h2::{Reason, SendStream};
use http::{HeaderMap, Request};
use rustls::ClientConfig;
use rustls::pki_types::ServerName;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio::runtime::Runtime;
use tokio::task::JoinHandle;
use tokio_rustls::TlsConnector;

use crate::harness::TIMEOUT;

/// One connection.
#[derive(Debug)]
pub(crate) struct Http2 {
    runtime: Runtime,
    sender: SendRequest<Bytes>,
    connection: JoinHandle<Result<(), h2::Error>>,
}

/// What is sent behind a head.
#[derive(Clone, Debug, Default)]
pub(crate) struct Body {
    pub(crate) bytes: Vec<u8>,
    pub(crate) trailers: Option<HeaderMap>,
}

/// A whole answer.
#[derive(Clone, Debug, Default)]
pub(crate) struct Answer {
    pub(crate) status: u16,
    pub(crate) headers: HeaderMap,
    pub(crate) body: Vec<u8>,
    pub(crate) trailers: Option<HeaderMap>,
    /// Statuses that came before.
    pub(crate) interim: Vec<u16>,
}

impl Http2 {
    /// Connects with prior knowledge.
    pub(crate) fn connect(address: SocketAddr) -> Self {
        Self::connect_with(address, &Builder::new())
    }

    /// As [`Self::connect`], with these settings.
    pub(crate) fn connect_with(address: SocketAddr, settings: &Builder) -> Self {
        let runtime = runtime();
        let stream = runtime.block_on(TcpStream::connect(address)).expect("the gateway takes connections");
        stream.set_nodelay(true).expect("a socket option");
        Self::over(runtime, stream, settings)
    }

    /// Connects over TLS, which must come to HTTP/2.
    pub(crate) fn connect_tls(address: SocketAddr, config: &Arc<ClientConfig>, name: &str) -> Self {
        let runtime = runtime();
        let name = ServerName::try_from(name.to_owned()).expect("a name");
        let stream = runtime.block_on(async {
            let stream = TcpStream::connect(address).await.expect("the gateway takes connections");
            TlsConnector::from(Arc::clone(config)).connect(name, stream).await.expect("a handshake")
        });
        assert_eq!(stream.get_ref().1.alpn_protocol(), Some(&b"h2"[..]));
        Self::over(runtime, stream, &Builder::new())
    }

    fn over(
        runtime: Runtime,
        stream: impl AsyncRead + AsyncWrite + Send + Unpin + 'static,
        settings: &Builder,
    ) -> Self {
        let (sender, connection) = runtime.block_on(settings.handshake(stream)).expect("a handshake");
        let connection = runtime.spawn(connection);
        Self { runtime, sender, connection }
    }

    /// Sends one request and reads its answer.
    pub(crate) fn exchange(&self, request: Request<()>, body: impl Into<Body>) -> Result<Answer, h2::Error> {
        self.all([(request, body.into())]).remove(0)
    }

    /// `GET path`.
    #[track_caller]
    pub(crate) fn get(&self, path: &str) -> Answer {
        self.exchange(get(path), Body::default()).expect("an answer")
    }

    /// Sends requests at once, as many as the gateway allows, and gives the answers in the same order.
    pub(crate) fn all(
        &self,
        requests: impl IntoIterator<Item = (Request<()>, Body)>,
    ) -> Vec<Result<Answer, h2::Error>> {
        let begin = |(request, body)| self.runtime.spawn(exchange(self.sender.clone(), request, body));
        let tasks: Vec<_> = requests.into_iter().map(begin).collect();
        tasks.into_iter().map(|task| self.block_on(task).expect("no panic")).collect()
    }

    /// Begins a request whose body goes on. Gives what sends that, and what waits for the answer.
    pub(crate) fn begin(&self, request: Request<()>) -> (SendStream<Bytes>, ResponseFuture) {
        self.try_begin(request).expect("room for a stream")
    }

    /// As [`Self::begin`], on a connection that the gateway may have ended.
    pub(crate) fn try_begin(
        &self,
        request: Request<()>,
    ) -> Result<(SendStream<Bytes>, ResponseFuture), h2::Error> {
        let mut sender = self.block_on(self.sender.clone().ready())?;
        let (answer, body) = sender.send_request(request, false)?;
        Ok((body, answer))
    }

    /// Waits until the gateway has announced that it serves extended CONNECT (RFC 8441 §3).
    pub(crate) fn wait_for_connect_protocol(&self) {
        self.block_on(async {
            while !self.sender.is_extended_connect_protocol_enabled() {
                tokio::time::sleep(Duration::from_millis(2)).await;
            }
        });
    }

    /// Waits for the answer of what was begun.
    pub(crate) fn finish(&self, answer: ResponseFuture) -> Result<Answer, h2::Error> {
        self.block_on(read(answer))
    }

    /// Reads the body of what was begun until it is enough, and no further.
    pub(crate) fn read_until(&self, answer: ResponseFuture, is_enough: impl Fn(&[u8]) -> bool) {
        self.block_on(async {
            let mut body = answer.await.expect("an answer").into_body();
            let mut read = Vec::new();
            while !is_enough(&read) {
                read.extend_from_slice(&body.data().await.expect("more of the body").expect("a part"));
            }
        });
    }

    /// Waits until the gateway resets a stream whose body goes on.
    pub(crate) fn until_reset(&self, mut body: SendStream<Bytes>) -> Reason {
        self.block_on(poll_fn(|context| body.poll_reset(context))).expect("a reset")
    }

    /// Whether the gateway has asked for no more streams, or will soon.
    pub(crate) fn is_told_to_leave(&self) -> bool {
        self.block_on(async {
            loop {
                if self.sender.clone().ready().await.is_err() {
                    return true;
                }
                tokio::time::sleep(Duration::from_millis(2)).await;
            }
        })
    }

    /// Waits for the end of the connection.
    pub(crate) fn end(self) -> Result<(), h2::Error> {
        let Self { runtime, sender, connection } = self;
        drop(sender);
        let ended = async { tokio::time::timeout(TIMEOUT, connection).await.expect("it ends") };
        runtime.block_on(ended).expect("no panic")
    }

    pub(super) fn block_on<T>(&self, future: impl Future<Output = T>) -> T {
        let bounded = async { tokio::time::timeout(TIMEOUT, future).await.expect("in time") };
        self.runtime.block_on(bounded)
    }
}

impl From<&[u8]> for Body {
    fn from(bytes: &[u8]) -> Self {
        Self { bytes: bytes.to_vec(), trailers: None }
    }
}

impl Answer {
    /// A field's value; panics if it came more than once.
    #[track_caller]
    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        assert!(self.headers.get_all(name).iter().count() < 2, "{:?}", self.headers);
        self.headers.get(name).map(|value| value.to_str().expect("text"))
    }

    /// Panics unless the status is this one.
    #[track_caller]
    pub(crate) fn expect(self, status: u16) -> Self {
        assert_eq!(self.status, status, "{:?}\n{}", self.headers, String::from_utf8_lossy(&self.body));
        self
    }
}

/// `GET path` from `test`.
pub(crate) fn get(path: &str) -> Request<()> {
    Request::get(format!("http://test{path}")).body(()).expect("a request")
}

/// Why a stream or a connection was ended.
pub(crate) fn reason<T>(result: Result<T, h2::Error>) -> Option<Reason> {
    result.err().and_then(|error| error.reason())
}

fn runtime() -> Runtime {
    tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().expect("a runtime")
}

async fn exchange(sender: SendRequest<Bytes>, request: Request<()>, body: Body) -> Result<Answer, h2::Error> {
    let ends = body.bytes.is_empty() && body.trailers.is_none();
    let (answer, stream) = sender.ready().await?.send_request(request, ends)?;
    if !ends {
        tokio::spawn(upload(stream, body));
    }
    read(answer).await
}

/// Ends early where the gateway wants no more.
async fn upload(mut stream: SendStream<Bytes>, body: Body) {
    let mut rest = Bytes::from(body.bytes);
    while !rest.is_empty() {
        stream.reserve_capacity(rest.len());
        let Some(Ok(room)) = poll_fn(|context| stream.poll_capacity(context)).await else { return };
        let part = rest.split_to(room.min(rest.len()));
        if stream.send_data(part, rest.is_empty() && body.trailers.is_none()).is_err() {
            return;
        }
    }
    if let Some(trailers) = body.trailers {
        stream.send_trailers(trailers).ok();
    }
}

async fn read(mut answer: ResponseFuture) -> Result<Answer, h2::Error> {
    let mut interim = Vec::new();
    let response = poll_fn(|context| {
        while let Poll::Ready(Some(Ok(head))) = answer.poll_informational(context) {
            interim.push(head.status().as_u16());
        }
        std::pin::Pin::new(&mut answer).poll(context)
    })
    .await?;
    let (head, mut stream) = response.into_parts();
    let mut body = Vec::new();
    while let Some(data) = stream.data().await {
        let data = data?;
        body.extend_from_slice(&data);
        stream.flow_control().release_capacity(data.len())?;
    }
    let trailers = stream.trailers().await?;
    Ok(Answer { status: head.status.as_u16(), headers: head.headers, body, trailers, interim })
}
