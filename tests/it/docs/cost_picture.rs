//! docs/pictures/cost.svg is drawn from the decisions of the code. To draw it anew: `INSTA_UPDATE=always`.

use std::fmt::Write as _;

use tollgate::limit::units::{Cost, Micros, Rate, Timestamp};
use tollgate::limit::{Algorithm, Align, State, Verdict};

use crate::harness::pages::root;

const PICTURE: &str = "docs/pictures/cost.svg";
/// A window of ten seconds begins.
const START: Timestamp = Timestamp(1_600_000_000_000_000);
/// In ms.
const END: u64 = 20_000;
const STEP: u64 = 50;
const ALLOWANCE: u32 = 1000;
const RESERVE: u32 = 200;
/// Admission, end (ms), and what the request costs in the end.
const REQUESTS: [(u64, u64, u32); 8] = [
    (1_000, 3_000, 50),
    (1_500, 4_000, 500),
    (3_000, 6_000, 1_100),
    (5_000, 11_500, 500),
    (7_000, 8_000, 200),
    (9_500, 10_500, 200),
    (12_000, 14_000, 100),
    (15_000, 17_000, 100),
];

const HEAD: &str = r#"<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 720 498" width="720" height="498" role="img">
<title>What reservations, debts and refunds do to a token bucket and to a fixed window</title>
<style>
text{font:12px ui-sans-serif,system-ui,sans-serif;fill:#59636e}.b{font-weight:600}
.y{fill:#1a7f37}.n{fill:none;stroke:#cf222e;stroke-width:1.5}.c{fill:#cf222e}.g{fill:#1a7f37}.r{stroke:#8c959f;stroke-width:3}
.u{fill:#0969da;fill-opacity:.18;stroke:#0969da}.l{stroke:#8c959f}.q{stroke:#8c959f;stroke-dasharray:4 4}
@media (prefers-color-scheme:dark){text{fill:#9198a1}.y,.g{fill:#3fb950}.n{stroke:#f85149}.c{fill:#f85149}.u{fill:#4493f8;stroke:#4493f8}.l,.q,.r{stroke:#656c76}}
</style>
<circle class="y" cx="44" cy="12" r="4"/><text x="53" y="16">admitted: 200 reserved</text>
<circle class="n" cx="214" cy="12" r="3.4"/><text x="223" y="16">refused</text>
<path class="c" d="M294 7l5 9h-10z"/><text x="304" y="16">ended: the rest is charged</text>
<path class="g" d="M478 17l5-9h-10z"/><text x="488" y="16">ended: the rest is given back</text>
"#;

/// What becomes of the requests under a limit.
struct Story {
    /// The moments (ms) at which the units used change, and these units; a straight line leads from each to the next.
    used: Vec<(u64, u64)>,
    /// Whether each request was admitted.
    admitted: [bool; REQUESTS.len()],
}

fn tell(algorithm: &Algorithm) -> Story {
    let (mut state, mut used, mut admitted) = (State::default(), Vec::new(), [false; REQUESTS.len()]);
    let at = |ms: u64| START.plus(Micros(ms * 1_000));
    for ms in (0..=END).step_by(usize::try_from(STEP).unwrap()) {
        used.push((ms, algorithm.in_use(&state, at(ms))));
        for (index, (begin, end, cost)) in REQUESTS.into_iter().enumerate() {
            if begin == ms {
                let (after, decision) = algorithm.decide(state, at(ms), Cost::new(RESERVE).unwrap());
                (state, admitted[index]) = (after, matches!(decision.verdict, Verdict::Allow));
            } else if end == ms && admitted[index] {
                let difference = i64::from(cost) - i64::from(RESERVE);
                state = algorithm.settle(state, at(begin), difference, at(ms));
            } else {
                continue;
            }
            used.push((ms, algorithm.in_use(&state, at(ms))));
        }
    }
    Story { used: corners(&used), admitted }
}

/// The points without those that lie on the line between their neighbours.
fn corners(points: &[(u64, u64)]) -> Vec<(u64, u64)> {
    let slope = |from: (u64, u64), to: (u64, u64)| {
        ((to.0 - from.0).cast_signed(), to.1.cast_signed() - from.1.cast_signed())
    };
    let mut kept: Vec<(u64, u64)> = Vec::new();
    for &point in points {
        while let [.., before, last] = *kept {
            let (one, two) = (slope(before, last), slope(last, point));
            if one.0 * two.1 != two.0 * one.1 || one.0 * two.0 < 0 || one.1 * two.1 < 0 {
                break;
            }
            kept.pop();
        }
        kept.push(point);
    }
    kept
}

fn x(ms: u64) -> f64 {
    40.0 + ms as f64 * 650.0 / END as f64
}

/// One limit, below `top`.
fn panel(top: f64, title: &str, algorithm: &Algorithm) -> String {
    let Story { used, admitted } = tell(algorithm);
    let (mut svg, base) = (String::new(), top + 196.0);
    let y = |units: u64| base - units as f64 * 0.066;
    writeln!(svg, r#"<text class="b" x="40" y="{}">{title}</text>"#, top + 14.0).unwrap();
    for (index, ((begin, end, cost), admitted)) in REQUESTS.into_iter().zip(admitted).enumerate() {
        let (from, to, lane) = (x(begin), x(end), top + 28.0 + [0.0, 14.0, 28.0, 42.0][index % 4]);
        if !admitted {
            writeln!(svg, r#"<circle class="n" cx="{from:.1}" cy="{lane}" r="3.4"/>"#).unwrap();
            continue;
        }
        writeln!(svg, r#"<path class="r" d="M{from:.1} {lane}H{to:.1}"/>"#).unwrap();
        writeln!(svg, r#"<circle class="y" cx="{from:.1}" cy="{lane}" r="4"/>"#).unwrap();
        let difference = i64::from(cost) - i64::from(RESERVE);
        let (class, shape) = if difference > 0 { ("c", "l5 9h-10z") } else { ("g", "l5-9h-10z") };
        let tip = if difference > 0 { lane - 5.0 } else { lane + 5.0 };
        writeln!(svg, r#"<path class="{class}" d="M{to:.1} {tip}{shape}"/>"#).unwrap();
        let sign = if difference > 0 { "+" } else { "−" };
        let (place, units) = (to + 8.0, difference.unsigned_abs());
        writeln!(svg, r#"<text x="{place:.1}" y="{}">{sign}{units}</text>"#, lane + 4.0).unwrap();
    }
    let line: String = used.iter().map(|&(ms, units)| format!("L{:.1} {:.1}", x(ms), y(units))).collect();
    writeln!(svg, r#"<path class="u" d="M40 {base}{line}V{base}z"/>"#).unwrap();
    writeln!(
        svg,
        r#"<path class="q" d="M40 {:.1}H690"/><path class="l" d="M40 {base}H690"/>"#,
        y(ALLOWANCE.into())
    )
    .unwrap();
    writeln!(svg, r#"<text x="36" y="{:.1}" text-anchor="end">1000</text>"#, y(ALLOWANCE.into()) + 4.0)
        .unwrap();
    for second in (0..=20).step_by(5) {
        let at = x(second * 1_000);
        writeln!(svg, r#"<path class="l" d="M{at:.1} {base}v5"/>"#).unwrap();
        writeln!(svg, r#"<text x="{at:.1}" y="{}" text-anchor="middle">{second} s</text>"#, base + 18.0)
            .unwrap();
    }
    svg
}

#[test]
fn the_picture_of_costs_is_drawn_from_decisions_of_the_code() {
    let rate = |count, seconds: u64| Rate::new(count, Micros(seconds * 1_000_000)).unwrap();
    let bucket = Algorithm::token_bucket(rate(100, 1), Cost::new(ALLOWANCE).unwrap());
    let window = Algorithm::fixed_window(rate(ALLOWANCE, 10), Align::Clock);
    let svg = format!(
        "{HEAD}{}{}<text x=\"40\" y=\"490\">units used (dashed: the whole allowance; above it: debt)</text>\n</svg>\n",
        panel(24.0, "token-bucket, rate 100/s, burst 1000", &bucket),
        panel(252.0, "fixed-window, rate 1000/10s", &window),
    );
    let path = root().join(PICTURE);
    if std::env::var("INSTA_UPDATE").is_ok_and(|update| update == "always") {
        std::fs::write(&path, &svg).unwrap();
    }
    let found = std::fs::read_to_string(&path).unwrap_or_default();
    assert!(found == svg, "{PICTURE} is not what the code decides: INSTA_UPDATE=always draws it anew");
}

#[test]
fn a_corner_is_where_the_slope_changes() {
    let points = [(0, 0), (50, 0), (100, 0), (100, 200), (150, 195), (200, 190), (200, 40), (250, 40)];
    assert_eq!(corners(&points), [(0, 0), (100, 0), (100, 200), (200, 190), (200, 40), (250, 40)]);
}
