//! Places of requests in the servers, and operations on them.

use smallvec::SmallVec;

use super::BATCH;
use crate::store::Charge;
use crate::store::redis::call::PlaceId;
use crate::store::redis::script_client::ScriptClient;
use crate::store::redis::slot::HashSlot;

/// The places of a request under one key.
#[derive(Clone, Debug)]
pub(super) struct StoredPlace {
    pub(super) slot: HashSlot,
    key: Box<[u8]>,
    member: [u8; 20],
}

impl StoredPlace {
    /// The number of its request: see `Reporter::id`.
    pub(super) fn number(&self) -> u64 {
        let [_, _, _, _, _, _, _, _, number @ .., _, _, _, _] = self.member;
        u64::from_le_bytes(number)
    }
}

impl AsRef<StoredPlace> for StoredPlace {
    fn as_ref(&self) -> &StoredPlace {
        self
    }
}

/// The places of a request with this id, of the wanted charges.
pub(super) fn places(
    script: &ScriptClient,
    charges: &[Charge<'_>],
    id: PlaceId,
    wanted: impl Fn(usize) -> bool,
) -> SmallVec<[StoredPlace; 1]> {
    let mut units = SmallVec::<[(&Charge<'_>, u32); 2]>::new();
    for (index, charge) in charges.iter().enumerate() {
        if charge.algorithm.as_concurrency().is_none() || !wanted(index) {
            continue;
        }
        // The server has one member for all of a request's places under one key.
        match units.iter_mut().find(|(other, _)| other.key == charge.key) {
            Some((_, units)) => *units += charge.cost.units(),
            None => units.push((charge, charge.cost.units())),
        }
    }
    let place = |(charge, units): (&Charge<'_>, u32)| {
        let mut member = [0; 20];
        member[..16].copy_from_slice(&id);
        member[16..].copy_from_slice(&units.to_le_bytes());
        StoredPlace { slot: script.slot(charge), key: script.name(charge), member }
    };
    units.into_iter().map(place).collect()
}

/// Sends an operation on places, those of one slot together. Tells of each whether its call had a reply.
pub(super) async fn send<P: AsRef<StoredPlace>>(
    script: &ScriptClient,
    operation: &[u8],
    mut places: Vec<P>,
) -> Vec<(P, bool)> {
    let slot = |one: &P| one.as_ref().slot;
    places.sort_by_key(slot);
    let mut done = Vec::with_capacity(places.len());
    for same_slot in places.chunk_by(|one, other| slot(one) == slot(other)) {
        for batch in same_slot.chunks(BATCH) {
            let Some(first) = batch.first() else { continue };
            let named =
                batch.iter().map(AsRef::as_ref).map(|StoredPlace { key, member, .. }| (&**key, &member[..]));
            let reply = script.change_places(slot(first), operation, named).await;
            done.resize(done.len() + batch.len(), reply.is_ok());
        }
    }
    places.into_iter().zip(done).collect()
}
