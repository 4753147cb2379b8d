//! A client of HTTP/2 or of HTTP/3, for what is the same over both.

use bytes::Bytes;
use http::Request;

use super::http2_client::{Answer, Body, Http2, get};
#[cfg(feature = "http3")]
use super::http3_client::{Http3, Http3Download, Http3Lost, Http3Upload};

/// One connection.
pub(crate) enum Multiplexed {
    Http2(Http2),
    #[cfg(feature = "http3")]
    Http3(Http3),
}

/// A request that has been sent whole, and whose response is not read.
pub(crate) enum Unanswered {
    Http2(h2::SendStream<Bytes>, h2::client::ResponseFuture),
    #[cfg(feature = "http3")]
    Http3(Box<(Http3Upload, Http3Download)>),
}

/// Why there is no whole answer.
#[derive(Debug)]
pub(crate) struct Lost {
    /// The gateway has said so; else the client's library has noticed by itself.
    pub(crate) is_remote: bool,
    pub(crate) text: String,
}

impl Multiplexed {
    /// As the access log names the version.
    pub(crate) fn version(&self) -> &'static str {
        match self {
            Self::Http2(_) => "HTTP/2.0",
            #[cfg(feature = "http3")]
            Self::Http3(_) => "HTTP/3.0",
        }
    }

    /// The scheme of what is asked for.
    pub(crate) fn scheme(&self) -> &'static str {
        match self {
            Self::Http2(_) => "http",
            #[cfg(feature = "http3")]
            Self::Http3(_) => "https",
        }
    }

    /// Sends one request and reads its answer, or tells why there is none.
    pub(crate) fn exchange(&self, request: Request<()>, body: impl Into<Body>) -> Result<Answer, Lost> {
        self.all([(request, body.into())]).remove(0)
    }

    /// `GET path` from `test`.
    #[track_caller]
    pub(crate) fn get(&self, path: &str) -> Answer {
        self.exchange(get(path), Body::default()).expect("an answer")
    }

    /// Sends one request with its body, and reads nothing.
    pub(crate) fn begin(&self, request: Request<()>, body: &[u8]) -> Unanswered {
        match self {
            Self::Http2(client) => {
                let (mut upload, answer) = client.begin(request);
                upload.send_data(Bytes::copy_from_slice(body), true).expect("the stream is open");
                Unanswered::Http2(upload, answer)
            }
            #[cfg(feature = "http3")]
            Self::Http3(client) => {
                let (mut upload, download) = client.begin(secure(request));
                client.send(&mut upload, body).expect("the stream is open");
                client.end_body(&mut upload).expect("the stream is open");
                Unanswered::Http3(Box::new((upload, download)))
            }
        }
    }

    /// Closes the connection, whatever is under way on it.
    pub(crate) fn close(self) {
        match self {
            Self::Http2(client) => drop(client),
            #[cfg(feature = "http3")]
            Self::Http3(client) => client.end(),
        }
    }

    /// Sends requests at once, as many as the gateway allows, and gives the answers in the same order.
    pub(crate) fn all(
        &self,
        requests: impl IntoIterator<Item = (Request<()>, Body)>,
    ) -> Vec<Result<Answer, Lost>> {
        match self {
            Self::Http2(client) => told(client.all(requests)),
            #[cfg(feature = "http3")]
            Self::Http3(client) => {
                told(client.all(requests.into_iter().map(|(request, body)| (secure(request), body))))
            }
        }
    }
}

impl Unanswered {
    /// The client wants no response any more. HTTP/3's side of the request has ended by then.
    pub(crate) fn cancel(self) {
        match self {
            Self::Http2(mut upload, answer) => {
                upload.send_reset(h2::Reason::CANCEL);
                drop(answer);
            }
            #[cfg(feature = "http3")]
            Self::Http3(stream) => {
                let (upload, mut download) = *stream;
                download.stop_sending(h3::error::Code::H3_REQUEST_CANCELLED);
                drop(upload);
            }
        }
    }
}

fn told<E: Into<Lost>>(answers: Vec<Result<Answer, E>>) -> Vec<Result<Answer, Lost>> {
    answers.into_iter().map(|answer| answer.map_err(Into::into)).collect()
}

impl From<h2::Error> for Lost {
    fn from(error: h2::Error) -> Self {
        Self { is_remote: error.is_remote(), text: error.to_string() }
    }
}

#[cfg(feature = "http3")]
impl From<Http3Lost> for Lost {
    fn from(lost: Http3Lost) -> Self {
        Self { is_remote: matches!(lost, Http3Lost::Reset(_)), text: format!("{lost:?}") }
    }
}

/// The same request over TLS.
#[cfg(feature = "http3")]
fn secure(mut request: Request<()>) -> Request<()> {
    let mut parts = request.uri().clone().into_parts();
    parts.scheme = Some(http::uri::Scheme::HTTPS);
    *request.uri_mut() = http::Uri::from_parts(parts).expect("a URI");
    request
}
