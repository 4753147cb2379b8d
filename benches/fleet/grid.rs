//! The runs, and the tables and pictures that are made of them.

use tollgate::limit::units::Micros;

use crate::chart::{Chart, Scale};
use crate::fleet::{Fleet, Outcome};
use crate::scenario::{Flow, Limit, Mode, Routing, Scenario, Traffic, milliseconds, seconds, written};
use crate::table::{Table, percent, short};

/// The limit of the runs with one key: 10,000 a second.
const RATE: u32 = 10_000;
const TRIPS: [&[Micros]; 8] = [
    &[Micros(200)],
    &[milliseconds(1)],
    &[milliseconds(2)],
    &[milliseconds(5)],
    &[milliseconds(10)],
    &[milliseconds(20)],
    &[milliseconds(40)],
    &[milliseconds(80)],
];
/// A third of the gateways beside the store, a third 40 ms away, and a third 80 ms.
const REGIONS: &[Micros] = &[milliseconds(1), milliseconds(40), milliseconds(80)];
const MOVES: Micros = seconds(3);

type MakeTable = fn(Grid) -> Table;

/// Which runs.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Grid {
    /// Short runs with few gateways.
    pub(crate) is_quick: bool,
    pub(crate) flow: Flow,
}

fn leases() -> [Mode; 3] {
    [milliseconds(100), seconds(1), seconds(10)].map(Mode::leased)
}

impl Grid {
    fn run(self, mut scenario: Scenario) -> Outcome {
        scenario.flow = self.flow;
        if self.is_quick {
            scenario.seconds = (2 * scenario.mode.lease().0 / 1_000_000).max(2);
            scenario.traffic.demand = scenario.traffic.demand.min(20_000.0);
        }
        Fleet::new(&scenario).run()
    }

    fn gateways(self) -> &'static [usize] {
        if self.is_quick { &[10] } else { &[10, 100, 1_000] }
    }

    fn gateways_of_one_size(self) -> usize {
        if self.is_quick { 10 } else { 100 }
    }

    /// All tables, or the one with this name.
    pub(crate) fn tables(self, only: Option<&str>) -> Vec<Table> {
        let tables: [(&str, MakeTable); 7] = [
            ("sizes", Self::sizes),
            ("windows", Self::windows),
            ("moving", Self::moving),
            ("trips", Self::trips),
            ("losses", Self::losses),
            ("zipf", Self::zipf),
            ("rates", Self::rates),
        ];
        tables
            .into_iter()
            .filter(|(name, _)| only.is_none_or(|only| only == *name))
            .map(|(_, make)| make(self))
            .collect()
    }

    /// The number of gateways, below and above the limit.
    fn sizes(self) -> Table {
        let heads = [
            "gateways",
            "mode",
            "at 0.8: calls/request",
            "waited",
            "p99 ms",
            "held",
            "at 2: admitted",
            "calls/request",
            "p99 ms",
        ];
        let mut table = Table::new("sizes", &heads);
        for &gateways in self.gateways() {
            // Without leases, the number makes no difference.
            let others = [Mode::Exact, Mode::Divided];
            let others = others.into_iter().filter(|_| gateways == self.gateways_of_one_size());
            for mode in others.chain(leases()) {
                let below = self.run(Scenario::one_key(gateways, mode, Limit::bucket(RATE), 0.8));
                let above = self.run(Scenario::one_key(gateways, mode, Limit::bucket(RATE), 2.0));
                table.push(vec![
                    gateways.to_string(),
                    mode.name(),
                    short(below.calls_per_request()),
                    percent(below.waited()),
                    short(below.longest_wait()),
                    percent(below.held()),
                    percent(above.share),
                    short(above.calls_per_request()),
                    short(above.longest_wait()),
                ]);
            }
        }
        table
    }

    /// Windows of few and of many leases, just above the limit.
    fn windows(self) -> Table {
        let heads = [
            "mode",
            "all alike",
            "half to a tenth",
            "to one",
            "lowest window",
            "calls/request at 1.02",
            "calls/request at 0.8",
        ];
        let mut table = Table::new("windows", &heads);
        let (gateways, period) = (self.gateways_of_one_size(), seconds(10));
        let limit = Limit::window(10 * RATE, period);
        let leases = [10_000, 5_000, 2_000, 1_000, 500].map(milliseconds).map(Mode::leased);
        for mode in [Mode::Divided].into_iter().chain(leases) {
            let above = Scenario { seconds: 60, ..Scenario::one_key(gateways, mode, limit, 1.02) };
            let routings = [Routing::Even, Routing::Skewed(0.5, MOVES), Routing::Sticky(MOVES)];
            let outcomes = routings.map(|routing| self.run(above.with_routing(routing)));
            let below = self.run(Scenario::one_key(gateways, mode, limit, 0.8));
            let lowest = outcomes.iter().map(|outcome| outcome.measures.lowest_share());
            let calls = [&outcomes[0], &below].map(|outcome| short(outcome.calls_per_request()));
            let shares = outcomes.iter().map(|outcome| percent(outcome.share));
            let lowest = percent(lowest.fold(f64::INFINITY, f64::min));
            table.push([mode.name()].into_iter().chain(shares).chain([lowest]).chain(calls).collect());
        }
        table
    }

    /// Requests that are not spread evenly.
    fn moving(self) -> Table {
        let heads =
            ["demand", "requests go to", "exact", "divided by N", "lease 100 ms", "lease 1 s", "lease 10 s"];
        let mut table = Table::new("moving", &heads);
        let gateways = self.gateways_of_one_size();
        let routings = [
            ("half to a tenth, another after 3 s", Routing::Skewed(0.5, MOVES)),
            ("one gateway, another after 3 s", Routing::Sticky(MOVES)),
        ];
        for times in [0.8, 2.0] {
            for (name, routing) in routings {
                let shares = [Mode::Exact, Mode::Divided].into_iter().chain(leases()).map(|mode| {
                    let scenario = Scenario::one_key(gateways, mode, Limit::bucket(RATE), times);
                    percent(self.run(scenario.with_routing(routing)).share)
                });
                table.push([times.to_string(), name.to_owned()].into_iter().chain(shares).collect());
            }
        }
        table
    }

    /// The time of a call.
    fn trips(self) -> Table {
        let heads = [
            "round trip",
            "mode",
            "at 0.8: admitted",
            "calls/request",
            "waited",
            "p99 ms",
            "at 2: admitted",
            "calls/request",
            "p99 ms",
        ];
        let mut table = Table::new("trips", &heads);
        let gateways = self.gateways_of_one_size();
        for trips in [TRIPS[4], TRIPS[7], REGIONS] {
            let name = trips.iter().map(|trip| written(*trip)).collect::<Vec<_>>().join(", ");
            for mode in [leases()[1], leases()[2]] {
                let [below, above] = [0.8, 2.0].map(|times| {
                    let scenario = Scenario::one_key(gateways, mode, Limit::bucket(RATE), times);
                    self.run(scenario.with_round_trips(trips))
                });
                table.push(vec![
                    name.clone(),
                    mode.name(),
                    percent(below.share),
                    short(below.calls_per_request()),
                    percent(below.waited()),
                    short(below.longest_wait()),
                    percent(above.share),
                    short(above.calls_per_request()),
                    short(above.longest_wait()),
                ]);
            }
        }
        table
    }

    /// Calls that are lost, and gateways that lose their memory.
    fn losses(self) -> Table {
        let heads = ["lost", "exact at 0.8: admitted", "at 2", "lease 1 s at 0.8: admitted", "at 2"];
        let mut table = Table::new("losses", &heads);
        let gateways = self.gateways_of_one_size();
        let losses = [
            ("0.1 % of the calls", 0.001, None),
            ("1 % of the calls", 0.01, None),
            ("each second one gateway's memory", 0.0, Some(seconds(1))),
        ];
        for (name, loss, crashes) in losses {
            let runs = [Mode::Exact, leases()[1]].into_iter().flat_map(|mode| [(mode, 0.8), (mode, 2.0)]);
            let shares = runs.map(|(mode, times)| {
                let scenario = Scenario::one_key(gateways, mode, Limit::bucket(RATE), times);
                percent(self.run(Scenario { loss, crashes, ..scenario }).share)
            });
            table.push([name.to_owned()].into_iter().chain(shares).collect());
        }
        table
    }

    /// Many keys, few of them above their limits.
    fn zipf(self) -> Table {
        let heads = [
            "gateways",
            "mode",
            "alike: admitted",
            "calls/request",
            "entries",
            "sticky: admitted",
            "calls/request",
            "entries",
        ];
        let mut table = Table::new("zipf", &heads);
        for gateways in [self.gateways_of_one_size(), self.gateways().last().copied().unwrap_or(10)] {
            for mode in [Mode::Exact, Mode::Divided, leases()[1], leases()[2]] {
                let mut row = vec![gateways.to_string(), mode.name()];
                for routing in [Routing::Even, Routing::Sticky(seconds(5))] {
                    let traffic = Traffic { keys: 10_000_000, demand: 100_000.0, routing };
                    let scenario = Scenario::one_key(gateways, mode, Limit::bucket(100), 1.0);
                    let outcome = self.run(Scenario { traffic, seconds: 20, ..scenario });
                    row.push(percent(outcome.share));
                    row.push(short(outcome.calls_per_request()));
                    row.push(short(outcome.measures.entries));
                }
                table.push(row);
            }
        }
        table
    }

    /// The requests of a key at one gateway in a tenth of the lease.
    fn rates(self) -> Table {
        let heads = ["requests in a tenth of the lease", "calls/request", "waited", "held", "went back"];
        let mut table = Table::new("rates", &heads);
        for number in [1, 2, 4, 8, 16, 64, 256] {
            let outcome = self.run(one_rate(f64::from(number)));
            table.push(vec![
                number.to_string(),
                short(outcome.calls_per_request()),
                percent(outcome.waited()),
                percent(outcome.held()),
                percent(outcome.returned()),
            ]);
        }
        table
    }

    pub(crate) fn charts(self) -> Vec<Chart> {
        vec![self.calls_by_rate(), self.waits_by_trip(), self.shares_by_skew()]
    }

    fn calls_by_rate(self) -> Chart {
        let numbers = [0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0, 8.0, 12.0, 16.0, 32.0, 64.0, 128.0, 256.0];
        let points =
            numbers.iter().map(|number| (*number, self.run(one_rate(*number)).calls_per_request())).collect();
        Chart {
            file: "fleet-calls.svg",
            title: "Calls to the store for each request, by how often a key comes".to_owned(),
            x: (
                Scale::Logarithmic(0.5, 256.0, &[0.5, 1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 64.0, 128.0, 256.0]),
                "requests of the key at one gateway in a tenth of the lease",
            ),
            y: (Scale::Linear(0.0, 1.0, &[0.0, 0.25, 0.5, 0.75, 1.0]), "calls for each request"),
            lines: vec![("exact".to_owned(), vec![(0.5, 1.0), (256.0, 1.0)]), ("leases".to_owned(), points)],
        }
    }

    fn waits_by_trip(self) -> Chart {
        let gateways = self.gateways_of_one_size();
        let line = |mode: Mode, times: f64| {
            let points = TRIPS.into_iter().map(|trips| {
                let scenario = Scenario::one_key(gateways, mode, Limit::bucket(RATE), times);
                let outcome = self.run(scenario.with_round_trips(trips));
                (trips[0].0 as f64 / 1_000.0, outcome.measures.mean_wait())
            });
            (format!("{}, at {times}", mode.name()), points.collect())
        };
        Chart {
            file: "fleet-waits.svg",
            title: format!(
                "{gateways} gateways, one key at 0.8 and at 2 times its limit: how long a request waits"
            ),
            x: (
                Scale::Logarithmic(0.2, 80.0, &[0.2, 1.0, 2.0, 5.0, 10.0, 20.0, 40.0, 80.0]),
                "round trip to the store, ms",
            ),
            y: (Scale::Logarithmic(0.001, 100.0, &[0.001, 0.01, 0.1, 1.0, 10.0, 100.0]), "average wait, ms"),
            lines: vec![
                line(Mode::Exact, 0.8),
                line(Mode::leased(seconds(1)), 0.8),
                line(Mode::leased(seconds(1)), 2.0),
                line(Mode::leased(seconds(10)), 0.8),
            ],
        }
    }

    fn shares_by_skew(self) -> Chart {
        let gateways = self.gateways_of_one_size();
        let line = |mode: Mode| {
            let points = (1..=10).map(|tenths| {
                let share = f64::from(tenths) / 10.0;
                let scenario = Scenario::one_key(gateways, mode, Limit::bucket(RATE), 0.8);
                let outcome = self.run(scenario.with_routing(Routing::Skewed(share, MOVES)));
                (share * 100.0, outcome.share * 100.0)
            });
            (mode.name(), points.collect())
        };
        Chart {
            file: "fleet-skew.svg",
            title: format!("{gateways} gateways, one key at 0.8 times its limit: what is admitted"),
            x: (
                Scale::Linear(10.0, 100.0, &[10.0, 20.0, 30.0, 40.0, 50.0, 60.0, 70.0, 80.0, 90.0, 100.0]),
                "% of the requests that go to a tenth of the gateways (another tenth after 3 s)",
            ),
            y: (Scale::Linear(0.0, 100.0, &[0.0, 25.0, 50.0, 75.0, 100.0]), "% admitted"),
            lines: vec![
                line(Mode::Exact),
                line(Mode::leased(seconds(1))),
                line(Mode::leased(seconds(10))),
                line(Mode::Divided),
            ],
        }
    }
}

/// Ten gateways with a lease of a second that each get so many requests of a key in a tenth of it: 0.8 of its limit.
fn one_rate(number: f64) -> Scenario {
    let limit = Limit::bucket((number * 100.0 / 0.8) as u32);
    Scenario::one_key(10, Mode::leased(seconds(1)), limit, 0.8)
}
