//! The decisions that a page lists line by line are those of the code.

use tollgate::limit::units::{Cost, Timestamp};
use tollgate::limit::{Algorithm, Decision, State};

use crate::harness::pages::{Page, pages};
use crate::harness::trace::{Executor, play};

/// The functions of the core.
#[derive(Default)]
struct Core {
    limit: Option<Algorithm>,
    state: State,
}

impl Executor for Core {
    fn begin(&mut self, algorithm: Algorithm) {
        *self = Self { limit: Some(algorithm), state: State::default() };
    }

    fn decide(&mut self, now: Timestamp, cost: Cost) -> Decision {
        let state = std::mem::take(&mut self.state);
        let (state, decision) = self.limit.expect("a trace begins with a limit").decide(state, now, cost);
        self.state = state;
        decision
    }

    fn settle(&mut self, admitted_at: Timestamp, difference: i64, now: Timestamp) -> Option<u64> {
        let (limit, state) =
            (self.limit.expect("a trace begins with a limit"), std::mem::take(&mut self.state));
        self.state = limit.settle(state, admitted_at, difference, now);
        Some(limit.peek(&self.state, now, Cost::ONE).remaining)
    }
}

/// `at  100 ms  cost 1  →  allow, 0 remaining   a remark` as `at 100ms cost 1 → allow remaining 0`, and
/// `at  200 ms  the request of 100 ms ends  →  1 remaining` as `at 200ms settle -1 of 100ms → remaining 1`; another
/// difference is written as `the request of 100 ms settles +30`.
fn trace_line(line: &str) -> String {
    let (before, after) = line.split_once('→').expect("a decision stands behind an arrow");
    let before = before.replace(" ms", "ms");
    if let Some((at, ended)) = before.split_once("the request of ") {
        let ended = ended.trim();
        let (begun, difference) =
            ended.split_once(" settles ").unwrap_or((ended.trim_end_matches(" ends"), "-1"));
        let remaining = after.trim().split("  ").next().unwrap_or_default().replace(" remaining", "");
        return format!("{at}settle {difference} of {begun} → remaining {remaining}");
    }
    let cost = if before.contains("cost") { "" } else { "cost 1 " };
    // A remark stands behind two blanks.
    let decision = after.trim().split("  ").next().unwrap_or_default();
    let decision = decision.replace(" ms", "ms").replace(" s", "s").replace(',', "");
    let decision = match decision.strip_suffix(" remaining").and_then(|rest| rest.split_once(' ')) {
        Some((verdict, remaining)) => format!("{verdict} remaining {remaining}"),
        None => decision,
    };
    format!("{before} {cost}→ {decision}")
}

#[test]
fn docs_traces_are_those_of_the_code() {
    let blocks = pages().iter().flat_map(Page::blocks).collect::<Vec<_>>();
    let traces = blocks.iter().filter_map(|block| Some((block, block.info.strip_prefix("text trace of ")?)));
    let mut count = 0;
    for (block, limit) in traces {
        let lines = block.text.lines().map(trace_line).collect::<Vec<_>>().join("\n");
        let table = format!("limit {limit}\n{lines}\n");
        if let Err(fault) = play(&mut Core::default(), &table) {
            panic!("{}: {fault}\n{table}", block.place());
        }
        count += 1;
    }
    assert!(count >= 8, "only {count} traces");
}
