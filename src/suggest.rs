//! Limits proposed from recorded requests: above the peaks of ordinary keys, below those of outliers.
//!
//! The first pass ([`Peaks`]) measures the greatest number of units of each key in windows of 1 s to 1 day.
//! [`Suggestion`] separates outliers by gaps in the distribution of these peaks, and derives candidate limits. The second
//! pass ([`Verification`]) runs the candidates by the core of [`limit`](crate::limit) over the same requests and chooses
//! one. No clock and no I/O here: times are those of the requests.

pub mod candidate;
mod comments;
mod cover;
mod group;
mod history;
mod outliers;
pub mod peaks;
pub mod proposal;
pub mod report;
mod shared_address;
mod steady;
mod text;
pub mod verification;
pub mod windows;
#[cfg(test)]
mod worlds;

use candidate::SuggestedAlgorithm;
use group::GroupStudy;
use peaks::GroupSummary;
pub use peaks::Peaks;
pub use proposal::Proposal;
pub use verification::Verification;

/// How limits are proposed.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct SuggestOptions {
    /// The share of ordinary keys of which no request may be refused: 0 to 1.
    pub keep: f64,
    /// The factor between the peak of ordinary keys and the limit: at least 1.
    pub head_room: f64,
    /// The algorithm of all proposed limits.
    pub algorithm: SuggestedAlgorithm,
}

impl Default for SuggestOptions {
    fn default() -> Self {
        Self { keep: 0.999, head_room: 1.5, algorithm: SuggestedAlgorithm::TokenBucket }
    }
}

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
        self.groups.iter().map(by_bounds).collect()
    }
}

fn by_bounds(group: &GroupStudy) -> Proposal {
    let (at, refused) = group.best_by_bounds().unwrap_or((0, 0));
    let proposal = Proposal::new(group, at, None, refused);
    proposal.beside(group.without_crowd.as_deref().map(by_bounds))
}
