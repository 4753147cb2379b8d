//! One stream: a request that is served like any other, by one task.

use std::future::poll_fn;
use std::rc::Rc;
use std::task::Poll;
use std::time::Duration;

use super::super::linger::SILENCE;
use super::super::reader::Source;
use super::super::service;
use super::super::session::Session;
use super::super::worker::Worker;
use super::seat::Seat;
use crate::clock::deadline::{Deadline, now};
use crate::http1::request::Fault;
use crate::http2::connection::Request;
use crate::http2::server_stream::{Ending, ServerStream};

/// How long the rest of a request is read in all, however much the client still sends. A stream costs little meanwhile, and there are
/// clients that send 100 MB in a minute before they look at their answer.
const TOTAL: Duration = Duration::from_secs(300);

/// Serves one request.
pub(super) async fn serve(request: Request, seat: Seat) {
    let streams = seat.streams();
    let worker = Rc::clone(&streams.worker);
    let mut buffers = worker.spare.take();
    let timeout = worker.plan().gateway.server.write_timeout;
    let stream = Rc::new(ServerStream::new(request.stream, timeout));
    let mut session = Session::new(Source::Http2(Rc::clone(&stream)), Rc::clone(&streams.peer), worker);
    if let Ok(head) = request.head {
        buffers.inbound.extend_from_slice(&head.text);
        session.buffers = Some(buffers);
        service::answer(&mut session).await;
    } else {
        session.buffers = Some(buffers);
        service::refuse_unread(&mut session, Fault::HeadTooLarge).await;
    }
    session.worker.spare.put(session.buffers.take());
    drop(session);
    match stream.finish() {
        Ending::Unanswered => seat.taken_back(),
        Ending::Told => linger(&stream, &streams.worker).await,
    }
}

/// Reads and drops what is left of a request that was answered before it had come whole: some clients see an answer only once they
/// have sent all. A stream that is dropped at once is reset in one write with its answer, which others take for a fault.
/// A drain does not wait for a client that still sends.
async fn linger(stream: &ServerStream, worker: &Worker) {
    let begun = now();
    let mut silent_since = begun;
    let mut deadline = Deadline::default();
    poll_fn(|context| {
        let (over, dropped) = stream.discard(context);
        if over || stream.poll_reset(context).is_ready() {
            return Poll::Ready(());
        }
        if dropped > 0 && !worker.is_draining() {
            silent_since = now();
        }
        deadline.poll(context, (silent_since + SILENCE).min(begun + TOTAL))
    })
    .await;
}
