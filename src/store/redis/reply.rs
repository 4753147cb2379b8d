//! The reply of the script.
//!
//! Integers: the server's time in µs that was used. Then, unless a cost was settled, four for each charge: the verdict
//! (0 allow, 1 delay, 2 deny, 3 never, 4 unknown), the wait in µs (0 without one), `remaining`, and `reset_after` in µs.
//! Of a `grant`, one for each charge: the units given back; of a `lease`, three for each key: the units taken, and
//! `remaining` and `reset_after` afterwards; of `used`, the units in use. Of a `charge`, one: 0 charged, 1
//! charged before, 2 the idempotency key stands for another request. Of a `claim`, one: 0 if it does, else 1.
//!
//! -1, and the server's time: nothing was done, since the edges of a calendar do not hold that time.

use crate::limit::units::{EXACT, Micros, Timestamp};
use crate::limit::wall_clock::WallTime;
use crate::limit::{Decision, Verdict, Wait};
use crate::store::{ChargeEffect, Decisions, OperationFault, Outcome, Unreachable};

/// Integers for each charge.
const EACH: usize = 4;
/// Integers for each key of a `lease`.
const EACH_GRANT: usize = 3;

/// A reply.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Reply {
    /// The server's time that was used; [`settle`](super::call::settle) needs it.
    pub now: Timestamp,
    /// One decision a charge; none where a cost was settled.
    pub outcome: Outcome,
}

/// Why a reply is unreadable.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Unreadable {
    /// The number of integers does not match the charges.
    #[error("{found} integers where {wanted} were wanted")]
    Length {
        /// The number found.
        found: usize,
        /// The number expected.
        wanted: usize,
    },
    /// A number out of range.
    #[error("{0} where a verdict or a number of 0 to 2^53 was wanted")]
    Number(i64),
}

/// Reads the reply to a call with this many charges (0 for `settle`).
pub fn read(integers: &[i64], charges: usize) -> Result<Reply, Unreadable> {
    let (found, wanted) = (integers.len(), 1 + EACH * charges);
    let (Some((now, answers)), true) = (integers.split_first(), found == wanted) else {
        return Err(Unreadable::Length { found, wanted });
    };
    let (answers, _) = answers.as_chunks::<EACH>();
    let decisions = answers.iter().map(decision).collect::<Result<_, _>>()?;
    Ok(Reply { now: Timestamp(number(*now)?), outcome: Decisions::Together(decisions).into() })
}

/// The server's time, if it did nothing because the edges of a calendar do not hold it.
pub fn time_beyond_edges(integers: &[i64]) -> Option<WallTime> {
    match integers {
        [-1, now] => number(*now).ok().map(WallTime),
        _ => None,
    }
}

/// Reads the reply to a `grant` or `used` of this many charges: the units of each.
///
/// # Errors
///
/// See [`Unreadable`].
pub fn units(integers: &[i64], charges: usize) -> Result<Vec<u64>, Unreadable> {
    match integers.split_first() {
        Some((_, units)) if units.len() == charges => units.iter().copied().map(number).collect(),
        _ => Err(Unreadable::Length { found: integers.len(), wanted: 1 + charges }),
    }
}

/// Reads the reply to a `lease` of this many keys: the server's time, and of each key the units taken and the decision on a
/// request of one unit afterwards.
///
/// # Errors
///
/// See [`Unreadable`].
pub fn grants(integers: &[i64], keys: usize) -> Result<(Timestamp, Vec<(u32, Decision)>), Unreadable> {
    let (found, wanted) = (integers.len(), 1 + EACH_GRANT * keys);
    let (Some((now, answers)), true) = (integers.split_first(), found == wanted) else {
        return Err(Unreadable::Length { found, wanted });
    };
    let (answers, _) = answers.as_chunks::<EACH_GRANT>();
    let grant = |&[units, remaining, reset_after]: &[i64; EACH_GRANT]| {
        let units = u32::try_from(units).map_err(|_| Unreadable::Number(units))?;
        let (remaining, reset_after) = (number(remaining)?, Micros(number(reset_after)?));
        Ok((units, Decision { verdict: Verdict::Allow, remaining, reset_after }))
    };
    Ok((Timestamp(number(*now)?), answers.iter().map(grant).collect::<Result<_, _>>()?))
}

/// Reads the reply to a `charge`.
///
/// # Errors
///
/// [`OperationFault::OtherCharge`] is the server's answer; any other text is [`Unreachable`].
pub fn charged(integers: &[i64]) -> Result<ChargeEffect, OperationFault> {
    match integers {
        [_, 0] => Ok(ChargeEffect::Charged),
        [_, 1] => Ok(ChargeEffect::Repeated),
        [_, 2] => Err(OperationFault::OtherCharge),
        _ => Err(Unreachable.into()),
    }
}

fn decision(&[verdict, wait, remaining, reset_after]: &[i64; EACH]) -> Result<Decision, Unreadable> {
    let wait = Micros(number(wait)?);
    let verdict = match verdict {
        0 => Verdict::Allow,
        1 => Verdict::Delay(wait),
        2 => Verdict::Deny(Wait::After(wait)),
        3 => Verdict::Deny(Wait::Never),
        4 => Verdict::Deny(Wait::Unknown),
        other => return Err(Unreadable::Number(other)),
    };
    Ok(Decision { verdict, remaining: number(remaining)?, reset_after: Micros(number(reset_after)?) })
}

fn number(integer: i64) -> Result<u64, Unreadable> {
    u64::try_from(integer).ok().filter(|number| *number <= EXACT).ok_or(Unreadable::Number(integer))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn answers_are_read() {
        let reply = read(&[7, 0, 0, 3, 5, 1, 20, 2, 0, 2, 30, 0, 30, 3, 0, 1, 9, 4, 0, 2, 0], 5).unwrap();
        assert_eq!(reply.now, Timestamp(7));
        let verdicts: Vec<_> = reply.outcome.decisions.iter().map(|decision| decision.verdict).collect();
        let (delay, after) = (Verdict::Delay(Micros(20)), Verdict::Deny(Wait::After(Micros(30))));
        let others = [Wait::Never, Wait::Unknown].map(Verdict::Deny);
        assert_eq!(verdicts, [Verdict::Allow, delay, after, others[0], others[1]]);
        let last = reply.outcome.decisions[3];
        assert_eq!((last.remaining, last.reset_after), (1, Micros(9)));
        assert_eq!(read(&[7], 0).unwrap(), Reply { now: Timestamp(7), outcome: Outcome::default() });
    }

    #[test]
    fn grants_are_read_and_no_others() {
        let (now, read) = grants(&[7, 3, 9, 5, 0, 0, 8], 2).unwrap();
        let numbers = read.iter().map(|(units, left)| (*units, left.remaining, left.reset_after.0));
        assert_eq!((now, numbers.collect::<Vec<_>>()), (Timestamp(7), vec![(3, 9, 5), (0, 0, 8)]));
        for integers in
            [&[][..], &[7, 3, 9], &[7, 3, 9, 5, 1], &[7, -1, 9, 5], &[7, 1 << 32, 9, 5], &[7, 3, -9, 5]]
        {
            assert!(grants(integers, 1).is_err(), "{integers:?}");
        }
    }

    #[test]
    fn what_the_script_never_says_is_refused() {
        for (integers, charges, expected) in [
            (&[][..], 0, "0 integers where 1 were wanted"),
            (&[7, 0, 0, 3], 1, "4 integers where 5 were wanted"),
            (&[7, 0, 0, 3, 5], 0, "5 integers where 1 were wanted"),
            (&[7, 5, 0, 3, 5], 1, "5 where a verdict or a number of 0 to 2^53 was wanted"),
            (&[7, 0, 0, -3, 5], 1, "-3 where a verdict or a number of 0 to 2^53 was wanted"),
            (&[i64::MAX], 0, "9223372036854775807 where a verdict or a number of 0 to 2^53 was wanted"),
        ] {
            assert_eq!(read(integers, charges).unwrap_err().to_string(), expected);
        }
    }
}
