//! What `suggest` says of many attackers: by their number, and by the answers that they got.

use super::{Folder, error, status, text};

/// An hour of 255 clients with a request in each of 12 minutes, and of `attackers` with 100 requests in one minute, the
/// first of them answered `first` and the others `answer`.
fn log(attackers: u64, first: u16, answer: u16) -> String {
    let line = |second: u64, client: u64, answer: u16| {
        let (minute, second) = (second / 60, second % 60);
        format!(
            "198.51.{}.{} - - [15/Nov/2023:10:{minute:02}:{second:02} +0000] \"GET /a HTTP/1.1\" {answer} 5 \"-\" \"-\"\n",
            client / 250,
            client % 250
        )
    };
    let ordinary = (0..255).flat_map(|client| (0..12).map(move |at| (at * 300 + client % 300, client, 200)));
    let answer_at = move |at: u64| if at == 0 { first } else { answer };
    let attack = move |client: u64| {
        (0..100).map(move |at| (600 + client * 20 + at * 6 / 10, 1_000 + client, answer_at(at)))
    };
    let attacking = (0..attackers).flat_map(attack);
    let mut requests: Vec<_> = ordinary.chain(attacking).collect();
    requests.sort_unstable();
    requests.into_iter().map(|(second, client, answer)| line(second, client, answer)).collect()
}

fn suggested(log: &str) -> String {
    let folder = Folder::with_bucket();
    folder.file("log", log);
    let output = folder.run(&["suggest", "log", "-c", "gateway.toml"], b"");
    assert_eq!(status(&output), 0, "{}", error(&output));
    text(&output)
}

/// The rates of the limits in a text, commented out or not.
fn rates<'t>(text: &'t str, begin: &str) -> Vec<&'t str> {
    text.lines().filter_map(|line| line.strip_prefix(begin)).collect()
}

#[test]
fn attackers_beyond_a_tenth_are_told_with_the_limit_without_them() {
    let text = suggested(&log(30, 200, 200));
    assert!(!text.contains("no gap"), "{text}");
    for line in [
        "30 of 285 keys are far above the others: at least 100 in 1 min, and the others at most",
        "Outliers are at most a tenth of the keys, here 28: so these keys count as ordinary, and the limit is above them.",
        "# Without these 30 keys. If they are no ordinary clients, use in place of the above:",
        "#   Tried on these requests, the limit refuses ",
        "# [limits.all-per-ip]",
        "# mode = \"shadow\"",
    ] {
        assert!(text.contains(line), "{line} is missing in\n{text}");
    }
    let above = rates(&text, "rate = ");
    let without = rates(&text, "# rate = ");
    assert!(above.len() == 1 && without.len() == 1 && above != without, "{text}");
    assert!(text.contains("none of 255 ordinary clients."), "{text}");
    // It is one limit, above all peaks, in shadow.
    let table: toml::Table = text.parse().expect("TOML");
    assert_eq!(table["limits"].as_table().map(toml::Table::len), Some(1));
}

#[test]
fn clients_that_got_only_401_and_403_are_set_apart_however_many_they_are() {
    for answer in [401, 403] {
        let text = suggested(&log(30, answer, answer));
        assert!(!text.contains("far above the others") && !text.contains("no gap"), "{text}");
        for line in [
            "30 outliers got no answer but 401 and 403: such keys are set apart however many they are.",
            "30 outliers, which the limit need not admit:",
            "100 requests, up to 100 in 1 min; all answered 401 or 403",
            "none of 255 ordinary clients.",
        ] {
            assert!(text.contains(line), "{line} is missing in\n{text}");
        }
    }
    // One good answer among the wrong ones: it is a client like others.
    let mixed = suggested(&log(30, 200, 401));
    assert!(mixed.contains("30 of 285 keys are far above the others"), "{mixed}");
}

#[test]
fn a_few_attackers_are_outliers_as_before() {
    let text = suggested(&log(20, 200, 200));
    assert!(text.contains("20 outliers, which the limit need not admit:"), "{text}");
    assert!(!text.contains("Without these"), "{text}");
}
