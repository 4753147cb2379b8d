//! Charges by hand, each made once however often it is sent.

use std::collections::{HashMap, VecDeque};

use parking_lot::Mutex;
use serde::{Deserialize, Serialize};

use super::OperationFault;
use crate::limit::units::{Micros, Timestamp};

/// Names a charge by hand, so that it is made once.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct IdempotentCharge {
    /// A hash of the idempotency key.
    pub id: u128,
    /// A hash of the limit, the key and the units, the same in all gateways of a fleet.
    pub request: u128,
}

/// The effect of a charge by hand.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ChargeEffect {
    /// The units were charged.
    Charged,
    /// They were charged before, under the same idempotency key.
    Repeated,
}

/// The charges by hand of this process that have an idempotency key. With a shared store its records hold instead.
///
/// A record is never dropped early: the charge would be made again. A table that is full refuses further charges.
#[derive(Debug, Default)]
pub struct ChargeRecords(Mutex<Records>);

#[derive(Debug, Default)]
struct Records {
    /// By id, the request.
    requests: HashMap<u128, u128>,
    /// When each id was recorded, the oldest first.
    order: VecDeque<(Timestamp, u128)>,
}

impl ChargeRecords {
    /// The maximum number of records.
    pub const MAX: usize = 10_000;
    /// How long a record is kept.
    pub const LIFETIME: Micros = Micros(24 * 3_600 * 1_000_000);

    /// Makes a charge, unless it has been made. The lock is held meanwhile, so that of two at once one is made. A charge
    /// without a name is always made.
    ///
    /// # Errors
    ///
    /// Nothing was charged: see [`OperationFault`].
    pub fn once(
        &self,
        named: Option<&IdempotentCharge>,
        now: Timestamp,
        charge: impl FnOnce(),
    ) -> Result<ChargeEffect, OperationFault> {
        let Some(IdempotentCharge { id, request }) = named else {
            charge();
            return Ok(ChargeEffect::Charged);
        };
        let mut records = self.0.lock();
        records.expire(now);
        match records.requests.get(id) {
            Some(known) if known == request => return Ok(ChargeEffect::Repeated),
            Some(_) => return Err(OperationFault::OtherCharge),
            None if records.requests.len() >= Self::MAX => return Err(OperationFault::TooMany),
            None => {}
        }
        charge();
        records.requests.insert(*id, *request);
        records.order.push_back((now, *id));
        Ok(ChargeEffect::Charged)
    }
}

/// A record, for files that outlive the process.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SavedCharge {
    at: u64,
    id: u128,
    request: u128,
}

impl ChargeRecords {
    /// All records at `now`, the oldest first.
    pub fn saved(&self, now: Timestamp) -> Vec<SavedCharge> {
        let mut records = self.0.lock();
        records.expire(now);
        let saved = |&(Timestamp(at), id): &(Timestamp, u128)| {
            Some(SavedCharge { at, id, request: *records.requests.get(&id)? })
        };
        records.order.iter().filter_map(saved).collect()
    }

    /// Takes the records of another process, the oldest first, into an empty table.
    pub fn restore(&self, saved: Vec<SavedCharge>) {
        let mut records = self.0.lock();
        for SavedCharge { at, id, request } in saved.into_iter().take(Self::MAX) {
            records.requests.insert(id, request);
            records.order.push_back((Timestamp(at), id));
        }
    }
}

impl Records {
    fn expire(&mut self, now: Timestamp) {
        while let Some((at, id)) = self.order.front()
            && at.plus(ChargeRecords::LIFETIME) <= now
        {
            self.requests.remove(id);
            self.order.pop_front();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn named(id: u128, request: u128) -> IdempotentCharge {
        IdempotentCharge { id, request }
    }

    #[test]
    fn a_charge_is_made_once_within_its_lifetime() {
        let records = ChargeRecords::default();
        let mut made = 0;
        let mut send =
            |id, request, now| records.once(Some(&named(id, request)), Timestamp(now), || made += 1);
        let end = 5 + ChargeRecords::LIFETIME.0;
        assert_eq!(send(1, 7, 5), Ok(ChargeEffect::Charged));
        assert_eq!(send(1, 7, 6), Ok(ChargeEffect::Repeated));
        assert_eq!(send(1, 8, 6), Err(OperationFault::OtherCharge));
        assert_eq!(send(1, 7, end - 1), Ok(ChargeEffect::Repeated), "a repetition does not prolong it");
        assert_eq!(send(1, 8, end), Ok(ChargeEffect::Charged));
        assert_eq!(made, 2);
        assert_eq!(records.once(None, Timestamp(end), || {}), Ok(ChargeEffect::Charged));
    }

    #[test]
    fn a_full_table_forgets_nothing_that_is_young() {
        let records = ChargeRecords::default();
        let send = |id, now| records.once(Some(&named(id, 0)), Timestamp(now), || {});
        for id in 0..ChargeRecords::MAX as u128 {
            assert_eq!(send(id, 1), Ok(ChargeEffect::Charged));
        }
        let end = 1 + ChargeRecords::LIFETIME.0;
        assert_eq!(send(u128::MAX, end - 1), Err(OperationFault::TooMany));
        assert_eq!(send(0, end - 1), Ok(ChargeEffect::Repeated));
        assert_eq!(records.once(None, Timestamp(end - 1), || {}), Ok(ChargeEffect::Charged));
        assert_eq!(send(u128::MAX, end), Ok(ChargeEffect::Charged));
        assert_eq!(records.0.lock().requests.len(), 1);
    }
}
