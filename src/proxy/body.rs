//! The response's body, and what is recorded when it has gone.

use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::{Buf as _, Bytes};
use http::StatusCode;
use http_body::{Body, Frame, SizeHint};
use hyper::body::Incoming;
use tokio::time::Instant;

use super::wire::Wire;
use super::worker::{Plan, Worker};
use crate::clock::deadline::{Deadline, now};
use crate::limit::units::Timestamp;
use crate::route::RouteIndex;
use crate::telemetry::access_log::Record;
use crate::upstream::connection::Lease;
use crate::upstream::upload::UploadState;

/// What goes to the client: the body, and the record of the exchange, made when it is dropped.
#[derive(Debug)]
pub(crate) struct AnswerBody {
    source: Source,
    finish: Finish,
}

#[derive(Debug)]
enum Source {
    /// Ready made; `None` once taken.
    Whole(Option<Bytes>),
    /// From a backend.
    Download(Box<Download>),
}

/// A backend's body on its way to the client.
#[derive(Debug)]
pub(crate) struct Download {
    pub(crate) incoming: Incoming,
    pub(crate) lease: Lease,
    pub(crate) upload: Rc<UploadState>,
    /// How long it may be silent.
    pub(crate) read_timeout: Duration,
    silence: Deadline,
    silent_since: Option<Instant>,
}

impl Download {
    pub(crate) fn new(
        incoming: Incoming,
        lease: Lease,
        upload: Rc<UploadState>,
        read_timeout: Duration,
    ) -> Self {
        Self { incoming, lease, upload, read_timeout, silence: Deadline::default(), silent_since: None }
    }

    fn poll_frame(&mut self, context: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, Cut>>> {
        match Pin::new(&mut self.incoming).poll_frame(context) {
            Poll::Pending => {
                let since = *self.silent_since.get_or_insert_with(now);
                ready!(self.silence.poll(context, since + self.read_timeout));
                Poll::Ready(Some(Err(Cut)))
            }
            Poll::Ready(frame) => {
                self.silent_since = None;
                if frame.is_none() || self.incoming.is_end_stream() {
                    self.lease.finish(&self.upload);
                }
                Poll::Ready(frame.map(|frame| frame.map_err(|_| Cut)))
            }
        }
    }
}

/// A response body broke off: the client's stream is cut, for its head is already out.
#[derive(Clone, Copy, Debug, thiserror::Error)]
#[error("the response body broke off")]
pub(crate) struct Cut;

impl AnswerBody {
    pub(crate) const fn whole(bytes: Bytes, finish: Finish) -> Self {
        Self { source: Source::Whole(Some(bytes)), finish }
    }

    pub(crate) fn download(mut download: Download, finish: Finish) -> Self {
        if download.incoming.is_end_stream() {
            download.lease.finish(&download.upload);
        }
        Self { source: Source::Download(Box::new(download)), finish }
    }
}

impl Body for AnswerBody {
    type Data = Bytes;
    type Error = Cut;

    fn poll_frame(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Cut>>> {
        let this = self.get_mut();
        let frame = match &mut this.source {
            Source::Whole(bytes) => {
                bytes.take().filter(|bytes| bytes.has_remaining()).map(Frame::data).map(Ok)
            }
            Source::Download(download) => ready!(download.poll_frame(context)),
        };
        match &frame {
            Some(Ok(frame)) => this.finish.sent += frame.data_ref().map_or(0, Bytes::len) as u64,
            Some(Err(Cut)) => this.finish.error = Some("response_cut"),
            None => {}
        }
        this.finish.unfinished = !matches!(frame, None | Some(Err(Cut))) && !this.is_end_stream();
        Poll::Ready(frame)
    }

    fn is_end_stream(&self) -> bool {
        match &self.source {
            Source::Whole(bytes) => bytes.as_ref().is_none_or(Bytes::is_empty),
            Source::Download(download) => download.incoming.is_end_stream(),
        }
    }

    fn size_hint(&self) -> SizeHint {
        match &self.source {
            Source::Whole(bytes) => SizeHint::with_exact(bytes.as_ref().map_or(0, Bytes::len) as u64),
            Source::Download(download) => download.incoming.size_hint(),
        }
    }
}

/// What is recorded when an exchange is over, however it ends: dropped early, the client went away.
#[derive(Debug)]
pub(crate) struct Finish {
    pub(crate) worker: Rc<Worker>,
    pub(crate) plan: Rc<Plan>,
    pub(crate) wire: Rc<Wire>,
    pub(crate) route: Option<RouteIndex>,
    pub(crate) started: Timestamp,
    pub(crate) status: StatusCode,
    pub(crate) upload: Option<Rc<UploadState>>,
    pub(crate) sent: u64,
    /// A part of the body has gone, but not its end.
    pub(crate) unfinished: bool,
    pub(crate) error: Option<&'static str>,
    /// The rest of the access record, if one is wanted.
    pub(crate) record: Option<Box<Record>>,
}

/// nginx's number for a client that left before its answer; nothing is sent with it.
pub(crate) fn client_gone_status() -> StatusCode {
    StatusCode::from_u16(499).unwrap_or(StatusCode::BAD_REQUEST)
}

impl Drop for Finish {
    fn drop(&mut self) {
        if self.unfinished && self.error.is_none() {
            self.error = Some(if self.wire.is_stalled() { "write_timeout" } else { "client_gone" });
        }
        let duration = self.worker.shared.clock.now().since(self.started);
        self.plan.metrics.request(self.route, self.status, duration);
        self.wire.answered();
        if let Some(mut record) = self.record.take() {
            record.status = self.status;
            record.duration = duration;
            record.bytes_in = self.upload.as_ref().map_or(0, |upload| upload.bytes());
            record.bytes_out = self.sent;
            record.error = self.error;
            self.worker.shared.access_log.record(*record);
        }
    }
}
