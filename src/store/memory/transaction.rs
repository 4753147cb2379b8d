//! All or none: decides the charges of one request together. Pure; the caller holds the locks.

use smallvec::SmallVec;

use crate::limit::units::{Fingerprint, Micros, Timestamp};
use crate::limit::{Decision, State, Verdict};
use crate::store::{Charge, Group};

/// The charges of one request, the states of their keys, and the decisions so far.
pub(super) struct Transaction<'a> {
    charges: &'a [Charge<'a>],
    now: Timestamp,
    /// One per distinct key, so that a second charge to a key sees the first.
    accounts: SmallVec<[Account<'a>; 4]>,
    /// Per charge: its account.
    account_of: SmallVec<[usize; 8]>,
    decisions: SmallVec<[Decision; 4]>,
}

/// The state of one key during a request.
pub(super) struct Account<'a> {
    /// The charge that opened it: its key and numbers are those of the state.
    pub(super) charge: &'a Charge<'a>,
    /// The state to be stored.
    pub(super) state: State,
    /// Whether `state` is to be written.
    pub(super) changed: bool,
    /// The state if the group being evaluated is admitted.
    tentative: State,
}

/// A state converted for the charge's algorithm.
pub(super) struct LoadedState {
    pub(super) state: State,
    /// The state was written under other parameters, so it is to be written even if nothing else changes: the reported
    /// wait holds only if the state drains at the new rate from now on.
    pub(super) converted: bool,
}

/// A placeholder until the charge is decided; every charge is.
const UNDECIDED: Decision = Decision { verdict: Verdict::Allow, remaining: 0, reset_after: Micros(0) };

impl<'a> Transaction<'a> {
    /// Loads the state of each distinct key once.
    pub(super) fn new(
        charges: &'a [Charge<'a>],
        now: Timestamp,
        mut load: impl FnMut(&Charge<'_>) -> LoadedState,
    ) -> Self {
        let mut accounts: SmallVec<[Account<'a>; 4]> = SmallVec::new();
        let account_of = charges
            .iter()
            .map(|charge| {
                position(&accounts, charge.key).unwrap_or_else(|| {
                    let LoadedState { state, converted } = load(charge);
                    accounts.push(Account { charge, state, changed: converted, tentative: State::default() });
                    accounts.len() - 1
                })
            })
            .collect();
        Self { charges, now, accounts, account_of, decisions: SmallVec::from_elem(UNDECIDED, charges.len()) }
    }

    /// Decides every group: the enforced limits together, then each shadow limit separately, on the states that the
    /// enforced ones leave. Nothing is charged unless the limits that are decided elsewhere admit as well. Returns a decision per charge and the accounts, of which the changed ones are to be
    /// written.
    pub(super) fn decide(
        mut self,
        admitted_elsewhere: bool,
    ) -> (SmallVec<[Decision; 4]>, SmallVec<[Account<'a>; 4]>) {
        let charges = self.charges;
        let admitted = self.decide_group(Group::Enforced, true, admitted_elsewhere);
        for (index, charge) in charges.iter().enumerate() {
            let first = charges[..index].iter().all(|earlier| earlier.group != charge.group);
            if first && charge.group != Group::Enforced {
                self.decide_group(charge.group, admitted, true);
            }
        }
        (self.decisions, self.accounts)
    }

    /// Whether all limits of the group admit, and those elsewhere. They are charged only if `may_record` is true as well;
    /// without it, no refused attempt is recorded either.
    fn decide_group(&mut self, group: Group, may_record: bool, admitted_elsewhere: bool) -> bool {
        let admitted = self.evaluate(group) && admitted_elsewhere;
        if admitted && may_record {
            self.charge(group);
        } else {
            self.rollback(group, may_record);
        }
        admitted
    }

    /// Evaluates the group's charges one after the other, each on the state that the one before would leave.
    fn evaluate(&mut self, group: Group) -> bool {
        let charges = self.charges;
        for account in &mut self.accounts {
            account.tentative.clone_from(&account.state);
        }
        let mut admitted = true;
        for (index, charge) in of(charges, group) {
            let account = &mut self.accounts[self.account_of[index]];
            let before = std::mem::take(&mut account.tentative);
            let (after, decision) = charge.algorithm.decide(before, self.now, charge.cost);
            account.tentative = after;
            self.decisions[index] = decision;
            admitted &= !matches!(decision.verdict, Verdict::Deny(_));
        }
        admitted
    }

    fn charge(&mut self, group: Group) {
        for (index, _) in of(self.charges, group) {
            let account = &mut self.accounts[self.account_of[index]];
            account.state.clone_from(&account.tentative);
            account.changed = true;
        }
    }

    /// Rolls the group back: verdicts stay, `remaining` and `reset_after` become those of the uncharged state.
    ///
    /// A limit that refuses even separately keeps the attempt that its algorithm records (`count_denied`), if `record`.
    /// A limit that would have admitted records nothing.
    fn rollback(&mut self, group: Group, record: bool) {
        for (index, charge) in of(self.charges, group) {
            let account = &mut self.accounts[self.account_of[index]];
            let mut alone = charge.algorithm.peek(&account.state, self.now, charge.cost);
            if record && matches!(alone.verdict, Verdict::Deny(_)) {
                let before = account.state.clone();
                let (after, refused) = charge.algorithm.decide(before, self.now, charge.cost);
                account.changed |= after != account.state;
                account.state = after;
                alone = refused;
            }
            self.decisions[index].remaining = alone.remaining;
            self.decisions[index].reset_after = alone.reset_after;
        }
    }
}

fn of<'a>(charges: &'a [Charge<'a>], group: Group) -> impl Iterator<Item = (usize, &'a Charge<'a>)> {
    charges.iter().enumerate().filter(move |(_, charge)| charge.group == group)
}

fn position(accounts: &[Account<'_>], key: Fingerprint) -> Option<usize> {
    accounts.iter().position(|account| account.charge.key == key)
}
