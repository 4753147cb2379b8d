//! A client that speaks HTTP/3 by the crates `h3` and `h3-quinn`: an implementation that has nothing in common with the
//! gateway's but QUIC itself.

use std::net::SocketAddr;
use std::sync::Arc;

use bytes::{Buf as _, Bytes};
use h3::client::{RequestStream, SendRequest};
use h3::error::StreamError;
use http::{HeaderMap, Request};
use rustls::ClientConfig;
use tokio::task::JoinHandle;

use super::http2_client::{Answer, Body};
use super::quic_client::QuicClient;

/// One connection.
pub(crate) struct Http3 {
    quic: QuicClient,
    sender: SendRequest<h3_quinn::OpenStreams, Bytes>,
    driver: JoinHandle<()>,
}

/// Sends the body of a request.
pub(crate) type Http3Upload = RequestStream<h3_quinn::SendStream<Bytes>, Bytes>;
/// Receives the response.
pub(crate) type Http3Download = RequestStream<h3_quinn::RecvStream, Bytes>;

/// Why there is no whole response.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Http3Lost {
    /// The gateway reset the stream, with this code.
    Reset(u64),
    /// The gateway sent GOAWAY before the request.
    Leaving,
    /// The connection is lost, or the response is malformed.
    Other(String),
}

impl Http3 {
    /// Connects to a gateway that shows a certificate for `a.test`.
    pub(crate) fn connect(address: SocketAddr, tls: &Arc<ClientConfig>) -> Self {
        Self::over(QuicClient::connect(address, tls))
    }

    /// Speaks HTTP/3 on a connection.
    pub(crate) fn over(quic: QuicClient) -> Self {
        let connection = h3_quinn::Connection::new(quic.connection().clone());
        let building = async { h3::client::builder().build::<_, _, Bytes>(connection).await };
        let (mut driver, sender) = quic.block_on(building).expect("HTTP/3 begins");
        let driver = quic.spawn(async move {
            driver.wait_idle().await;
        });
        Self { quic, sender, driver }
    }

    /// The connection below.
    pub(crate) fn quic(&self) -> &QuicClient {
        &self.quic
    }

    /// Sends one request and reads its answer.
    pub(crate) fn exchange(&self, request: Request<()>, body: impl Into<Body>) -> Result<Answer, Http3Lost> {
        self.all([(request, body.into())]).remove(0)
    }

    /// `GET path`.
    #[track_caller]
    pub(crate) fn get(&self, path: &str) -> Answer {
        self.try_get(path).expect("an answer")
    }

    /// `GET path`, on a connection that may have ended.
    pub(crate) fn try_get(&self, path: &str) -> Result<Answer, Http3Lost> {
        self.exchange(h3_get(path), Body::default())
    }

    /// Sends requests at once, as many as the gateway allows, and gives the answers in the same order.
    pub(crate) fn all(
        &self,
        requests: impl IntoIterator<Item = (Request<()>, Body)>,
    ) -> Vec<Result<Answer, Http3Lost>> {
        let begin = |(request, body)| self.quic.spawn(exchange(self.sender.clone(), request, body));
        let tasks: Vec<_> = requests.into_iter().map(begin).collect();
        tasks.into_iter().map(|task| self.quic.block_on(task).expect("no panic")).collect()
    }

    /// Begins a request whose body goes on. Gives what sends that, and what receives the answer.
    pub(crate) fn begin(&self, request: Request<()>) -> (Http3Upload, Http3Download) {
        self.try_begin(request).expect("room for a stream")
    }

    /// As [`Self::begin`], on a connection that the gateway may have ended.
    pub(crate) fn try_begin(&self, request: Request<()>) -> Result<(Http3Upload, Http3Download), Http3Lost> {
        let mut sender = self.sender.clone();
        let stream = self.quic.block_on(async { sender.send_request(request).await })?;
        Ok(stream.split())
    }

    /// Sends a part of a body.
    pub(crate) fn send(&self, upload: &mut Http3Upload, part: &[u8]) -> Result<(), Http3Lost> {
        Ok(self.quic.block_on(upload.send_data(Bytes::copy_from_slice(part)))?)
    }

    /// Ends a body.
    pub(crate) fn end_body(&self, upload: &mut Http3Upload) -> Result<(), Http3Lost> {
        Ok(self.quic.block_on(upload.finish())?)
    }

    /// Waits for the answer of what was begun.
    pub(crate) fn finish(&self, download: Http3Download) -> Result<Answer, Http3Lost> {
        self.quic.block_on(read(download))
    }

    /// Waits for a response's status, and reads nothing else.
    pub(crate) fn status(&self, download: &mut Http3Download) -> Result<u16, Http3Lost> {
        Ok(self.quic.block_on(download.recv_response())?.status().as_u16())
    }

    /// Sends `GET /` until the gateway has asked for no more, and gives the number of responses.
    pub(crate) fn requests_until_told_to_leave(&self, path: &str) -> usize {
        (0..).find(|_| self.try_get(path).is_err()).expect("the gateway ends the connection")
    }

    /// Ends the connection; the gateway is told.
    pub(crate) fn end(self) {
        let Self { quic, sender, driver } = self;
        drop(sender);
        quic.close();
        driver.abort();
    }
}

impl From<StreamError> for Http3Lost {
    fn from(error: StreamError) -> Self {
        match error {
            StreamError::RemoteTerminate { code, .. } => Self::Reset(code.value()),
            // The variant itself cannot be named.
            error if error.to_string() == "Remote is closing the connection" => Self::Leaving,
            error => Self::Other(error.to_string()),
        }
    }
}

/// `GET path` from `a.test`.
pub(crate) fn h3_get(path: &str) -> Request<()> {
    h3_request("GET", path, &[])
}

/// A request to `a.test`.
pub(crate) fn h3_request(method: &str, path: &str, fields: &[(&str, &str)]) -> Request<()> {
    let mut request = Request::builder().method(method).uri(format!("https://a.test{path}"));
    for (name, value) in fields {
        request = request.header(*name, *value);
    }
    request.body(()).expect("a request")
}

async fn exchange(
    mut sender: SendRequest<h3_quinn::OpenStreams, Bytes>,
    request: Request<()>,
    body: Body,
) -> Result<Answer, Http3Lost> {
    let (mut upload, download) = sender.send_request(request).await?.split();
    if body.bytes.is_empty() && body.trailers.is_none() {
        upload.finish().await?;
        return read(download).await;
    }
    let uploading = tokio::spawn(send_body(upload, body));
    let answer = read(download).await;
    uploading.abort();
    answer
}

/// Ends early where the gateway wants no more.
async fn send_body(mut upload: Http3Upload, body: Body) -> Result<(), StreamError> {
    let mut rest = Bytes::from(body.bytes);
    while !rest.is_empty() {
        upload.send_data(rest.split_to(rest.len().min(50_000))).await?;
    }
    if let Some(trailers) = body.trailers {
        upload.send_trailers(trailers).await?;
    }
    upload.finish().await
}

async fn read(mut download: Http3Download) -> Result<Answer, Http3Lost> {
    let mut interim = Vec::new();
    let head = loop {
        let head = download.recv_response().await?;
        match head.status().is_informational() {
            true => interim.push(head.status().as_u16()),
            false => break head,
        }
    };
    let mut body = Vec::new();
    while let Some(mut data) = download.recv_data().await? {
        while data.has_remaining() {
            let part = data.chunk().len();
            body.extend_from_slice(data.chunk());
            data.advance(part);
        }
    }
    let trailers: Option<HeaderMap> = download.recv_trailers().await?;
    let (status, headers) = (head.status().as_u16(), head.headers().clone());
    Ok(Answer { status, headers, body, trailers, interim })
}
