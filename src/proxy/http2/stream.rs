//! One stream: a request that is served like any other, by one task.

use std::future::{Future as _, poll_fn};
use std::pin::pin;
use std::rc::Rc;
use std::task::Poll;
use std::time::Duration;

use bytes::Bytes;
use h2::RecvStream;
use h2::server::SendResponse;
use http::Request;

use super::super::reader::Source;
use super::super::service;
use super::super::session::Session;
use super::seat::Seat;
use crate::clock::deadline::{Deadline, now};
use crate::http2::data::Patience;
use crate::http2::head::write_request;
use crate::http2::server_stream::{Ending, ServerStream};

/// How long a client that was answered may be silent before the rest of its request is not awaited any more.
const SILENCE: Duration = Duration::from_millis(100);
/// How long the rest of a request is awaited in all.
const TOTAL: Duration = Duration::from_secs(1);

/// Serves one request.
pub(super) async fn serve(request: Request<RecvStream>, respond: SendResponse<Bytes>, seat: Seat) {
    let (head, body) = request.into_parts();
    let streams = seat.streams();
    let worker = Rc::clone(&streams.worker);
    let mut buffers = worker.spare.take();
    write_request(&head, body.is_end_stream(), &mut buffers.inbound);
    drop(head);
    let timeout = worker.plan().gateway.server.write_timeout;
    let patience = Patience { timeout, traffic: Rc::clone(&streams.traffic) };
    let stream = Rc::new(ServerStream::new(body, respond, patience));
    let mut session = Session::new(Source::Http2(Rc::clone(&stream)), Rc::clone(&streams.peer), worker);
    session.buffers = Some(buffers);
    {
        let mut serving = pin!(service::answer(&mut session));
        poll_fn(|context| {
            // What has come is taken, whoever waits for what: small frames hold much memory.
            stream.pull(context);
            serving.as_mut().poll(context).map(drop)
        })
        .await;
    }
    session.worker.spare.put(session.buffers.take());
    match stream.finish() {
        Ending::Told => linger(&stream).await,
        Ending::Unanswered => seat.taken_back(),
    }
}

/// Reads and drops what is left of a request that was answered before it had come whole. Dropped at once, the stream would be reset
/// in one write with the answer, which clients take for a fault.
async fn linger(stream: &ServerStream) {
    let begun = now();
    let mut silent_since = begun;
    let mut deadline = Deadline::default();
    poll_fn(|context| {
        let (pulled, dropped) = stream.poll_discard(context);
        if pulled.is_ready() || stream.poll_reset(context).is_ready() {
            return Poll::Ready(());
        }
        if dropped > 0 {
            silent_since = now();
        }
        deadline.poll(context, (silent_since + SILENCE).min(begun + TOTAL))
    })
    .await;
}
