//! The calls of a process to the one that has its counters, and the replies, as data.

use std::num::NonZeroU32;

use serde::{Deserialize, Serialize};

use crate::limit::fair_queue::Priority;
use crate::limit::units::{Cost, Fingerprint, Micros, Timestamp};
use crate::limit::{Algorithm, Decision, Verdict, Wait};
use crate::store::bans::Banned;
use crate::store::memory::in_flight::PlacesOfKey;
use crate::store::snapshot::AlgorithmParams;
use crate::store::usage::UsageMessage;
use crate::store::{
    BanCharge, Charge, Correction, Decisions, DropReason, Group, IdempotentCharge, KeyOperation, OnError,
    OperationFault, OperationResult, Outcome, ParamsId, PlaceClaims, PlaceShare, QueueDrop, SharedKeyInfo,
    StoreRequest,
};
use crate::time_zones;

/// A call.
#[derive(Debug, Serialize, Deserialize)]
pub(super) enum HandOverCall {
    /// Decide a request. One with concurrency limits has waited since this moment, and holds places until
    /// [`Self::Forget`].
    Decide(RequestMessage, Option<u64>),
    /// The call with this number is no longer waited for, or its places are free.
    Forget(u64),
    /// Places that were held before the hand-over are free.
    Free(PlacesOfKey),
    /// Correct a cost.
    Settle(ChargeMessage, u64, i64),
    /// Execute an operation.
    Execute(OperationMessage, Vec<ChargeMessage>),
    /// Add to the usage of a consumer. Sent to processes that ask for it only.
    Usage(UsageMessage),
    /// Requests in flight at this moment, in µs by the wall clock, end without their usage.
    UsageLost(u64),
}

/// A reply; to [`HandOverCall::Decide`] and [`HandOverCall::Execute`] only.
#[derive(Debug, Serialize, Deserialize)]
pub(super) enum CallReply {
    /// The decision, how long it has waited for a place in µs, and whether it holds places.
    Decided(OutcomeMessage, u64, bool),
    /// The result.
    Executed(Result<ResultMessage, FaultMessage>),
}

/// A [`Charge`].
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct ChargeMessage {
    algorithm: AlgorithmParams,
    key: u128,
    cost: u32,
    /// The index of a shadow limit.
    shadow: Option<u8>,
    identity: u128,
    settles: bool,
}

/// A [`StoreRequest`].
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct RequestMessage {
    charges: Vec<ChargeMessage>,
    bans: Vec<BanMessage>,
    /// Without it, none has a share, and the priority is the usual one.
    #[serde(default)]
    claims: ClaimsMessage,
}

/// [`PlaceClaims`]: the number of the priority, and of each share the key of the limit, that of the share, and the weight.
#[derive(Debug, Default, Serialize, Deserialize)]
struct ClaimsMessage(u8, Vec<(u128, u128, u32)>);

/// A [`BanCharge`].
#[derive(Debug, Serialize, Deserialize)]
struct BanMessage {
    charge: ChargeMessage,
    limit: u128,
    key_hash: u128,
    of: (u8, u8),
}

/// An [`Outcome`] of a store in memory.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct OutcomeMessage {
    decisions: Vec<DecisionMessage>,
    banned: bool,
    counted_at: Option<Vec<u64>>,
    /// A [`QueueDrop`]: the number of the reason, the key of the limit, and whether it is over its share.
    #[serde(default)]
    dropped: Option<(u8, u128, bool)>,
}

/// A [`Decision`]: its verdict, `remaining`, and `reset_after` in µs.
type DecisionMessage = (VerdictMessage, u64, u64);

/// A [`Verdict`], with times in µs.
#[derive(Debug, Serialize, Deserialize)]
pub(super) enum VerdictMessage {
    Allow,
    Delay(u64),
    DenyFor(u64),
    DenyUntilUnknown,
    DenyForEver,
}

/// A [`KeyOperation`].
#[derive(Debug, Serialize, Deserialize)]
pub(super) enum OperationMessage {
    Look,
    Used,
    Reset,
    Grant(u32),
    /// Units; id and request of the charge.
    Charge(u32, Option<(u128, u128)>),
}

/// An [`OperationResult`].
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct ResultMessage {
    decisions: Vec<DecisionMessage>,
    units: Vec<u64>,
    changed: bool,
}

/// An [`OperationFault`] of a store in memory.
#[derive(Debug, Serialize, Deserialize)]
pub(super) enum FaultMessage {
    OtherCharge,
    TooMany,
    /// The call was not of this format.
    Unreachable,
}

/// A charge whose parts are owned here.
#[derive(Debug)]
pub(super) struct OwnedCharge {
    algorithm: Algorithm,
    key: Fingerprint,
    cost: Cost,
    group: Group,
    shared_key: SharedKeyInfo,
}

/// A request whose parts are owned here.
#[derive(Debug)]
pub(super) struct OwnedRequest {
    pub(super) charges: Vec<OwnedCharge>,
    pub(super) bans: Vec<(OwnedCharge, Banned, (u8, u8))>,
    pub(super) claims: PlaceClaims,
}

impl OwnedCharge {
    pub(super) fn charge(&self) -> Charge<'_> {
        let Self { algorithm, key, cost, group, shared_key } = self;
        let params = ParamsId::of_policy(algorithm, shared_key.identity);
        Charge { algorithm, params, key: *key, cost: *cost, group: *group, shared_key }
    }
}

impl OwnedRequest {
    pub(super) fn charges(&self) -> Vec<Charge<'_>> {
        self.charges.iter().map(OwnedCharge::charge).collect()
    }

    pub(super) fn bans(&self) -> Vec<BanCharge<'_>> {
        let all = self.bans.iter();
        all.map(|(charge, banned, of)| BanCharge { charge: charge.charge(), banned: *banned, of: *of })
            .collect()
    }
}

impl ChargeMessage {
    pub(super) fn of(charge: &Charge<'_>) -> Self {
        Self {
            algorithm: AlgorithmParams::of(charge.algorithm),
            key: charge.key.0,
            cost: charge.cost.units(),
            shadow: if let Group::Shadow(index) = charge.group { Some(index) } else { None },
            identity: charge.shared_key.identity,
            settles: charge.shared_key.settles,
        }
    }

    /// `None`: no process of this version sends it.
    pub(super) fn owned(&self) -> Option<OwnedCharge> {
        Some(OwnedCharge {
            algorithm: self.algorithm.algorithm(time_zones::named)?,
            key: Fingerprint(self.key),
            // Corrections have no cost of their own.
            cost: if self.cost == 0 { Cost::ZERO } else { Cost::new(self.cost)? },
            group: self.shadow.map_or(Group::Enforced, Group::Shadow),
            shared_key: SharedKeyInfo {
                name: "".into(),
                identity: self.identity,
                on_error: OnError::Local,
                settles: self.settles,
                stays_in_process: false,
                lease: None,
            },
        })
    }
}

impl RequestMessage {
    pub(super) fn of(request: StoreRequest<'_>, claims: Option<&PlaceClaims>) -> Self {
        let ban = |ban: &BanCharge<'_>| BanMessage {
            charge: ChargeMessage::of(&ban.charge),
            limit: ban.banned.limit,
            key_hash: ban.banned.key_hash.0,
            of: ban.of,
        };
        let charges = request.charges.iter().map(ChargeMessage::of).collect();
        let claims = claims.map(ClaimsMessage::of).unwrap_or_default();
        Self { charges, bans: request.bans.iter().map(ban).collect(), claims }
    }

    pub(super) fn owned(&self) -> Option<OwnedRequest> {
        let ban = |ban: &BanMessage| {
            let banned = Banned { limit: ban.limit, key_hash: Fingerprint(ban.key_hash) };
            Some((ban.charge.owned()?, banned, ban.of))
        };
        let charges = self.charges.iter().map(ChargeMessage::owned).collect::<Option<_>>()?;
        let bans = self.bans.iter().map(ban).collect::<Option<_>>()?;
        Some(OwnedRequest { charges, bans, claims: self.claims.claims() })
    }
}

impl ClaimsMessage {
    fn of(claims: &PlaceClaims) -> Self {
        let share = |share: &PlaceShare| (share.place.0, share.key.0, share.weight.get());
        // Zero is that of a process which knows no priorities.
        Self(claims.priority as u8 + 1, claims.shares.iter().map(share).collect())
    }

    fn claims(&self) -> PlaceClaims {
        let number = self.0;
        let priority = Priority::ALL.into_iter().find(|priority| *priority as u8 + 1 == number);
        let share = |&(place, key, weight): &(u128, u128, u32)| {
            Some(PlaceShare {
                place: Fingerprint(place),
                key: Fingerprint(key),
                weight: NonZeroU32::new(weight)?,
            })
        };
        let shares = self.1.iter().filter_map(share).collect();
        PlaceClaims { priority: priority.unwrap_or_default(), shares }
    }
}

impl OutcomeMessage {
    pub(super) fn of(outcome: &Outcome) -> Self {
        Self {
            decisions: outcome.decisions.iter().map(decision_message).collect(),
            banned: outcome.banned,
            counted_at: outcome.counted_at.as_ref().map(|times| times.iter().map(|at| at.0).collect()),
            dropped: outcome.dropped.map(|drop| (drop.reason as u8, drop.place.0, drop.is_over_share)),
        }
    }

    pub(super) fn outcome(self) -> Outcome {
        Outcome {
            decisions: decisions(&self.decisions),
            banned: self.banned,
            counted_at: self.counted_at.map(|times| times.into_iter().map(Timestamp).collect()),
            dropped: self.dropped.and_then(|(number, place, is_over_share)| {
                let reason = DropReason::ALL.into_iter().find(|reason| *reason as u8 == number)?;
                Some(QueueDrop { reason, place: Fingerprint(place), is_over_share })
            }),
            ..Outcome::default()
        }
    }

    /// Whether there is a decision for each charge.
    pub(super) fn answers(&self, request: StoreRequest<'_>) -> bool {
        self.banned || self.decisions.len() == request.charges.len()
    }
}

impl OperationMessage {
    pub(super) fn of(operation: &KeyOperation) -> Self {
        match operation {
            KeyOperation::Look => Self::Look,
            KeyOperation::Used => Self::Used,
            KeyOperation::Reset => Self::Reset,
            KeyOperation::Grant(units) => Self::Grant(units.units()),
            KeyOperation::Charge(units, once) => {
                Self::Charge(units.units(), once.map(|once| (once.id, once.request)))
            }
        }
    }

    pub(super) fn operation(&self) -> Option<KeyOperation> {
        Some(match self {
            Self::Look => KeyOperation::Look,
            Self::Used => KeyOperation::Used,
            Self::Reset => KeyOperation::Reset,
            Self::Grant(units) => KeyOperation::Grant(Cost::new(*units)?),
            Self::Charge(units, once) => {
                let once = once.map(|(id, request)| IdempotentCharge { id, request });
                KeyOperation::Charge(Cost::new(*units)?, once)
            }
        })
    }
}

impl ResultMessage {
    pub(super) fn of(result: &OperationResult) -> Self {
        let decisions = result.decisions.iter().map(decision_message).collect();
        Self { decisions, units: result.units.clone(), changed: result.changed }
    }

    pub(super) fn result(self) -> OperationResult {
        OperationResult { decisions: decisions(&self.decisions), units: self.units, changed: self.changed }
    }
}

impl FaultMessage {
    pub(super) fn of(fault: OperationFault) -> Self {
        match fault {
            OperationFault::OtherCharge => Self::OtherCharge,
            OperationFault::TooMany => Self::TooMany,
            OperationFault::Unreachable(_) => Self::Unreachable,
        }
    }

    /// `None`: this process executes the operation itself.
    pub(super) fn fault(self) -> Option<OperationFault> {
        match self {
            Self::OtherCharge => Some(OperationFault::OtherCharge),
            Self::TooMany => Some(OperationFault::TooMany),
            Self::Unreachable => None,
        }
    }
}

/// The charge of a correction, when it counted, and the difference.
pub(super) fn settle_call(correction: &Correction<'_>) -> HandOverCall {
    HandOverCall::Settle(
        ChargeMessage::of(&correction.charge),
        correction.counted_at.0,
        correction.difference,
    )
}

fn decision_message(decision: &Decision) -> DecisionMessage {
    let verdict = match decision.verdict {
        Verdict::Allow => VerdictMessage::Allow,
        Verdict::Delay(delay) => VerdictMessage::Delay(delay.0),
        Verdict::Deny(Wait::After(wait)) => VerdictMessage::DenyFor(wait.0),
        Verdict::Deny(Wait::Unknown) => VerdictMessage::DenyUntilUnknown,
        Verdict::Deny(Wait::Never) => VerdictMessage::DenyForEver,
    };
    (verdict, decision.remaining, decision.reset_after.0)
}

fn decisions(messages: &[DecisionMessage]) -> Decisions {
    let decision = |(verdict, remaining, reset_after): &DecisionMessage| Decision {
        verdict: match verdict {
            VerdictMessage::Allow => Verdict::Allow,
            VerdictMessage::Delay(delay) => Verdict::Delay(Micros(*delay)),
            VerdictMessage::DenyFor(wait) => Verdict::Deny(Wait::After(Micros(*wait))),
            VerdictMessage::DenyUntilUnknown => Verdict::Deny(Wait::Unknown),
            VerdictMessage::DenyForEver => Verdict::Deny(Wait::Never),
        },
        remaining: *remaining,
        reset_after: Micros(*reset_after),
    };
    Decisions::Together(messages.iter().map(decision).collect())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::limit::Align;
    use crate::limit::units::Rate;

    fn algorithms() -> Vec<Algorithm> {
        let rate = Rate::new(7, Micros(3_000_000)).unwrap();
        let (burst, span) = (Cost::new(9).unwrap(), Micros(5_000_000));
        let month = time_zones::named("month-15@Europe/Berlin").unwrap();
        vec![
            Algorithm::token_bucket(rate, burst),
            Algorithm::gcra(rate, burst),
            Algorithm::leaky_bucket(rate, burst, span),
            Algorithm::fixed_window(rate, Align::Clock),
            Algorithm::fixed_window(rate, Align::Calendar(month)),
            Algorithm::sliding_window(rate),
            Algorithm::sliding_log(rate, Some(span), true),
            Algorithm::concurrency(burst, 3, span),
        ]
    }

    fn through_json<T: Serialize + serde::de::DeserializeOwned>(message: &T) -> T {
        serde_json::from_slice(&serde_json::to_vec(message).unwrap()).unwrap()
    }

    #[test]
    fn a_request_is_the_same_on_the_other_side() {
        let shared_key =
            SharedKeyInfo { identity: u128::MAX - 5, settles: true, ..SharedKeyInfo::NONE.clone() };
        let algorithms = algorithms();
        let charge = |(index, algorithm): (usize, &'_ Algorithm)| (index, *algorithm);
        for (index, algorithm) in algorithms.iter().enumerate().map(charge) {
            let charge = Charge {
                algorithm: &algorithm,
                params: ParamsId::of_policy(&algorithm, shared_key.identity),
                key: Fingerprint(u128::MAX - index as u128),
                cost: Cost::new(5).unwrap(),
                group: if index % 2 == 0 { Group::Enforced } else { Group::Shadow(3) },
                shared_key: &shared_key,
            };
            let ban = BanCharge { charge, banned: Banned { limit: 7, key_hash: charge.key }, of: (0, 1) };
            let request = StoreRequest { charges: &[charge], bans: &[ban] };
            let owned = through_json(&RequestMessage::of(request, None)).owned().unwrap();
            assert_eq!(format!("{:?}", owned.charges()), format!("{:?}", request.charges));
            assert_eq!(format!("{:?}", owned.bans()), format!("{:?}", request.bans));
        }
        // A correction has no cost of its own.
        let charge = Charge {
            algorithm: &algorithms[0],
            params: ParamsId::of_policy(&algorithms[0], 0),
            key: Fingerprint(1),
            cost: Cost::ZERO,
            group: Group::Enforced,
            shared_key: SharedKeyInfo::NONE,
        };
        assert_eq!(through_json(&ChargeMessage::of(&charge)).owned().unwrap().charge().cost, Cost::ZERO);
    }

    #[test]
    fn an_outcome_is_the_same_on_the_other_side() {
        let verdicts = [
            Verdict::Allow,
            Verdict::Delay(Micros(5)),
            Verdict::Deny(Wait::After(Micros(u64::MAX))),
            Verdict::Deny(Wait::Unknown),
            Verdict::Deny(Wait::Never),
        ];
        let decision = |verdict| Decision { verdict, remaining: u64::MAX, reset_after: Micros(3) };
        let outcome = Outcome {
            decisions: Decisions::Together(verdicts.into_iter().map(decision).collect()),
            banned: true,
            counted_at: Some(Box::new([Timestamp(u64::MAX)])),
            ..Outcome::default()
        };
        assert_eq!(through_json(&OutcomeMessage::of(&outcome)).outcome(), outcome);
        for operation in [
            KeyOperation::Look,
            KeyOperation::Used,
            KeyOperation::Reset,
            KeyOperation::Grant(Cost::ONE),
            KeyOperation::Charge(Cost::ONE, Some(IdempotentCharge { id: u128::MAX, request: 2 })),
        ] {
            assert_eq!(through_json(&OperationMessage::of(&operation)).operation(), Some(operation));
        }
        let decisions = Decisions::Together(verdicts.into_iter().map(decision).collect());
        let result = OperationResult { decisions, units: vec![1, u64::MAX], changed: true };
        assert_eq!(through_json(&ResultMessage::of(&result)).result(), result);
    }
}
