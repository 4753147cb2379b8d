//! Tests of limits: requests at their times, and the answers that the configuration is to give them.
//!
//! For example, fifteen requests of one client at 0 s, of which a limit of fourteen a minute is to refuse the last. Each test
//! is decided in virtual time by the gateway of [`replay`](crate::replay), from unused counters, and the first step whose
//! answers differ is told with its explanation.

mod answers;
mod run;

use http::StatusCode;

use crate::explain::ExplainRequest;
use crate::limit::units::{Micros, Timestamp};
use crate::plan::LimitIndex;
use crate::replay::DescribedRequest;

pub use answers::{TestAnswer, TestAnswers};
pub use run::{PolicyTestResult, StepDifference, run};

/// The maximum number of bytes of all files with tests together.
pub const MAX_BYTES: usize = 1 << 20;
/// The maximum number of steps of all tests together.
pub const MAX_STEPS: usize = 10_000;
/// The maximum number of requests of a step.
pub const MAX_TIMES: u32 = 1_000_000;
/// The maximum number of requests of all tests together.
pub const MAX_REQUESTS: u64 = 10_000_000;

/// A test.
#[derive(Clone, Debug)]
pub struct PolicyTest {
    /// Its name.
    pub name: String,
    /// Where it begins.
    pub place: TestPlace,
    /// The moment at which its steps count from.
    pub start: Timestamp,
    /// At least one, in the order of time.
    pub steps: Vec<TestStep>,
}

/// A line of a file with tests.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TestPlace {
    /// The file, as it is named on the command line.
    pub file: String,
    /// From 1.
    pub line: usize,
}

/// Requests that are sent one after the other at one time, and their answers.
#[derive(Clone, Debug)]
pub struct TestStep {
    /// Where it stands.
    pub place: TestPlace,
    /// The time since the start.
    pub at: Micros,
    /// The same as it is written.
    pub at_written: String,
    /// Each of the requests, as it is explained.
    pub request: ExplainRequest,
    /// The same, as it is decided: the time is that of the step.
    pub described: DescribedRequest,
    /// How many of them are sent, at least one.
    pub times: u32,
    /// The status that a backend answers with.
    pub response: StatusCode,
    /// The answers.
    pub expected: TestAnswers,
    /// The limit that refuses what is refused.
    pub limit: Option<LimitIndex>,
    /// The seconds in `retry-after` of what is refused.
    pub retry_after: Option<u64>,
    /// Limits in shadow mode, each of which would refuse some of the requests.
    pub shadow: Vec<LimitIndex>,
}
