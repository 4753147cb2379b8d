//! The arguments of the script.
//!
//! `EVALSHA sha1 n key… operation moment charge…`: n keys, as many charges, in the same order; a key may occur several
//! times.
//!
//! - `operation` is `decide`, `peek` (the same decisions without the charge, nothing is written), `settle`, `grant` (see
//!   [`Algorithm::grant`]), `charge` (see [`Algorithm::charge`]) or `used`; `reset` deletes the keys, and has no charges.
//! - `moment` is 0; of a `charge` that is made once, the lifetime of its record in ms. The record is one more key, and one
//!   more argument: a hash of the request. `claim` has only these, for a key that says which request an idempotency key
//!   stands for. `lease` takes units in advance of each key by itself, at most the cost, and `return` gives as many back.
//! - A charge is one argument in bytes: the name of the Lua implementation and a zero byte; the group in two bytes (0:
//!   enforced, p + 1: shadow limit at index p); then six doubles, the cost (or difference) and the five parameters of
//!   the Lua implementation. Eight numbers as text took the server 2 µs more. Windows of a calendar have four more, the
//!   edges of the windows before, at and after the time that the gateway takes for the server's. Of `settle`, the time of the admission in µs is the
//!   last double. Of `lease` and `return` the last two are the time of the grant (of a `return`), and how long after it units
//!   may come back, in µs.
//! - A ban is a charge after all others. The highest bit of its group is set, and the next one in shadow; then
//!   come the index of the limit's first charge and their number (6 bits), 0 to report refusals. The spans of successive
//!   bans follow the parameters.
//! - A call with concurrency limits has one more argument: 16 bytes that name the request.
//! - `renew` and `release` have a member of `places.lua` for each key, instead of a charge.
//!
//! The lists of bans are separate, with a key and arguments of their own: see `bans.lua`.

use smallvec::SmallVec;

use crate::limit::Algorithm;
use crate::limit::lease::Lease;
use crate::limit::units::{Cost, EXACT, Timestamp};
use crate::limit::wall_clock::WallTime;
use crate::store::{Charge, Group, IdempotentCharge, StoreRequest};

/// The group of enforced charges.
const ENFORCED: u16 = 0;
/// The highest bit of the group of a ban.
const BAN: u16 = 1 << 15;

/// [`ChargeRecords::LIFETIME`](crate::store::ChargeRecords::LIFETIME) in ms.
const RECORD_MS: &[u8] = b"86400000";

/// The id of a request with places: random digits of the worker's client, and a number.
pub type PlaceId = [u8; 16];

/// Passes to `give` the arguments after the keys, for deciding the charges, all or none.
pub fn decide(StoreRequest { charges, bans }: StoreRequest<'_>, now: WallTime, mut give: impl FnMut(&[u8])) {
    ask(b"decide", charges, now, &mut give);
    for ban in bans {
        let (algorithm, units) = (ban.charge.algorithm, ban.charge.cost.units().into());
        give(&argument(algorithm, now, ban_group(ban.is_shadow(), ban.of), units));
    }
}

/// Passes to `give` the arguments after the keys, for evaluating each charge separately.
pub fn peek(charges: &[Charge<'_>], now: WallTime, give: impl FnMut(&[u8])) {
    ask(b"peek", charges, now, give);
}

/// Passes to `give` the arguments after the keys, for correcting costs that were admitted before: the algorithm of each,
/// when it counted by the server's clock, and by how many units the cost was higher; a refund if negative.
pub fn settle<'c>(
    corrections: impl Iterator<Item = (&'c Algorithm, Timestamp, i64)>,
    now: WallTime,
    mut give: impl FnMut(&[u8]),
) {
    give(b"settle");
    give(b"0");
    for (algorithm, counted_at, difference) in corrections {
        let mut argument = argument(algorithm, now, ENFORCED, exact(difference));
        argument.extend_from_slice(&(counted_at.0 as f64).to_le_bytes());
        give(&argument);
    }
}

/// Passes to `give` the arguments after the keys, for taking units in advance: the algorithm of each key, its lease, and how
/// many units at most.
pub fn lease<'l>(
    wanted: impl Iterator<Item = (&'l Algorithm, &'l Lease, u32)>,
    now: WallTime,
    mut give: impl FnMut(&[u8]),
) {
    give(b"lease");
    give(b"0");
    for (algorithm, lease, units) in wanted {
        give(&leased(algorithm, lease, units, Timestamp(0), now));
    }
}

/// Passes to `give` the arguments after the keys, for giving units back that were taken at these times of the server's
/// clock.
pub fn give_back<'l>(
    returned: impl Iterator<Item = (&'l Algorithm, &'l Lease, u32, Timestamp)>,
    now: WallTime,
    mut give: impl FnMut(&[u8]),
) {
    give(b"return");
    give(b"0");
    for (algorithm, lease, units, granted_at) in returned {
        give(&leased(algorithm, lease, units, granted_at, now));
    }
}

fn leased(
    algorithm: &Algorithm,
    lease: &Lease,
    units: u32,
    granted_at: Timestamp,
    now: WallTime,
) -> Argument {
    let mut argument = argument(algorithm, now, ENFORCED, units.into());
    argument.extend_from_slice(&(granted_at.0 as f64).to_le_bytes());
    argument.extend_from_slice(&(lease.returnable().0 as f64).to_le_bytes());
    argument
}

/// Passes to `give` the arguments after the keys, for crediting `units` to each key.
pub fn grant(charges: &[Charge<'_>], units: Cost, now: WallTime, mut give: impl FnMut(&[u8])) {
    give(b"grant");
    give(b"0");
    for charge in charges {
        give(&argument(charge.algorithm, now, ENFORCED, units.units().into()));
    }
}

/// Passes to `give` the arguments after the keys, for charging `units` to each key. With `once`, the last key is that of
/// its record.
pub fn charge(
    charges: &[Charge<'_>],
    units: Cost,
    once: Option<&IdempotentCharge>,
    now: WallTime,
    mut give: impl FnMut(&[u8]),
) {
    give(b"charge");
    give(if once.is_some() { RECORD_MS } else { b"0" });
    for charge in charges {
        give(&argument(charge.algorithm, now, ENFORCED, units.units().into()));
    }
    if let Some(once) = once {
        give(&once.request.to_be_bytes());
    }
}

/// Passes to `give` the arguments after the key that says which request an idempotency key stands for.
pub fn claim(once: &IdempotentCharge, mut give: impl FnMut(&[u8])) {
    give(b"claim");
    give(RECORD_MS);
    give(&once.request.to_be_bytes());
}

/// Passes to `give` the arguments after the keys, for reading the units in use.
pub fn used(charges: &[Charge<'_>], now: WallTime, give: impl FnMut(&[u8])) {
    ask(b"used", charges, now, give);
}

/// Passes to `give` the arguments after the keys of bans, for counting this number of refusals of each.
pub fn report<'b>(bans: impl Iterator<Item = (&'b Algorithm, Cost)>, mut give: impl FnMut(&[u8])) {
    give(b"decide");
    give(b"0");
    let group = ban_group(false, (0, 0));
    bans.for_each(|(ban, refusals)| give(&argument(ban, WallTime(0), group, refusals.units().into())));
}

/// Passes to `give` the arguments after the keys, for deleting them.
pub fn reset(mut give: impl FnMut(&[u8])) {
    give(b"reset");
}

fn ask(operation: &[u8], charges: &[Charge<'_>], now: WallTime, mut give: impl FnMut(&[u8])) {
    give(operation);
    give(b"0");
    for Charge { algorithm, group, cost, .. } in charges {
        let group = match group {
            Group::Enforced => ENFORCED,
            Group::Shadow(index) => u16::from(*index) + 1,
        };
        give(&argument(algorithm, now, group, cost.units().into()));
    }
}

/// The group of a ban: whether it is of a shadow limit, the index of the limit's first charge, and their number.
fn ban_group(shadow: bool, (first, count): (u8, u8)) -> u16 {
    BAN | u16::from(shadow) << 14 | u16::from(first) << 6 | u16::from(count)
}

/// As long as the longest argument, so that arguments are built on the stack.
type Argument = SmallVec<[u8; 104]>;

fn argument(algorithm: &Algorithm, now: WallTime, group: u16, units: f64) -> Argument {
    let twin = algorithm.twin(now);
    let mut argument = Argument::new();
    argument.extend_from_slice(twin.module.as_bytes());
    argument.push(0);
    argument.extend_from_slice(&group.to_le_bytes());
    argument.extend_from_slice(&units.to_le_bytes());
    for number in twin.params.into_iter().chain(twin.spans.iter().map(|span| span.0)) {
        argument.extend_from_slice(&(number as f64).to_le_bytes());
    }
    argument
}

/// No state exceeds 2^53 - 1, so a larger difference has no larger effect.
fn exact(difference: i64) -> f64 {
    let max = EXACT.cast_signed() - 1;
    difference.clamp(-max, max) as f64
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::limit::units::{Fingerprint, Micros, Rate};
    use crate::store::{ParamsId, SharedKeyInfo};

    #[test]
    fn a_charge_is_a_name_a_group_and_six_doubles() {
        let rate = Rate::new(3, Micros::SECOND).unwrap();
        let algorithm = &Algorithm::sliding_log(rate, Some(Micros(7)), true);
        let (params, key, cost) = (ParamsId::of(algorithm), Fingerprint(1), Cost::new(2).unwrap());
        let (group, shared_key) = (Group::Shadow(4), SharedKeyInfo::NONE);
        let charge = Charge { algorithm, params, key, cost, group, shared_key };
        let mut given = Vec::new();
        decide(StoreRequest::of(&[charge]), WallTime(0), |argument| given.push(argument.to_vec()));
        let doubles = [2.0, 1_000_000.0, 3.0, 7.0, 1.0, 0.0].map(f64::to_le_bytes).concat();
        let argument = [&b"sliding_log\0\x05\0"[..], &doubles].concat();
        assert_eq!(given, [b"decide".to_vec(), b"0".to_vec(), argument]);
    }

    #[test]
    fn no_argument_leaves_the_stack() {
        let rate = Rate::new(1, Micros::SECOND).unwrap();
        let longest =
            argument(&Algorithm::sliding_window(rate), WallTime(0), u16::from(u8::MAX) + 1, f64::MAX);
        assert!(!longest.spilled());
    }
}
