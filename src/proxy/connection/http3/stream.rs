//! One HTTP/3 stream: one request, served by one task like a request of HTTP/1.1.

use std::future::{Future, poll_fn};
use std::pin::pin;
use std::rc::Rc;
use std::task::Poll;
use std::time::Duration;

use tokio::time::timeout;

use crate::boxed_cold::boxed_cold;
use crate::http1::request::RequestError;
use crate::http2::connection::StreamLost;
use crate::http2::head::{HeadError, ReceivedHead};
use crate::http3::Http3ErrorCode;
use crate::http3::stream::Http3Stream;
use crate::plan::ListenerRole;
use crate::proxy::answer::next_action::{NextAction, PendingTunnel};
use crate::proxy::connection::stream_guard::StreamGuard;
use crate::proxy::connection::tunnel::{self, EarlyBytes};
use crate::proxy::session::Session;
use crate::proxy::session::request_reader::Source;
use crate::proxy::session::server_stream::{ResponseOutcome, ServerStream, StreamTransport};
use crate::proxy::{decide, decisions};

/// Waits for the head of a request, and serves it.
pub(super) async fn serve(stream: Http3Stream, guard: StreamGuard, header_timeout: Duration) {
    let head = match timeout(header_timeout, poll_fn(|context| stream.poll_head(context))).await {
        Ok(Ok(Ok(head))) => Ok(head),
        // RFC 9114 §4.1.2.
        Ok(Ok(Err(HeadError::Malformed))) => return stream.reset(Http3ErrorCode::MESSAGE_ERROR),
        Ok(Ok(Err(HeadError::TooLarge))) => Err(RequestError::HeadTooLarge),
        Ok(Ok(Err(HeadError::Protocol))) => Err(RequestError::Protocol),
        Ok(Err(StreamLost)) => return guard.client_reset(Some(stream.round_trip())),
        Err(_) => Err(RequestError::HeadTimeout),
    };
    answer(stream, head, guard).await;
}

/// Answers the request.
async fn answer(stream: Http3Stream, head: Result<ReceivedHead, RequestError>, guard: StreamGuard) {
    let streams = guard.streams();
    let worker = Rc::clone(&streams.worker);
    let mut buffers = worker.spare.take();
    let write_timeout = worker.plan().server.write_timeout;
    let unknown_length = head.as_ref().is_ok_and(|head| head.unknown_length);
    let transport = StreamTransport::Http3(Box::new(stream));
    let stream = Rc::new(ServerStream::new(transport, unknown_length, write_timeout));
    let mut session =
        Session::new(Source::Stream(Rc::clone(&stream)), Rc::clone(&streams.peer), worker, guard.opened());
    if let Ok(head) = &head {
        buffers.inbound.extend_from_slice(&head.text);
    }
    session.buffers = Some(buffers);
    let answering = async {
        match head {
            // The head is held once.
            Ok(head) => drop(head),
            Err(fault) => return decide::refuse_unread(&mut session, fault).await,
        }
        let now = session.worker.shared.clock.now();
        match session.peer.role {
            ListenerRole::Traffic => decide::answer(&mut session, now).await,
            ListenerRole::Decisions => boxed_cold(|| decisions::answer(&mut session, now)).await,
        }
    };
    let after = sending(&stream, answering).await;
    if let NextAction::Tunnel(pending) = after {
        return begin_tunnel(session, stream, pending, guard);
    }
    session.worker.spare.put(session.buffers.take());
    drop(session);
    match stream.finish() {
        ResponseOutcome::Unanswered => guard.client_reset(stream.round_trip()),
        ResponseOutcome::Told => drop(tokio::task::spawn_local(end(stream, guard, write_timeout))),
    }
}

/// Awaits `work`; meanwhile what the stream holds is sent, as the client accepts it.
async fn sending<W: Future>(stream: &ServerStream, work: W) -> W::Output {
    let mut work = pin!(work);
    poll_fn(|context| {
        let worked = work.as_mut().poll(context);
        if worked.is_pending() {
            // After the work: what it has just sent may wait for the client, and only this wakes the task then. A stream that
            // is lost shows where it is used.
            let _sent_or_lost: Poll<Result<(), _>> = stream.transport().poll_flush(context);
        }
        worked
    })
    .await
}

/// Sends the rest of a response, and lets the client acknowledge it, in a task of its own: that of the request is larger
/// by kilobytes. A connection is not closed before.
async fn end(stream: Rc<ServerStream>, guard: StreamGuard, write_timeout: Duration) {
    poll_fn(|context| Poll::Ready(stream.discard(context))).await;
    let StreamTransport::Http3(transport) = stream.transport() else { return };
    let is_taken = async {
        send_rest(transport, write_timeout).await && {
            timeout(write_timeout, transport.acknowledged()).await.is_ok()
        }
    };
    if !is_taken.await {
        transport.reset(Http3ErrorCode::REQUEST_CANCELLED);
    }
    drop(guard);
}

/// Sends what waits for the client. Returns whether the client took all, each part within the timeout.
async fn send_rest(transport: &Http3Stream, write_timeout: Duration) -> bool {
    loop {
        let before = transport.unsent();
        let sent = poll_fn(|context| match transport.poll_flush(context) {
            Poll::Pending if transport.unsent() < before => Poll::Ready(None),
            flushed => flushed.map(|flushed| Some(flushed.is_ok())),
        });
        match timeout(write_timeout, sent).await {
            Ok(None) => {}
            Ok(Some(all)) => return all,
            Err(_) => return false,
        }
    }
}

/// Joins a stream to its backend, in a task of its own.
#[cold]
fn begin_tunnel(
    mut session: Session,
    stream: Rc<ServerStream>,
    pending: Box<PendingTunnel>,
    guard: StreamGuard,
) {
    let early = EarlyBytes::take(session.buffers.get_or_insert_default());
    session.worker.spare.put(session.buffers.take());
    let write_timeout = session.worker.plan().server.write_timeout;
    drop(tokio::task::spawn_local(async move {
        let PendingTunnel { backend, silence, end: until, places, settlement } = *pending;
        let ended = tunnel::run(stream.transport(), backend, early, (silence, until)).await;
        if !ended.is_whole {
            stream.cancel();
        }
        drop(places);
        if let Some(mut settlement) = settlement {
            settlement.finish_tunnel(ended.sent);
        }
        end(stream, guard, write_timeout).await;
    }));
}
