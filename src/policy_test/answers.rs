//! The answers of a step, counted by status.

use std::collections::BTreeMap;
use std::fmt::{self, Display, Formatter};

use http::StatusCode;

/// The answer to a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum TestAnswer {
    /// This status.
    Status(StatusCode),
    /// None: its credential would have to be verified.
    Unverified,
}

/// The number of each answer.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TestAnswers(BTreeMap<TestAnswer, u64>);

impl TestAnswers {
    /// Counts one more. Returns how many of the kind there are now.
    pub fn add(&mut self, answer: TestAnswer) -> u64 {
        let count = self.0.entry(answer).or_default();
        *count += 1;
        *count
    }

    /// How many of a kind there are.
    pub fn count(&self, answer: TestAnswer) -> u64 {
        self.0.get(&answer).copied().unwrap_or_default()
    }

    /// Each answer with its number, in the order of the statuses.
    pub fn iter(&self) -> impl Iterator<Item = (TestAnswer, u64)> {
        self.0.iter().map(|(answer, count)| (*answer, *count))
    }
}

impl FromIterator<(TestAnswer, u64)> for TestAnswers {
    /// Answers that are not expected are left out.
    fn from_iter<I: IntoIterator<Item = (TestAnswer, u64)>>(answers: I) -> Self {
        Self(answers.into_iter().filter(|(_, count)| *count > 0).collect())
    }
}

impl Display for TestAnswer {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        match self {
            Self::Status(status) => f.write_str(status.as_str()),
            Self::Unverified => f.write_str("not verified"),
        }
    }
}

impl Display for TestAnswers {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        for (index, (answer, count)) in self.iter().enumerate() {
            let comma = if index > 0 { ", " } else { "" };
            write!(f, "{comma}{count} × {answer}")?;
        }
        if self.0.is_empty() { f.write_str("no answer") } else { Ok(()) }
    }
}
