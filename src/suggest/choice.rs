//! The choice among candidates.

use super::candidate::Candidate;

/// The share of the most refused requests that is as good as all of them.
const NEARLY_ALL: f64 = 0.97;

/// The requests of targets that a candidate refuses.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct TargetRefusals {
    /// The number of targets of which a request is refused.
    pub(super) keys: usize,
    /// The number of refused requests of targets; in the first pass a lower bound in units.
    pub(super) requests: f64,
}

/// The index of the best candidate, by the outcome of each.
///
/// The first rule is the number of refused targets, the second that no rate is below a peak of an ordinary key, the third
/// the head room. Of the candidates that are equal in these, those that refuse nearly as many requests as the best one
/// are left. Of these the one with the fewest rates is chosen, then the one with the shortest windows: its `retry-after` is
/// the shortest.
pub(super) fn best(candidates: &[Candidate], outcomes: &[TargetRefusals]) -> Option<usize> {
    let mut left: Vec<_> = candidates.iter().zip(outcomes).enumerate().collect();
    let keys = left.iter().map(|(_, (_, outcome))| outcome.keys).max()?;
    left.retain(|(_, (_, outcome))| outcome.keys == keys);
    let safest = |candidate: &Candidate| (candidate.admits_all, candidate.head_room);
    let safety = left.iter().map(|(_, (candidate, _))| safest(candidate));
    let safety = safety.max_by(|one, other| one.0.cmp(&other.0).then(one.1.total_cmp(&other.1)))?;
    left.retain(|(_, (candidate, _))| safest(candidate) == safety);
    let requests = left.iter().map(|(_, (_, outcome))| outcome.requests).fold(0.0, f64::max);
    left.retain(|(_, (_, outcome))| outcome.requests >= NEARLY_ALL * requests);
    let windows =
        |candidate: &Candidate| candidate.rates.iter().rev().map(|rate| rate.window).collect::<Vec<_>>();
    left.into_iter()
        .min_by_key(|(_, (candidate, _))| (candidate.rates.len(), windows(candidate)))
        .map(|(at, _)| at)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::suggest::candidate::CandidateRate;

    fn candidate(windows: &[usize], head_room: f64, admits_all: bool) -> Candidate {
        let rates = windows.iter().map(|window| CandidateRate { window: *window, count: 1 }).collect();
        Candidate { rates, head_room, admits_all }
    }

    #[test]
    fn targets_come_first_then_safety_then_requests_then_fewer_and_shorter_windows() {
        let candidates = [
            (candidate(&[3], 2.0, true), 3, 900.0),
            (candidate(&[0], 1.5, true), 4, 100.0),
            (candidate(&[1, 2], 1.5, true), 4, 1_000.0),
            (candidate(&[5], 1.5, true), 4, 990.0),
            (candidate(&[4], 1.5, true), 4, 980.0),
            (candidate(&[4], 1.2, true), 4, 2_000.0),
            (candidate(&[2], 2.0, false), 4, 2_000.0),
        ];
        let (candidates, outcomes): (Vec<_>, Vec<_>) = candidates
            .into_iter()
            .map(|(candidate, keys, requests)| (candidate, TargetRefusals { keys, requests }))
            .unzip();
        assert_eq!(best(&candidates, &outcomes), Some(4));
        assert_eq!(best(&candidates[..4], &outcomes), Some(3));
        assert_eq!(best(&candidates[..3], &outcomes), Some(2));
        assert_eq!(best(&[], &[]), None);
    }
}
