//! The side of the process that has taken the counters over.

use std::cell::RefCell;
use std::collections::HashMap;
use std::io;
use std::rc::Rc;
use std::sync::Arc;

use tokio::net::UnixStream;
use tokio::sync::mpsc::{UnboundedSender, unbounded_channel};
use tokio::task::{AbortHandle, spawn_local};

use super::PlacesOfKey;
use super::calls::{receive, send};
use super::message::{
    CallReply, ChargeMessage, FaultMessage, HandOverCall, OperationMessage, OutcomeMessage, OwnedCharge,
    RequestMessage, ResultMessage,
};
use crate::limit::units::{Fingerprint, Timestamp};
use crate::limit::wall_clock::WallTime;
use crate::store::memory::MemoryStore;
use crate::store::usage::UsageLedger;
use crate::store::{Correction, Counters, Outcome, Places, PolicyRegistration, StoreRequest, Unreachable};

/// Executes the calls of the process that had the counters before.
#[derive(Debug)]
pub struct PredecessorCalls {
    counters: Rc<Counters>,
    usage: Arc<UsageLedger>,
    places: PredecessorPlaces,
    pending: RefCell<HashMap<u64, Pending>>,
}

/// A call that the predecessor has not forgotten.
#[derive(Debug)]
enum Pending {
    /// It is executed.
    Runs(AbortHandle),
    /// Its request is in flight.
    Holds { _places: Box<Places> },
}

/// The places that the predecessor's requests held at the hand-over. Dropped, they are free.
#[derive(Debug)]
struct PredecessorPlaces {
    memory: Arc<MemoryStore>,
    by_key: RefCell<HashMap<Fingerprint, u32>>,
}

type Replies = UnboundedSender<(u64, CallReply)>;

impl PredecessorCalls {
    /// Takes the places of the predecessor's requests in flight, whatever the maximum. `counters` are in memory.
    pub fn new(counters: Counters, usage: Arc<UsageLedger>, held: &[PlacesOfKey]) -> Self {
        let places = PredecessorPlaces { memory: Arc::clone(&counters.memory), by_key: RefCell::default() };
        for &PlacesOfKey { key, policy, places: count } in held {
            places.memory.in_flight().hold_for_other(Fingerprint(key), policy, count);
            *places.by_key.borrow_mut().entry(Fingerprint(key)).or_default() += count;
        }
        Self { counters: Rc::new(counters), usage, places, pending: RefCell::default() }
    }

    /// Executes calls until the predecessor ends. Needs a local runtime around it.
    ///
    /// # Errors
    ///
    /// The stream's; what it sends is none of these calls. The predecessor then decides by itself.
    pub async fn run(
        self,
        stream: UnixStream,
        clock: impl Fn() -> Timestamp + Clone + 'static,
    ) -> io::Result<()> {
        let (mut input, mut output) = stream.into_split();
        let (replies, mut queue) = unbounded_channel::<(u64, CallReply)>();
        let this = Rc::new(self);
        let write = async {
            while let Some((number, reply)) = queue.recv().await {
                send(&mut output, number, &reply).await?;
            }
            Ok(())
        };
        let read = async {
            while let Some((number, call)) = receive(&mut input).await? {
                this.execute(number, call, &replies, clock.clone());
            }
            Ok(())
        };
        let ended = tokio::select! {
            ended = write => ended,
            ended = read => ended,
        };
        // Tasks that go on hold the counters: what they wait for is nobody's.
        for (_, pending) in this.pending.take() {
            if let Pending::Runs(task) = pending {
                task.abort();
            }
        }
        ended
    }

    fn execute(
        self: &Rc<Self>,
        number: u64,
        call: HandOverCall,
        replies: &Replies,
        clock: impl Fn() -> Timestamp + 'static,
    ) {
        match call {
            HandOverCall::Decide(request, since) => {
                let (this, replies) = (Rc::clone(self), replies.clone());
                self.start(
                    number,
                    async move { this.decide(number, &request, since, &replies, clock).await },
                );
            }
            HandOverCall::Execute(operation, charges) => {
                let (this, replies) = (Rc::clone(self), replies.clone());
                self.start(number, async move {
                    let result = this.operate(&operation, &charges, clock()).await;
                    this.pending.borrow_mut().remove(&number);
                    // The predecessor may be gone.
                    let _ = replies.send((number, CallReply::Executed(result)));
                });
            }
            HandOverCall::Settle(charge, counted_at, difference) => {
                let Some(owned) = charge.owned() else { return };
                self.register(&owned);
                let counted_at = Timestamp(counted_at);
                let correction = Correction { charge: owned.charge(), counted_at, difference, shared: false };
                self.counters.settle(&correction, clock());
            }
            HandOverCall::Usage(message) => message.record(|entry| self.usage.record(entry)),
            HandOverCall::UsageLost(at) => self.usage.note_loss(WallTime(at)),
            HandOverCall::Free(places) => self.places.free(places),
            HandOverCall::Forget(number) => {
                if let Some(Pending::Runs(task)) = self.pending.borrow_mut().remove(&number) {
                    task.abort();
                }
            }
        }
    }

    /// Starts a call, whose end removes it or leaves what it holds in its place.
    fn start(&self, number: u64, call: impl Future<Output = ()> + 'static) {
        let task = spawn_local(call);
        self.pending.borrow_mut().insert(number, Pending::Runs(task.abort_handle()));
    }

    async fn decide(
        &self,
        number: u64,
        request: &RequestMessage,
        since: Option<u64>,
        replies: &Replies,
        clock: impl Fn() -> Timestamp,
    ) {
        let Some(owned) = request.owned() else {
            self.pending.borrow_mut().remove(&number);
            return;
        };
        owned
            .charges
            .iter()
            .chain(owned.bans.iter().map(|(charge, ..)| charge))
            .for_each(|charge| self.register(charge));
        let (charges, bans) = (owned.charges(), owned.bans());
        let request = StoreRequest { charges: &charges, bans: &bans };
        let now = clock();
        let (outcome, waited, places) = if request.is_banned(&self.counters.bans, now) {
            (Outcome { banned: true, ..Outcome::default() }, 0, None)
        } else if let Some(since) = since {
            let admitted = self.counters.admit(request, owned.claims.clone(), Timestamp(since), clock).await;
            (admitted.outcome, admitted.waited.0, admitted.places)
        } else {
            (self.counters.decide(request, now).await, 0, None)
        };
        let reply = CallReply::Decided(OutcomeMessage::of(&outcome), waited, places.is_some());
        let mut pending = self.pending.borrow_mut();
        match places {
            Some(places) => _ = pending.insert(number, Pending::Holds { _places: places }),
            None => _ = pending.remove(&number),
        }
        // The predecessor may be gone.
        let _ = replies.send((number, reply));
    }

    async fn operate(
        &self,
        operation: &OperationMessage,
        charges: &[ChargeMessage],
        now: Timestamp,
    ) -> Result<ResultMessage, FaultMessage> {
        let known = || FaultMessage::of(Unreachable.into());
        let operation = operation.operation().ok_or_else(known)?;
        let owned: Option<Vec<OwnedCharge>> = charges.iter().map(ChargeMessage::owned).collect();
        let owned = owned.ok_or_else(known)?;
        owned.iter().for_each(|charge| self.register(charge));
        let charges: Vec<_> = owned.iter().map(OwnedCharge::charge).collect();
        let executed = self.counters.execute(&operation, &charges, now).await;
        executed.map(|result| ResultMessage::of(&result)).map_err(FaultMessage::of)
    }

    /// The predecessor may have policies that this process has not, or not with these numbers.
    fn register(&self, charge: &OwnedCharge) {
        let charge = charge.charge();
        let identity = charge.shared_key.identity;
        if !self.counters.memory.knows(charge.params) {
            let policy = PolicyRegistration { algorithm: charge.algorithm, identity, share: None };
            self.counters.register(&policy);
        }
    }
}

impl PredecessorPlaces {
    /// Frees places, no more than are held.
    fn free(&self, PlacesOfKey { key, places, .. }: PlacesOfKey) {
        let key = Fingerprint(key);
        let mut by_key = self.by_key.borrow_mut();
        let Some(held) = by_key.get_mut(&key) else { return };
        let freed = places.min(*held);
        *held -= freed;
        self.memory.in_flight().release(key, freed);
    }
}

impl Drop for PredecessorPlaces {
    fn drop(&mut self) {
        for (key, held) in self.by_key.take() {
            self.memory.in_flight().release(key, held);
        }
    }
}
