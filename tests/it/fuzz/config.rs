//! Whatever a file says, the loader answers: a plan or a report, never a panic, and within reasonable time.

use std::fmt::Write as _;
use std::time::Duration;

use proptest::prelude::*;
use rustix::time::{ClockId, clock_gettime};
use tollgate::limit::Algorithm;
use tollgate::limit::units::Micros;

use crate::harness::config::{files, parse};
use crate::harness::config_folder::ConfigFolder;

/// Generous: the machine may be busy, and tests are not optimised. A quadratic loader would take many times as long.
const TIMEOUT: Duration = Duration::from_secs(60);

/// The processor time of this thread: other work on the machine does not count.
fn processor_time() -> Duration {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    Duration::try_from(time).expect("not negative")
}

/// What stands in files, good and bad.
const TOKENS: [&str; 48] = [
    "[server]",
    "[admin]",
    "[store]",
    "[log]",
    "[upstreams]",
    "[upstreams.a]",
    "[limits.a]",
    "[limits.\"\"]",
    "[[routes]]",
    "[routes]",
    "[[server.tls]]",
    "listen",
    "path",
    "name",
    "upstream",
    "limits",
    "cost",
    "rate",
    "key",
    "algorithm",
    "burst",
    "reject",
    "hosts",
    "methods",
    "headers",
    "servers",
    "retry",
    "strip_prefix",
    "max_body_bytes",
    " = ",
    " = ",
    " = ",
    "\"10/s\"",
    "\"/*\"",
    "\"a\"",
    "\"ip\"",
    "\"gcra\"",
    "\"leaky-bucket\"",
    "\"builtin:echo\"",
    "\"${A}\"",
    "1",
    "-0x1",
    "[",
    "]",
    "{",
    "}",
    ", ",
    "\n",
];

/// Loads the file. Either way there is something to show.
fn answer(bytes: &[u8]) {
    match parse(bytes) {
        Ok(loaded) => {
            assert_eq!(loaded.warnings.errors(), 0);
            loaded.warnings.render(true);
        }
        Err(report) => {
            assert!(report.errors() > 0);
            assert!(
                report.render(false).starts_with("error: ") || !report.warning_lines().is_empty(),
                "{report}"
            );
            report.render(true);
        }
    }
}

/// One way to spoil a text: what to do, and where (in shares of its length).
fn spoil(bytes: &mut Vec<u8>, (what, from, length, token): (u8, f64, usize, usize)) {
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a share of a length")]
    let start = (from * bytes.len() as f64) as usize;
    let end = (start + length).min(bytes.len());
    let span = bytes[start..end].to_vec();
    let word = TOKENS[token % TOKENS.len()].bytes();
    match what % 5 {
        0 => drop(bytes.drain(start..end)),
        1 => drop(bytes.splice(start..start, span)),
        2 => drop(bytes.splice(start..end, word)),
        3 => drop(bytes.splice(start..start, word)),
        _ => swap_lines(bytes, start, end),
    }
}

/// Swaps the lines on which the two places stand.
fn swap_lines(bytes: &mut Vec<u8>, one: usize, other: usize) {
    let number = |at: usize| bytes[..at].iter().filter(|&&byte| byte == b'\n').count();
    let (one, other) = (number(one), number(other));
    let mut lines: Vec<&[u8]> = bytes.split(|&byte| byte == b'\n').collect();
    lines.swap(one, other);
    *bytes = lines.join(&b'\n');
}

fn spoils() -> impl Strategy<Value = Vec<(u8, f64, usize, usize)>> {
    prop::collection::vec((any::<u8>(), 0.0..1.0_f64, 0..60_usize, any::<usize>()), 1..6)
}

/// The rate of a limit as the loader reads it, if it does.
fn rate(text: &str) -> Option<(u64, Micros)> {
    let limit = format!("[limits.a]\nalgorithm = \"fixed-window\"\nkey = \"ip\"\nrate = {}\n", quoted(text));
    let file = format!(
        "{limit}[upstreams]\na = \"builtin:echo\"\n[[routes]]\npath = \"/*\"\nupstream = \"a\"\nlimits = [\"a\"]\n"
    );
    let plan = parse(file).ok()?.plan;
    let algorithm: &Algorithm = &plan.limits[0].policies[0].algorithm;
    Some((algorithm.quota(), algorithm.window()))
}

/// A timeout of `[server]` as the loader reads it, if it does.
fn duration(text: &str) -> Option<Duration> {
    let file = format!("[server]\ndrain_timeout = {}\n{ROUTE}", quoted(text));
    parse(file).ok().map(|loaded| loaded.plan.server.drain_timeout)
}

/// A bound on bodies as the loader reads it, if it does.
fn size(text: &str) -> Option<Option<u64>> {
    let file = format!("[server]\nmax_body_bytes = {}\n{ROUTE}", quoted(text));
    parse(file).ok().map(|loaded| loaded.plan.routes[0].max_body_bytes)
}

const SPANS: [(&str, u64); 5] =
    [("ms", 1), ("s", 1_000), ("min", 60_000), ("h", 3_600_000), ("day", 86_400_000)];
const SIZES: [(&str, u64); 5] = [("B", 1), ("KiB", 1 << 10), ("MiB", 1 << 20), ("GiB", 1 << 30), ("", 1)];

/// A number and a unit, read as plainly as can be.
fn plainly(text: &str, units: &[(&str, u64)]) -> Option<u64> {
    let unit = text.trim().trim_start_matches(|char: char| char.is_ascii_digit());
    let number: u64 = text.trim().strip_suffix(unit)?.parse().ok()?;
    let (_, factor) = units.iter().find(|(name, _)| *name == unit.trim())?;
    number.checked_mul(*factor)
}

/// A quantity that the loader takes is the one that the text says.
fn assert_meant(text: &str) {
    if let Some(span) = duration(text) {
        let said = plainly(text, &SPANS).map(Duration::from_millis);
        assert_eq!(Some(span), said, "{text:?}");
    }
    if let Some(size) = size(text) {
        assert_eq!(Some(size.unwrap_or(0)), plainly(text, &SIZES), "{text:?}");
    }
    if let Some((count, window)) = rate(text) {
        let (said, period) = text.split_once('/').expect("a rate has a slash");
        let period = plainly(period, &SPANS).or_else(|| plainly(&format!("1{}", period.trim()), &SPANS));
        assert_eq!(
            (Some(count), Some(window)),
            (plainly(said, &SIZES[4..]), period.map(|span| Micros(span * 1_000))),
            "{text:?}"
        );
    }
}

const ROUTE: &str = "[upstreams]\na = \"builtin:echo\"\n[[routes]]\npath = \"/*\"\nupstream = \"a\"\n";

/// A TOML string of any text.
fn quoted(text: &str) -> String {
    toml::Value::from(text).to_string()
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, ..ProptestConfig::default() })]

    #[test]
    fn random_bytes_are_answered(bytes in prop::collection::vec(any::<u8>(), 0..400)) {
        answer(&bytes);
    }

    #[test]
    fn random_tokens_are_answered(tokens in prop::collection::vec(prop::sample::select(&TOKENS[..]), 0..60)) {
        answer(tokens.concat().as_bytes());
    }

    #[test]
    fn spoiled_files_are_answered(which in any::<prop::sample::Index>(), spoils in spoils()) {
        let valid = files("valid", "toml");
        let (_, mut bytes) = valid[which.index(valid.len())].clone();
        for one in spoils {
            spoil(&mut bytes, one);
        }
        answer(&bytes);
    }

    #[test]
    fn random_quantities_are_answered(text in "[0-9]{0,22}[ a-zA-Z/.µ$-]{0,4}[0-9]{0,3}[a-z/]{0,4}") {
        assert_meant(&text);
    }

    #[test]
    fn any_text_as_a_quantity_is_answered(text in any::<String>()) {
        assert_meant(&text);
    }

    #[test]
    fn quantities_mean_what_they_say(count in 1..=1_000_000_000_u32, number in 1..=366_u32, unit in 0..5_usize) {
        let (name, milliseconds) =
            SPANS[unit];
        let span = u64::from(number) * milliseconds;
        prop_assert_eq!(duration(&format!("{number}{name}")), Some(Duration::from_millis(span)));
        prop_assert_eq!(rate(&format!("{count}/{number}{name}")), Some((count.into(), Micros(span * 1_000))));
        prop_assert_eq!(rate(&format!("{count}/{name}")), Some((count.into(), Micros(milliseconds * 1_000))));
        let (name, factor) = SIZES[unit];
        prop_assert_eq!(size(&format!("{count}{name}")), Some(Some(u64::from(count) * factor)));
    }
}

#[test]
fn deep_nesting_is_a_fault_and_no_overflow() {
    for (open, close) in [("[", "]"), ("{a=", "}"), ("[[", "]]"), ("a.", ""), ("\"", ""), ("[a.", "]")] {
        for prefix in ["a = ", "", "[limits."] {
            let deep = format!("{prefix}{}1{}\n", open.repeat(100_000), close.repeat(100_000));
            answer(deep.as_bytes());
        }
    }
}

#[test]
fn ten_thousand_routes_and_limits_load() {
    let mut file = String::from("[upstreams]\na = \"builtin:echo\"\n");
    for number in 0..10_000 {
        write!(
            file,
            "[limits.l{number}]\nalgorithm = \"gcra\"\nkey = \"header:x-key\"\nrate = \"1/s\"\n\
             [[routes]]\npath = \"/r{number}/*\"\nupstream = \"a\"\nlimits = [\"l{number}\"]\n"
        )
        .unwrap();
    }
    let started = processor_time();
    let plan = parse(file).unwrap_or_else(|report| panic!("{report}")).plan;
    assert_eq!((plan.routes.len(), plan.limits.len()), (10_000, 10_000));
    assert!(processor_time() - started < TIMEOUT, "{:?}", processor_time() - started);
}

#[test]
fn ten_thousand_faults_are_counted_in_reasonable_time() {
    let mut file = String::from("[limits]\n");
    for number in 0..1_000 {
        writeln!(file, "some-quite-long-name-{number} = 1").unwrap();
    }
    for number in 0..10_000 {
        writeln!(
            file,
            "[[routes]]\npath = \"/{number}\"\nupstream = \"a\"\nlimits = [\"another-name-{number}\"]"
        )
        .unwrap();
    }
    let started = processor_time();
    assert!(parse(file).unwrap_err().errors() >= 21_000);
    assert!(processor_time() - started < TIMEOUT, "{:?}", processor_time() - started);
}

/// Pieces of small configurations of several files.
const PIECES: [&str; 15] = [
    "include = [\"b.toml\", \"c*.toml\"]\n",
    "include = \"${X:-a}.toml\"\n",
    "include = [\"\", 1, \"no.toml\", \"*/x\", \"${UNSET}\"]\n",
    "[upstreams]\ndemo = \"builtin:echo\"\n",
    "[[routes]]\npath = \"/*\"\nupstream = \"demo\"\n",
    "[[routes]]\npath = \"/ä\"\nupstream = \"de\"\nlimits = [\"l\"]\n",
    "[limits.l]\nalgorithm = \"gcra\"\nkey = \"ip\"\nrate = \"${R:-1/s}\"\n",
    "[server]\nlisten = [\"127.0.0.1:${P}\"]\nworkers = \"${W:-x}\"\n",
    "[[server.tls]]\ncert = \"no.pem\"\nkey = \"no.pem\"\n",
    "server.via = \"${B}\"\nroutes = 1\n",
    "[auth.a]\ntype = \"api-key\"\nfrom = \"bearer\"\nfile = \"a.toml\"\n",
    "# ü\r\n\u{feff}\"\\u00e4\" = '''",
    "[admin]\nlisten = \"${A}\"\ntoken_env = \"T\"\n",
    "[admin.tokens]\na = { token_env = \"T\", may = [\"read\", \"charge:l\", \"${R}\"] }\nb = \"x\"\n",
    "[store]\nbackend = \"redis\"\nurl = [\"${U}\"]\n",
];

proptest! {
    #![proptest_config(ProptestConfig { cases: 300, ..ProptestConfig::default() })]

    /// Files that are shuffled and cut: no panic, and each place lies inside its file.
    #[test]
    fn every_place_of_several_files_lies_in_its_file(
        files in prop::collection::vec((prop::collection::vec(0..PIECES.len(), 0..6), 0..400_usize), 4),
    ) {
        let folder = ConfigFolder::new(&[]);
        for (name, (pieces, cut)) in ["a.toml", "b.toml", "c.toml", "c1.toml"].into_iter().zip(files) {
            let text: String = pieces.into_iter().map(|piece| PIECES[piece]).collect();
            folder.write(name, &text.as_bytes()[..cut.min(text.len())]);
        }
        for path in ["a.toml", ""] {
            let loaded = tollgate::config::load(&folder.path(path));
            let strict = loaded.map_or_else(|report| report, |loaded| loaded.warnings);
            let lenient = folder.check(path);
            prop_assert!(lenient.report.errors() <= strict.errors(), "{}\n{strict}", lenient.report);
            for report in [&strict, &lenient.report] {
                prop_assert!(report.errors() == 0 || !report.render(true).is_empty());
                for finding in report.findings() {
                    // The directory as a whole, or a file that is not there.
                    let Ok(bytes) = std::fs::read(&finding.file) else { continue };
                    let text = String::from_utf8_lossy(&bytes).into_owned();
                    let line = text.split('\n').nth(finding.line - 1);
                    let length = line.map_or(0, |line| line.chars().count());
                    let is_inside = line.is_some() && (1..=length + 1).contains(&finding.column);
                    prop_assert!(is_inside, "{finding:?}\n{text}");
                }
            }
        }
    }
}
