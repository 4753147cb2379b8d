//! Who makes room when a key is new or a log grows: the expired of its sets, then the least used of the neighbourhood.

use super::census::{Census, Standing};
use super::held::{Held, Seat};
use super::set::SLOTS;
use crate::limit::units::Fingerprint;

impl Held<'_> {
    /// How many slots an eviction chooses from, if there are as many nearby. If half of all keys are to be kept, the
    /// chance that these are all such is 2^-32.
    const COMPANY: usize = 32;
    /// Up to so many keys in all, everybody is company.
    const ALL: u64 = 64;
    /// How many sets are visited for company. Only logs of very many events leave so many sets empty.
    const MAX_VISITS: usize = 1_024;

    /// Makes room for `needed` in the bound, or as much as there is, and takes it.
    pub(super) fn make_room(&mut self, key: Fingerprint, needed: u64, census: &Census<'_>) -> u64 {
        if needed == 0 {
            return 0;
        }
        let mut room = self.vacate(key, census);
        room += self.table.room.take(needed.saturating_sub(room));
        while room < needed {
            let Some(freed) = self.evict(key, census) else { break };
            room += freed;
        }
        room
    }

    /// Empties every expired slot of the key's sets and says how much room that makes.
    fn vacate(&mut self, key: Fingerprint, census: &Census<'_>) -> u64 {
        let mut room = 0;
        for set in self.own(key) {
            for slot in 0..SLOTS {
                let seat = Seat { set, slot };
                let held = self.get(seat);
                if census.is_evictable(&held) && census.is_expired(&held, &self.table.logs) {
                    room += self.clear(seat);
                }
            }
        }
        room
    }

    /// Empties the slot of the least used in the neighbourhood and says how much room that makes; `None` if there is nobody.
    fn evict(&mut self, key: Fingerprint, census: &Census<'_>) -> Option<u64> {
        let [place, _] = self.table.places(key);
        self.gather(place, census);
        let (standing, seat) = self.least(0..self.sets.len(), census)?;
        Some(self.dismiss(standing, seat, census))
    }

    /// Empties the slot of the least used in the key's own sets, whose room is given back; `None` if there is nobody.
    pub(super) fn evict_from_own(&mut self, key: Fingerprint, census: &Census<'_>) -> Option<Seat> {
        let (standing, seat) = self.least(self.own(key), census)?;
        let room = self.dismiss(standing, seat, census);
        self.table.room.give_back(room);
        Some(seat)
    }

    fn dismiss(&mut self, standing: Standing, seat: Seat, census: &Census<'_>) -> u64 {
        if !census.has_expired(standing) {
            self.table.count_eviction();
        }
        self.clear(seat)
    }

    /// The least used of some of the held sets.
    fn least(&self, sets: impl Iterator<Item = usize>, census: &Census<'_>) -> Option<(Standing, Seat)> {
        let seats = sets.flat_map(|set| (0..SLOTS).map(move |slot| Seat { set, slot }));
        let company = seats.map(|seat| (self.get(seat), seat)).filter(|(slot, _)| census.is_evictable(slot));
        company.map(|(slot, seat)| (census.standing(&slot, &self.table.logs), seat)).min()
    }

    /// Locks further sets, from `place` on, until there is enough company. It never waits for a lock, so it cannot
    /// deadlock; a set that another request holds is passed over.
    fn gather(&mut self, place: usize, census: &Census<'_>) {
        let table = self.table;
        let enough = if table.room.bound() <= Self::ALL { usize::MAX } else { Self::COMPANY };
        let company =
            |slots: &mut dyn Iterator<Item = _>| slots.filter(|slot| census.is_evictable(slot)).count();
        let mut gathered: usize = self.sets.iter().map(|(_, set)| company(&mut set.slots())).sum();
        for next in (place..table.sets()).chain(0..place).take(Self::MAX_VISITS) {
            if gathered >= enough {
                break;
            }
            if table.set(next).is_untouched() || self.index(next).is_some() {
                continue;
            }
            let Some(set) = table.set(next).try_lock() else { continue };
            let found = company(&mut set.slots());
            if found > 0 {
                gathered += found;
                self.sets.push((next, set));
            }
        }
    }
}
