//! What the first pass suggests.

use super::SuggestOptions;
use super::group::GroupStudy;
use super::peaks::Peaks;
use super::proposal::Proposal;
use super::summary::GroupSummary;
use super::verification::Verification;

/// What the first pass suggests, for each group.
pub struct Suggestion {
    groups: Vec<GroupStudy>,
}

impl Suggestion {
    /// Separates outliers and derives candidates.
    pub fn new(peaks: Peaks, options: SuggestOptions) -> Self {
        let groups = peaks.into_groups().into_iter();
        Self { groups: groups.map(|group| GroupStudy::new(GroupSummary::new(group), options)).collect() }
    }

    /// The second pass.
    pub fn verification(self) -> Verification {
        Verification::new(self.groups)
    }

    /// The proposals by the bounds of the first pass alone: one for each group.
    pub fn proposals(&self) -> Vec<Proposal> {
        let proposal = |group: &GroupStudy| {
            let (at, refused) = group.best_by_bounds().unwrap_or((0, 0));
            Proposal::new(group, at, None, refused)
        };
        self.groups.iter().map(proposal).collect()
    }
}
