//! Reports of a worker to the servers, in the background: the places of its requests in flight, refusals that it gave
//! from its cache, bans that have begun, and costs that are known now.
//!
//! A place is released as soon as its request has ended, and renewed as long as it has not: places that are not renewed
//! expire (`places.lua`). A request that was admitted without the servers holds a place from its first renewal on. All
//! reports of places can be repeated without being counted twice.
//!
//! A server that was stopped for a moment executes later what it was sent on a connection that is given up since: it then
//! holds a place for a request that has ended. So a release is repeated if its call had no reply, and if a call that takes
//! or renews the place had none.
//!
//! A correction of a cost waits as long as the servers are known to be away. It is never sent twice: where its call had
//! no reply, the cost may stay as it was reserved, and is counted as such.

mod place;

use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, HashMap, HashSet, VecDeque};
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use smallvec::SmallVec;
use tokio::sync::Notify;
use tokio::time::{Instant, timeout_at};

use super::call::PlaceId;
use super::errors::CallError;
use super::script_client::ScriptClient;
use super::slot::HashSlot;
use crate::clock::{micros, now};
use crate::limit::Algorithm;
use crate::limit::units::{Cost, Fingerprint, Micros, Timestamp};
use crate::store::bans::{Banned, Bans};
use crate::store::{BanCharge, Charge, Correction, Outcome, StoreRequest};
use place::{StoredPlace, places, send};

/// How often places are renewed and refusals reported.
const EVERY: Duration = Duration::from_secs(1);
/// The age at which a place is renewed: less than a third of the lifetime that `places.lua` gives it.
const RENEWED_AFTER: Duration = Duration::from_secs(4);
/// The maximum number of places or refusals in one call, so that no call keeps the server busy for long.
const BATCH: usize = 1_000;
/// The maximum number of keys whose refusals are kept; more are not reported. The cache of denials has as many entries.
const MAX_REFUSED_KEYS: usize = 8_192;
/// The maximum number of corrections that wait for the servers; later ones are lost.
const MAX_CORRECTIONS: usize = 10_000;
/// The maximum number of places whose release is repeated; others expire.
const MAX_REPEATED: usize = 10_000;

/// After the reporter is dropped, what waits for the servers is sent for this long.
const KEPT: Duration = Duration::from_secs(60);

/// One worker's reports. After it is dropped, the reports go on until no place is held, and nothing waits.
#[derive(Debug)]
pub(super) struct Reporter {
    pending: Rc<Pending>,
    /// In the id of each request.
    client: u64,
}

#[derive(Debug, Default)]
struct Pending {
    reports: RefCell<Reports>,
    /// There is a report that does not wait for the next second.
    urgent: Notify,
    /// Corrections are on their way.
    settling: Cell<bool>,
    /// When the reporter was dropped.
    closed: Cell<Option<Instant>>,
}

#[derive(Debug, Default)]
struct Reports {
    last_number: u64,
    /// The places of requests in flight, by the number of the request.
    held: BTreeMap<u64, HeldPlaces>,
    /// The places of requests that have ended.
    ended: Vec<HeldPlaces>,
    /// Releases that are repeated a second later: what a server was sent on a connection before is executed by then.
    repeated: Vec<Release>,
    /// Refusals from the cache, by the key of the ban.
    refused: HashMap<Fingerprint, ReportedRefusals>,
    /// Bans that have begun.
    begun: Vec<(Banned, Micros)>,
    /// Costs that are known now, by age.
    corrections: VecDeque<CorrectionReport>,
}

/// The correction of a cost.
#[derive(Debug)]
struct CorrectionReport {
    slot: HashSlot,
    key: Box<[u8]>,
    algorithm: Algorithm,
    counted_at: Timestamp,
    difference: i64,
    /// When the cost was known.
    known_at: Timestamp,
}

/// The places of one request.
#[derive(Debug)]
struct HeldPlaces {
    places: SmallVec<[StoredPlace; 1]>,
    /// When the servers were told last; `None`: never.
    renewed: Option<Instant>,
    /// A call about them has had no reply: the servers may execute it later.
    is_uncertain: bool,
}

/// A place of a request that has ended.
#[derive(Debug)]
struct Release {
    place: StoredPlace,
    /// A call about it has had no reply: after this release another one is sent.
    is_uncertain: bool,
}

impl AsRef<StoredPlace> for Release {
    fn as_ref(&self) -> &StoredPlace {
        &self.place
    }
}

/// Refusals of one key since the last report.
#[derive(Debug)]
struct ReportedRefusals {
    slot: HashSlot,
    /// The key of the ban.
    key: Box<[u8]>,
    algorithm: Algorithm,
    /// How many.
    count: Cost,
    banned: Banned,
    /// The time of the first, on both clocks.
    first: (Timestamp, Instant),
}

impl CorrectionReport {
    fn words(&self) -> (&[u8], &Algorithm, Timestamp, i64) {
        (&self.key, &self.algorithm, self.counted_at, self.difference)
    }
}

impl ReportedRefusals {
    /// The present time.
    fn now(&self) -> Timestamp {
        let (at, instant) = self.first;
        at.plus(micros(now() - instant))
    }
}

/// Places that the servers know of. Dropped, they are released.
#[derive(Debug)]
pub struct PlaceLease {
    pending: Rc<Pending>,
    number: u64,
    id: PlaceId,
    /// The call that takes the places has had no reply.
    is_asked: Cell<bool>,
}

impl PlaceLease {
    /// The id of its request.
    pub(super) fn id(&self) -> PlaceId {
        self.id
    }

    /// The servers have replied: what they hold, they hold by now.
    pub(super) fn confirm(&self) {
        self.is_asked.set(false);
    }

    /// The servers hold no place for it, and will not.
    pub(super) fn void(&self) {
        self.pending.reports.borrow_mut().held.remove(&self.number);
    }
}

impl Reporter {
    /// Begins to report. Must be called on a local runtime.
    pub(super) fn start(script: Rc<ScriptClient>, bans: Arc<Bans>) -> Self {
        let pending = Rc::<Pending>::default();
        drop(tokio::task::spawn_local(run(Rc::clone(&pending), script, bans)));
        Self { pending, client: fastrand::u64(..) }
    }

    /// Holds places of a request: those of the wanted charges, by index. `None`: there are none. `is_known`: a call tells
    /// the servers of them, so that the first renewal has time.
    pub(super) fn lease(
        &self,
        script: &ScriptClient,
        charges: &[Charge<'_>],
        is_known: bool,
        wanted: impl Fn(usize) -> bool,
    ) -> Option<PlaceLease> {
        let mut reports = self.pending.reports.borrow_mut();
        let number = reports.last_number + 1;
        let id = self.id(number);
        let places = places(script, charges, id, wanted);
        if places.is_empty() {
            return None;
        }
        reports.last_number = number;
        let renewed = is_known.then(now);
        reports.held.insert(number, HeldPlaces { places, renewed, is_uncertain: false });
        Some(PlaceLease { pending: Rc::clone(&self.pending), number, id, is_asked: Cell::new(is_known) })
    }

    /// The servers hold places for the wanted charges only.
    pub(super) fn narrow(
        &self,
        lease: &PlaceLease,
        script: &ScriptClient,
        charges: &[Charge<'_>],
        wanted: impl Fn(usize) -> bool,
    ) {
        if let Some(held) = self.pending.reports.borrow_mut().held.get_mut(&lease.number) {
            held.places = places(script, charges, lease.id, wanted);
        }
    }

    fn id(&self, number: u64) -> PlaceId {
        let mut id = PlaceId::default();
        id[..8].copy_from_slice(&self.client.to_le_bytes());
        id[8..].copy_from_slice(&number.to_le_bytes());
        id
    }

    /// Counts a refusal that was given from the cache.
    pub(super) fn refused(
        &self,
        script: &ScriptClient,
        request: StoreRequest<'_>,
        outcome: &Outcome,
        at: Timestamp,
    ) {
        let mut reports = self.pending.reports.borrow_mut();
        for BanCharge { charge: ban, banned, .. } in request.refusing(outcome) {
            let is_full = reports.refused.len() >= MAX_REFUSED_KEYS;
            match reports.refused.get_mut(&ban.key) {
                Some(report) => report.count = Cost::new(report.count.units() + 1).unwrap_or(report.count),
                None if is_full => {}
                None => {
                    let (slot, key, algorithm) = (script.slot(ban), script.name(ban), *ban.algorithm);
                    let first = (at, now());
                    let report =
                        ReportedRefusals { slot, key, algorithm, count: Cost::ONE, banned: *banned, first };
                    reports.refused.insert(ban.key, report);
                }
            }
        }
    }

    /// Corrects a cost that the servers have charged. Returns false if too many corrections wait.
    #[must_use]
    pub(super) fn settle(&self, script: &ScriptClient, correction: &Correction<'_>, now: Timestamp) -> bool {
        let Correction { charge, counted_at, difference, .. } = correction;
        let mut reports = self.pending.reports.borrow_mut();
        if reports.corrections.len() >= MAX_CORRECTIONS {
            return false;
        }
        reports.corrections.push_back(CorrectionReport {
            slot: script.slot(charge),
            key: script.name(charge),
            algorithm: *charge.algorithm,
            counted_at: *counted_at,
            difference: *difference,
            known_at: now,
        });
        self.pending.urgent.notify_one();
        true
    }

    /// Whether all corrections were sent.
    pub(super) fn has_settled(&self) -> bool {
        self.pending.reports.borrow().corrections.is_empty() && !self.pending.settling.get()
    }

    /// Tells the fleet of a ban that has begun.
    pub(super) fn begun(&self, banned: Banned, span: Micros) {
        self.pending.reports.borrow_mut().begun.push((banned, span));
        self.pending.urgent.notify_one();
    }
}

impl Drop for Reporter {
    fn drop(&mut self) {
        self.pending.closed.set(Some(now()));
        self.pending.urgent.notify_one();
    }
}

impl Drop for PlaceLease {
    fn drop(&mut self) {
        let mut reports = self.pending.reports.borrow_mut();
        if let Some(mut held) = reports.held.remove(&self.number)
            && held.renewed.is_some()
        {
            held.is_uncertain |= self.is_asked.get();
            reports.ended.push(held);
            self.pending.urgent.notify_one();
        }
    }
}

/// Reports until the reporter is dropped and nothing is left. Places that were not renewed are, a second later; a report of
/// a refusal or of a ban that fails is not repeated.
async fn run(pending: Rc<Pending>, script: Rc<ScriptClient>, bans: Arc<Bans>) {
    let mut next = now() + EVERY;
    while !pending.is_over() {
        // Urgent reports may come without a pause: the others have their time nevertheless.
        let _ = timeout_at(next, pending.urgent.notified()).await;
        if now() >= next {
            next = now() + EVERY;
            pending.renew(&script).await;
            pending.release_again(&script).await;
            pending.report_refusals(&script, &bans).await;
        }
        pending.release(&script).await;
        pending.settle(&script).await;
        let begun = std::mem::take(&mut pending.reports.borrow_mut().begun);
        for (banned, span) in begun {
            // A ban that the list lacks is in force all the same: its key has it.
            let _ = script.announce(banned, span).await;
        }
    }
}

impl Pending {
    /// Whether the reporter is dropped, and no place is held or to be released.
    fn is_over(&self) -> bool {
        let Reports { held, ended, repeated, corrections, .. } = &*self.reports.borrow();
        let is_empty = held.is_empty() && ended.is_empty() && corrections.is_empty();
        self.closed.get().is_some() && is_empty && (repeated.is_empty() || self.gives_up())
    }

    /// Whether what waits for the servers is given up.
    fn gives_up(&self) -> bool {
        self.closed.get().is_some_and(|closed| now() - closed >= KEPT)
    }

    /// Sends the corrections. Those that were certainly not made stay for the next second.
    async fn settle(&self, script: &ScriptClient) {
        let mut waiting: Vec<_> = self.reports.borrow_mut().corrections.drain(..).collect();
        if waiting.is_empty() {
            return;
        }
        self.settling.set(true);
        // Stable: of one key, the corrections stay in order.
        waiting.sort_by_key(|correction| correction.slot);
        let mut unsent = Vec::new();
        let mut rest = waiting.into_iter().peekable();
        while let Some(slot) = rest.peek().map(|correction| correction.slot) {
            let batch: Vec<_> =
                std::iter::from_fn(|| rest.next_if(|next| next.slot == slot)).take(BATCH).collect();
            let now = batch.iter().map(|one| one.known_at).max().unwrap_or_default();
            match script.settle(slot, batch.iter().map(CorrectionReport::words), now).await {
                Ok(()) => {}
                Err(CallError::Down | CallError::Busy | CallError::Refused(_)) if !self.gives_up() => {
                    unsent.extend(batch);
                }
                Err(_) => script.count_unsettled(batch.iter().map(|one| one.difference.unsigned_abs()).sum()),
            }
        }
        unsent.into_iter().rev().for_each(|one| self.reports.borrow_mut().corrections.push_front(one));
        self.settling.set(false);
    }

    /// Reports the refusals that were given from the cache; some may begin bans.
    async fn report_refusals(&self, script: &ScriptClient, bans: &Bans) {
        let refused = std::mem::take(&mut self.reports.borrow_mut().refused);
        let mut refused: Vec<_> = refused.into_values().collect();
        refused.sort_by_key(|report| report.slot);
        for same_slot in refused.chunk_by(|one, other| one.slot == other.slot) {
            for batch in same_slot.chunks(BATCH) {
                let Some(first) = batch.first() else { continue };
                let reported = batch.iter().map(|report| (&*report.key, &report.algorithm, report.count));
                let Ok(rests) = script.report(first.slot, reported).await else { continue };
                for (report, rest) in batch.iter().zip(rests) {
                    if let Some(rest) = rest
                        && bans.begin(report.banned, rest, report.now())
                    {
                        self.reports.borrow_mut().begun.push((report.banned, rest));
                    }
                }
            }
        }
    }

    /// Renews the places of requests in flight.
    async fn renew(&self, script: &ScriptClient) {
        let sent = send(script, b"renew", self.to_renew()).await.into_iter();
        let uncertain: HashSet<_> =
            sent.filter(|(_, is_done)| !is_done).map(|(one, _)| one.number()).collect();
        let Reports { held, ended, .. } = &mut *self.reports.borrow_mut();
        // Of those that have ended meanwhile, none is released yet.
        for held in held.values_mut().chain(ended) {
            held.is_uncertain |= held.places.iter().any(|one| uncertain.contains(&one.number()));
        }
    }

    /// Releases the places of requests that have ended.
    async fn release(&self, script: &ScriptClient) {
        let ended = std::mem::take(&mut self.reports.borrow_mut().ended);
        let places = ended.into_iter().flat_map(|HeldPlaces { places, is_uncertain, .. }| {
            places.into_iter().map(move |place| Release { place, is_uncertain })
        });
        self.send_releases(script, places.collect()).await;
    }

    /// Repeats the releases that have to be.
    async fn release_again(&self, script: &ScriptClient) {
        let repeated = std::mem::take(&mut self.reports.borrow_mut().repeated);
        self.send_releases(script, repeated).await;
    }

    async fn send_releases(&self, script: &ScriptClient, releases: Vec<Release>) {
        let sent = send(script, b"release", releases).await;
        let again = sent.into_iter().filter(|(release, is_done)| release.is_uncertain || !is_done);
        let repeated = &mut self.reports.borrow_mut().repeated;
        let room = MAX_REPEATED.saturating_sub(repeated.len());
        let again = again.map(|(Release { place, .. }, is_done)| Release { place, is_uncertain: !is_done });
        repeated.extend(again.take(room));
    }

    /// The places that were not renewed for a while.
    fn to_renew(&self) -> Vec<StoredPlace> {
        let present = now();
        let mut places = Vec::new();
        for held in self.reports.borrow_mut().held.values_mut() {
            if held.renewed.is_none_or(|renewed| present - renewed >= RENEWED_AFTER) {
                held.renewed = Some(present);
                places.extend(held.places.iter().cloned());
            }
        }
        places
    }
}
