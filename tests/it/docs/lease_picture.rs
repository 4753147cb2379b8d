//! docs/pictures/lease.svg is drawn from the ends that the code computes. To draw it anew: `INSTA_UPDATE=always`.

use std::fmt::Write as _;

use tollgate::limit::lease::Lease;
use tollgate::limit::units::{Micros, Timestamp};

use crate::harness::pages::root;

const PICTURE: &str = "docs/pictures/lease.svg";
/// Gateways' clocks, in percent of the store's.
const CLOCKS: [u64; 3] = [98, 100, 102];
/// In µs of the store: the question is sent, arrives, and is answered.
const ASKED: u64 = 0;
const GRANTED: u64 = 4_000;
const ANSWERED: u64 = 8_000;
/// The end of the window of the lower half.
const EDGE: u64 = 60_000;

const HEAD: &str = r#"<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 720 272" width="720" height="272" role="img">
<title>How long gateways with different clocks spend the units of a lease of 100 ms, and of one that ends with its window</title>
<style>
text{font:12px ui-sans-serif,system-ui,sans-serif;fill:#59636e}.b{font-weight:600}
.y{fill:#1a7f37}.a{fill:#0969da}.u{fill:#0969da;fill-opacity:.18;stroke:#0969da}.l{stroke:#8c959f}.q{stroke:#cf222e;stroke-dasharray:4 4}
@media (prefers-color-scheme:dark){text{fill:#9198a1}.y{fill:#3fb950}.a{fill:#4493f8}.u{fill:#4493f8;stroke:#4493f8}.l{stroke:#656c76}.q{stroke:#f85149}}
</style>
<circle class="a" cx="164" cy="12" r="4"/><text x="173" y="16">question sent</text>
<circle class="y" cx="270" cy="12" r="4"/><text x="279" y="16">granted by the store</text>
<path class="u" d="M420 7h24v10h-24z"/><text x="450" y="16">units may be spent</text>
"#;

fn x(micros: u64) -> f64 {
    150.0 + micros as f64 * 4.8 / 1_000.0
}

/// The gateways' ends, below `top`, with the last moment that is allowed.
fn panel(top: f64, title: &str, rest: Option<Micros>, last: u64, last_name: &str) -> String {
    let lease = Lease::new(Micros(100_000)).expect("in range");
    let (mut svg, base) = (String::new(), top + 96.0);
    writeln!(svg, r#"<text class="b" x="40" y="{}">{title}</text>"#, top + 12.0).unwrap();
    for (lane, clock) in CLOCKS.into_iter().enumerate() {
        let y = top + [32.0, 54.0, 76.0][lane];
        // All clocks begin with 0: the end is a span of the gateway's clock.
        let end = lease.ends(Timestamp(ASKED), rest).0 * 100 / clock;
        writeln!(svg, r#"<text x="40" y="{}">clock of {clock} %</text>"#, y + 4.0).unwrap();
        let (from, width) = (x(ANSWERED), x(end) - x(ANSWERED));
        writeln!(svg, r#"<path class="u" d="M{from:.1} {}h{width:.1}v10h-{width:.1}z"/>"#, y - 5.0).unwrap();
        writeln!(svg, r#"<circle class="a" cx="{:.1}" cy="{y}" r="4"/>"#, x(ASKED)).unwrap();
        writeln!(svg, r#"<circle class="y" cx="{:.1}" cy="{y}" r="4"/>"#, x(GRANTED)).unwrap();
        let told = format!("{}.{} ms", end / 1_000, end % 1_000 / 100);
        writeln!(svg, r#"<text x="{:.1}" y="{}">{told}</text>"#, x(last) + 6.0, y + 4.0).unwrap();
    }
    let at = x(last);
    writeln!(svg, r#"<path class="q" d="M{at:.1} {}V{base}"/>"#, top + 20.0).unwrap();
    writeln!(svg, r#"<text x="{at:.1}" y="{}" text-anchor="middle">{last_name}</text>"#, top + 14.0).unwrap();
    writeln!(svg, r#"<path class="l" d="M{:.1} {base}H{:.1}"/>"#, x(0), x(108_000)).unwrap();
    for ms in (0..=100).step_by(20) {
        let at = x(ms * 1_000);
        writeln!(svg, r#"<path class="l" d="M{at:.1} {base}v5"/>"#).unwrap();
        writeln!(svg, r#"<text x="{at:.1}" y="{}" text-anchor="middle">{ms} ms</text>"#, base + 18.0)
            .unwrap();
    }
    svg
}

#[test]
fn the_picture_of_leases_is_drawn_from_the_ends_of_the_code() {
    let end = GRANTED + 100_000;
    let rest = Some(Micros(EDGE - GRANTED));
    let svg = format!(
        "{HEAD}{}{}</svg>\n",
        panel(24.0, "lease 100 ms", None, end, "grant + lease: 104 ms"),
        panel(148.0, "a window ends at 60 ms", rest, EDGE, "the window ends"),
    );
    let path = root().join(PICTURE);
    if std::env::var("INSTA_UPDATE").is_ok_and(|update| update == "always") {
        std::fs::write(&path, &svg).unwrap();
    }
    let found = std::fs::read_to_string(&path).unwrap_or_default();
    assert!(found == svg, "{PICTURE} is not what the code computes: INSTA_UPDATE=always draws it anew");
}
