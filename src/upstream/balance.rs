//! Which server is next.

/// Smooth weighted round robin: each server gets its share, spread out evenly (weights 5, 1, 1 give A A B A C A A).
///
/// Every turn each server gains its weight; the one with the most is taken and pays the sum of all weights.
#[derive(Debug)]
pub struct RoundRobin {
    weights: Vec<i64>,
    credits: Vec<i64>,
    total: i64,
}

impl RoundRobin {
    /// A round over servers with these weights. There may be none only if [`Self::next`] is never called.
    pub fn new(weights: impl Iterator<Item = u32>) -> Self {
        let weights: Vec<i64> = weights.map(i64::from).collect();
        Self { credits: vec![0; weights.len()], total: weights.iter().sum(), weights }
    }

    /// The place of the next server.
    #[expect(clippy::should_implement_trait, reason = "a round never ends, so it is no iterator")]
    pub fn next(&mut self) -> usize {
        self.take(None).unwrap_or(0)
    }

    /// The place of the next server other than the one at `failed`, if there is another.
    pub fn next_but(&mut self, failed: usize) -> Option<usize> {
        self.take(Some(failed))
    }

    fn take(&mut self, but: Option<usize>) -> Option<usize> {
        if self.weights.len() == 1 {
            return but.is_none().then_some(0);
        }
        for (credit, weight) in self.credits.iter_mut().zip(&self.weights) {
            *credit += weight;
        }
        // Of equals the first, so that the round begins with the first server.
        let others = (0..self.weights.len()).rev().filter(|&place| Some(place) != but);
        let place = others.max_by_key(|&place| self.credits[place])?;
        self.credits[place] -= self.total;
        Some(place)
    }
}

#[cfg(test)]
mod tests {
    use super::RoundRobin;

    #[test]
    fn each_server_gets_its_share_spread_out() {
        let mut round = RoundRobin::new([5, 1, 1].into_iter());
        let places: Vec<usize> = (0..14).map(|_| round.next()).collect();
        assert_eq!(places, [0, 0, 1, 0, 2, 0, 0, 0, 0, 1, 0, 2, 0, 0]);
    }

    #[test]
    fn another_server_is_never_the_one_that_failed() {
        let mut round = RoundRobin::new([3, 1].into_iter());
        assert!((0..20).all(|_| round.next_but(0) == Some(1)));
        assert_eq!(RoundRobin::new([7].into_iter()).next_but(0), None);
    }
}
