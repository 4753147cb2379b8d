//! The side of the process that has handed its counters over.

use std::cell::RefCell;
use std::collections::HashMap;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use serde::Serialize;
use serde::de::DeserializeOwned;
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _};
use tokio::net::UnixStream;
use tokio::sync::{mpsc, oneshot};
use tokio::time::timeout;

use super::PlacesOfKey;
use super::message::{
    CallReply, ChargeMessage, HandOverCall, OperationMessage, OutcomeMessage, RequestMessage, settle_call,
};
use crate::limit::units::{Micros, Timestamp};
use crate::limit::wall_clock::WallTime;
use crate::store::usage::{UsageEntry, UsageMessage};
use crate::store::{
    Charge, Correction, KeyOperation, OperationFault, OperationResult, Outcome, PlaceClaims, StoreRequest,
};

/// The most bytes of a call or a reply: those of a request with the most charges are far fewer.
const MAX_BYTES: u32 = 1 << 20;
/// How long a reply may take: the successor takes the counters meanwhile, which may be many.
const PATIENCE: Duration = Duration::from_secs(15);
/// How long the end of the process waits for calls that were not sent yet.
const LAST_CALLS: Duration = Duration::from_secs(1);
/// How often it looks.
const SENT_CHECK: Duration = Duration::from_millis(2);

/// The calls of all workers to the process that has the counters.
#[derive(Debug)]
pub struct SuccessorCalls {
    queue: mpsc::UnboundedSender<QueuedCall>,
    /// The number of the last one.
    last: AtomicU64,
    sent: Arc<AtomicU64>,
    /// The successor knows the calls about usage.
    takes_usage: bool,
}

/// The calls that were not sent yet.
#[derive(Debug)]
pub struct CallReceiver {
    queue: mpsc::UnboundedReceiver<QueuedCall>,
    sent: Arc<AtomicU64>,
}

#[derive(Debug)]
struct QueuedCall {
    number: u64,
    call: HandOverCall,
    reply: Option<oneshot::Sender<CallReply>>,
}

/// A call that is waited for, or whose places are held. Dropped, it is forgotten there.
#[derive(Debug)]
pub struct PendingCall {
    calls: Arc<SuccessorCalls>,
    number: u64,
    is_over: bool,
}

impl Drop for PendingCall {
    fn drop(&mut self) {
        if !self.is_over {
            self.calls.tell(HandOverCall::Forget(self.number));
        }
    }
}

impl SuccessorCalls {
    /// A queue of calls, and its other end, which sends them. `takes_usage`: the successor keeps usage, too.
    pub fn new(takes_usage: bool) -> (Self, CallReceiver) {
        let (sender, receiver) = mpsc::unbounded_channel();
        let sent = Arc::<AtomicU64>::default();
        let calls = Self { queue: sender, last: AtomicU64::new(0), sent: Arc::clone(&sent), takes_usage };
        (calls, CallReceiver { queue: receiver, sent })
    }

    /// Has the successor decide a request, which has waited for a place since `since`. `None`: it is gone.
    pub(in crate::store) async fn decide(
        self: &Arc<Self>,
        request: StoreRequest<'_>,
        waits: Option<(Timestamp, &PlaceClaims)>,
    ) -> Option<(Outcome, Option<PendingCall>, Micros)> {
        let since = waits.map(|(since, _)| since.0);
        let request_message = RequestMessage::of(request, waits.map(|(_, claims)| claims));
        let call = HandOverCall::Decide(request_message, since);
        let waits =
            request.charges.iter().filter_map(|charge| Some(charge.algorithm.as_concurrency()?.max_wait()));
        let longest = waits.max().filter(|_| since.is_some()).unwrap_or_default();
        let (reply, mut pending) = self.ask(call, longest).await?;
        let CallReply::Decided(outcome, waited, has_places) = reply else { return None };
        pending.is_over = !has_places;
        outcome.answers(request).then(|| {
            let places = has_places.then_some(pending);
            (OutcomeMessage::outcome(outcome), places, Micros(waited))
        })
    }

    /// Has the successor execute an operation. `None`: it is gone.
    pub(in crate::store) async fn execute(
        self: &Arc<Self>,
        operation: &KeyOperation,
        charges: &[Charge<'_>],
    ) -> Option<Result<OperationResult, OperationFault>> {
        let charges = charges.iter().map(ChargeMessage::of).collect();
        let (reply, mut pending) =
            self.ask(HandOverCall::Execute(OperationMessage::of(operation), charges), Micros(0)).await?;
        pending.is_over = true;
        match reply {
            CallReply::Executed(Ok(result)) => Some(Ok(result.result())),
            CallReply::Executed(Err(fault)) => fault.fault().map(Err),
            CallReply::Decided(..) => None,
        }
    }

    /// Tells the successor of a correction.
    pub(in crate::store) fn settle(&self, correction: &Correction<'_>) {
        self.tell(settle_call(correction));
    }

    /// Tells the successor of places that are free, which were held before the hand-over.
    pub(in crate::store) fn free(&self, places: PlacesOfKey) {
        self.tell(HandOverCall::Free(places));
    }

    /// Whether it is told of usage: a process of an older version is not.
    pub(in crate::store) fn takes_usage(&self) -> bool {
        self.takes_usage
    }

    /// Tells the successor of usage.
    pub(in crate::store) fn record_usage(&self, entry: UsageEntry<'_>) {
        self.tell(HandOverCall::Usage(UsageMessage::of(entry)));
    }

    /// Tells the successor of requests whose usage is lost.
    pub(in crate::store) fn lose_usage(&self, at: WallTime) {
        self.tell(HandOverCall::UsageLost(at.0));
    }

    /// Waits until all calls so far are sent, but no longer than a second.
    pub async fn all_sent(&self) {
        let sent = async {
            while self.sent.load(Ordering::Relaxed) < self.last.load(Ordering::Relaxed) {
                tokio::time::sleep(SENT_CHECK).await;
            }
        };
        let _ = timeout(LAST_CALLS, sent).await;
    }

    fn queue(&self, call: HandOverCall, reply: Option<oneshot::Sender<CallReply>>) -> u64 {
        let number = self.last.fetch_add(1, Ordering::Relaxed) + 1;
        // Without a receiver the successor is gone, and nobody waits for what is told.
        let _ = self.queue.send(QueuedCall { number, call, reply });
        number
    }

    fn tell(&self, call: HandOverCall) {
        self.queue(call, None);
    }

    /// The reply, which may take this long and [`PATIENCE`].
    async fn ask(self: &Arc<Self>, call: HandOverCall, wait: Micros) -> Option<(CallReply, PendingCall)> {
        let (reply, replied) = oneshot::channel();
        let number = self.queue(call, Some(reply));
        let pending = PendingCall { calls: Arc::clone(self), number, is_over: false };
        let bound = PATIENCE + Duration::from_micros(wait.0);
        Some((timeout(bound, replied).await.ok()?.ok()?, pending))
    }
}

impl CallReceiver {
    /// Sends all calls to the process at the other end of the stream, until it ends.
    ///
    /// # Errors
    ///
    /// The stream's; what it sends is none of these replies.
    pub async fn run(self, stream: UnixStream) -> io::Result<()> {
        let Self { mut queue, sent } = self;
        let (mut input, mut output) = stream.into_split();
        let waiting = RefCell::new(HashMap::<u64, oneshot::Sender<CallReply>>::new());
        let send = async {
            while let Some(QueuedCall { number, call, reply }) = queue.recv().await {
                if let Some(reply) = reply {
                    waiting.borrow_mut().insert(number, reply);
                }
                send(&mut output, number, &call).await?;
                sent.fetch_add(1, Ordering::Relaxed);
            }
            Ok(())
        };
        let receive = async {
            while let Some((number, reply)) = receive(&mut input).await? {
                if let Some(waiting) = waiting.borrow_mut().remove(&number) {
                    // Nobody waits for it any more.
                    let _ = waiting.send(reply);
                }
            }
            Ok(())
        };
        tokio::select! {
            ended = send => ended,
            ended = receive => ended,
        }
    }
}

/// Sends a call or a reply.
pub(super) async fn send(
    output: &mut (impl AsyncWrite + Unpin),
    number: u64,
    message: &impl Serialize,
) -> io::Result<()> {
    let mut bytes = vec![0; 12];
    serde_json::to_writer(&mut bytes, message)?;
    let length = u32::try_from(bytes.len() - 4).map_err(|_| io::ErrorKind::InvalidData)?;
    for (place, byte) in bytes.iter_mut().zip(length.to_le_bytes().into_iter().chain(number.to_le_bytes())) {
        *place = byte;
    }
    output.write_all(&bytes).await
}

/// Receives one. `None`: the other process has ended.
pub(super) async fn receive<T: DeserializeOwned>(
    input: &mut (impl AsyncRead + Unpin),
) -> io::Result<Option<(u64, T)>> {
    let length = match input.read_u32_le().await {
        Ok(length) if (8..=MAX_BYTES).contains(&length) => length,
        Ok(_) => return Err(io::ErrorKind::InvalidData.into()),
        Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => return Ok(None),
        Err(error) => return Err(error),
    };
    let number = input.read_u64_le().await?;
    let mut bytes = Vec::new();
    input.take(u64::from(length - 8)).read_to_end(&mut bytes).await?;
    Ok(Some((number, serde_json::from_slice(&bytes)?)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn calls_that_are_cut_or_none_are_errors() {
        let mut bytes = Vec::new();
        send(&mut bytes, 7, &HandOverCall::Forget(u64::MAX)).await.unwrap();
        let call = receive::<HandOverCall>(&mut &*bytes).await.unwrap();
        assert!(matches!(call, Some((7, HandOverCall::Forget(u64::MAX)))));
        for end in 0..bytes.len() {
            let cut = receive::<HandOverCall>(&mut &bytes[..end]).await;
            assert!(if end < 4 { matches!(cut, Ok(None)) } else { cut.is_err() }, "{end}: {cut:?}");
        }
        for length in [0, 7, MAX_BYTES + 1, u32::MAX] {
            let bytes = [&length.to_le_bytes()[..], &[0; 64]].concat();
            assert!(receive::<HandOverCall>(&mut &*bytes).await.is_err());
        }
        for index in 12..bytes.len() {
            let mut other = bytes.clone();
            other[index] ^= 0x80;
            assert!(receive::<HandOverCall>(&mut &*other).await.is_err(), "{index}");
        }
    }

    /// Whoever waits for a process that is gone is told so.
    #[tokio::test]
    async fn calls_to_a_process_that_is_gone_have_no_reply() {
        let (calls, receiver) = SuccessorCalls::new(true);
        let (calls, (here, there)) = (Arc::new(calls), UnixStream::pair().unwrap());
        let request = StoreRequest { charges: &[], bans: &[] };
        let ask = async { calls.decide(request, None).await.is_none() };
        let run = async {
            drop(there);
            // Whatever the error.
            let _ = receiver.run(here).await;
            true
        };
        assert_eq!(tokio::join!(ask, run), (true, true));
        assert!(calls.decide(request, None).await.is_none());
    }
}
