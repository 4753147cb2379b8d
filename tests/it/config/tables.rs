//! Files of consumers and of networks: what any program writes is read as it was meant, and what is cut or broken is
//! reported without a word of it.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use proptest::prelude::*;
use tollgate::config::{self, LoadedConfig, Report};
use tollgate::route::consumers::Consumers;

use crate::harness::tools;

/// Part of all keys.
const SECRET: &str = "hushhush";

/// A `gateway.toml` beside a file of consumers with this content.
fn parse(folder: &Path, csv: &[u8]) -> Result<LoadedConfig, Report> {
    std::fs::write(folder.join("consumers.csv"), csv).unwrap();
    let toml = "[upstreams]\ndemo = \"builtin:echo\"\n[[routes]]\npath = \"/*\"\nupstream = \"demo\"\nauth = \"keys\"\n\
                [auth.keys]\ntype = \"api-key\"\nfrom = \"header:x-api-key\"\nfile = \"consumers.csv\"\n";
    config::parse(toml.as_bytes(), folder.join("gateway.toml").to_str().unwrap(), &|_| None)
}

fn consumers(loaded: &LoadedConfig) -> &Consumers {
    &loaded.plan.auths[0].api_keys().expect("API keys").consumers
}

/// The values of a consumer by column. Empty ones are none.
type Row = BTreeMap<String, String>;

fn row_of(consumers: &Consumers, key: &str) -> Option<Row> {
    let consumer = consumers.find(key.as_bytes())?;
    let row: Row = consumers
        .columns()
        .filter_map(|column| Some((column.to_owned(), consumer.column(column)?.to_owned())))
        .collect();
    assert_eq!(row.get("name").map(String::as_str), Some(consumer.name()));
    assert_eq!(row.get("tier").map(String::as_str), consumer.tier());
    Some(row)
}

/// A table: columns in any order, and rows of as many values.
#[derive(Clone, Debug)]
struct Table {
    columns: Vec<&'static str>,
    rows: Vec<Vec<String>>,
}

/// How a program writes it.
#[derive(Clone, Copy, Debug)]
struct Style {
    all_quoted: bool,
    line_end: &'static str,
    mark: bool,
    empty_lines: bool,
    last_line_ends: bool,
}

impl Table {
    fn at(&self, column: &str) -> usize {
        self.columns.iter().position(|known| *known == column).unwrap()
    }

    fn written(&self, style: Style) -> String {
        let value = |value: &str| {
            if style.all_quoted || value.contains(['"', ',', '\n', '\r']) || value.starts_with('#') {
                format!("\"{}\"", value.replace('"', "\"\""))
            } else {
                value.to_owned()
            }
        };
        let header: Vec<String> = self.columns.iter().map(|column| (*column).to_owned()).collect();
        let lines = std::iter::once(&header).chain(&self.rows);
        let lines: Vec<String> =
            lines.map(|row| row.iter().map(|text| value(text)).collect::<Vec<_>>().join(",")).collect();
        let between = if style.empty_lines { style.line_end.repeat(2) } else { style.line_end.to_owned() };
        let mark = if style.mark { "\u{feff}" } else { "" };
        format!("{mark}{}{}", lines.join(&between), if style.last_line_ends { style.line_end } else { "" })
    }

    /// The values of each key, without blanks around them.
    fn meaning(&self) -> BTreeMap<String, Row> {
        let row = |row: &Vec<String>| {
            let pairs = self.columns.iter().zip(row).filter(|(column, _)| **column != "key");
            let pairs = pairs.map(|(column, value)| ((*column).to_owned(), value.trim().to_owned()));
            (row[self.at("key")].trim().to_owned(), pairs.filter(|(_, value)| !value.is_empty()).collect())
        };
        self.rows.iter().map(row).collect()
    }
}

fn table() -> impl Strategy<Value = Table> {
    let columns = Just(vec!["key", "name", "tier", "org", "note"]).prop_shuffle();
    let words = |words: &[&'static str], count| {
        prop::collection::vec(prop::sample::select(words.to_vec()), count).prop_map(|words| words.concat())
    };
    let name = words(&["a", "B", " ", "\"", ",", "é", "%", "'", ";", "#"], 1..5);
    let note = words(&["x", " ", "\"", ",", "\n", "\r\n", "é", "\"\"", "hushhush"], 0..6);
    let row = (name, prop::sample::select(vec!["", "free", "pro", "p,\"r"]), note.clone(), note);
    (columns, prop::collection::vec(row, 0..12)).prop_map(|(columns, rows)| {
        let mut tiers = BTreeMap::new();
        let rows = rows.into_iter().enumerate().map(|(number, (name, tier, org, note))| {
            let name = if name.trim().is_empty() { "n".to_owned() } else { name };
            let tier = *tiers.entry(name.trim().to_owned()).or_insert(tier);
            let key = format!("{SECRET}-\"{number},é");
            let value = |column: &&str| match *column {
                "key" => key.clone(),
                "name" => name.clone(),
                "tier" => tier.to_owned(),
                "org" => org.clone(),
                _ => note.clone(),
            };
            columns.iter().map(value).collect()
        });
        Table { rows: rows.collect(), columns: columns.clone() }
    })
}

fn style() -> impl Strategy<Value = Style> {
    let line_end = prop::sample::select(vec!["\n", "\r\n"]);
    (any::<bool>(), line_end, any::<bool>(), any::<bool>(), any::<bool>()).prop_map(
        |(all_quoted, line_end, mark, empty_lines, last_line_ends)| Style {
            all_quoted,
            line_end,
            mark,
            empty_lines,
            last_line_ends,
        },
    )
}

#[track_caller]
fn assert_read(loaded: &LoadedConfig, meaning: &BTreeMap<String, Row>) {
    let found = consumers(loaded);
    assert_eq!(found.keys(), meaning.len());
    for (key, row) in meaning {
        assert_eq!(row_of(found, key).as_ref(), Some(row), "{key}");
    }
    let names: std::collections::BTreeSet<_> = meaning.values().map(|row| &row["name"]).collect();
    assert_eq!(found.names(), names.len());
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 300, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn a_table_in_any_style_is_read_as_it_was_meant(table in table(), style in style()) {
        let folder = tempfile::tempdir().unwrap();
        let text = table.written(style);
        let loaded = parse(folder.path(), text.as_bytes()).unwrap_or_else(|report| panic!("{text}\n{report}"));
        assert_read(&loaded, &table.meaning());
    }

    #[test]
    fn bytes_of_any_kind_are_a_table_or_a_report_that_shows_none_of_them(
        pieces in prop::collection::vec(
            prop_oneof![
                prop::sample::select(vec![
                    "key,name,tier\n", "name,key\n", "hushhush-1,acme,free\n", "hushhush-2,acme,hushhush\r\n",
                    "sha256:hushhush,x\n", "\"", ",", "\n", "\r", "hushhush", "\"hushhush\"", "\u{feff}", "\0", "é",
                ]).prop_map(|text| text.as_bytes().to_vec()),
                prop::collection::vec(any::<u8>(), 0..4),
            ],
            0..14,
        ),
    ) {
        let folder = tempfile::tempdir().unwrap();
        match parse(folder.path(), &pieces.concat()) {
            Ok(loaded) => {
                let found = consumers(&loaded);
                prop_assert_eq!(found.iter().count(), found.keys());
                prop_assert!(found.iter().all(|consumer| !consumer.name().is_empty()));
                let shown = format!("{found:?}");
                prop_assert!(!shown.contains(SECRET), "{}", shown);
            }
            Err(report) => {
                let text = format!("{report}{:?}", report.error_lines());
                prop_assert!(report.errors() > 0 && !text.contains(SECRET), "{}", text);
            }
        }
    }
}

/// Python's writer in its styles: what spreadsheets and scripts of users produce.
#[test]
fn tables_that_python_writes_are_read() {
    const SCRIPT: &str = r#"
import csv, io, json, random, sys
random.seed(7)
words = ["a", "B", " ", "\"", ",", "é", "%", "'", ";", "\n", "\r\n", "漢"]
text = lambda n, of=words: "".join(random.choice(of) for _ in range(random.randrange(n)))
plain = [w for w in words if "\n" not in w]
for number in range(200):
    columns = ["key", "name", "tier", "org"]
    random.shuffle(columns)
    tiers, rows = {}, []
    for row in range(random.randrange(1, 30)):
        name = ("n" + text(6, plain)).strip()
        tier = tiers.setdefault(name, random.choice(["", "free", "pro"]))
        rows.append({"key": f"hushhush-{row}" + text(4, plain).strip(), "name": name, "tier": tier, "org": text(6).strip()})
    out = io.StringIO(newline="")
    style = dict(quoting=random.choice([csv.QUOTE_MINIMAL, csv.QUOTE_ALL, csv.QUOTE_NONNUMERIC]),
                 lineterminator=random.choice(["\n", "\r\n"]))
    writer = csv.DictWriter(out, columns, **style)
    writer.writeheader()
    writer.writerows(rows)
    encoding = random.choice(["utf-8", "utf-8-sig"])
    open(f"{sys.argv[1]}/{number}.csv", "wb").write(out.getvalue().encode(encoding))
    meaning = {row["key"]: {k: v for k, v in row.items() if v and k != "key"} for row in rows}
    json.dump(meaning, open(f"{sys.argv[1]}/{number}.json", "w"))
"#;
    let (written, folder) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let status = tools::python(&[]).args(["-c", SCRIPT]).arg(written.path()).status().expect("Python runs");
    assert!(status.success());
    for number in 0..200 {
        let file = |ending: &str| -> PathBuf { written.path().join(format!("{number}.{ending}")) };
        let csv = std::fs::read(file("csv")).unwrap();
        let meaning: BTreeMap<String, Row> =
            serde_json::from_slice(&std::fs::read(file("json")).unwrap()).unwrap();
        let loaded = parse(folder.path(), &csv)
            .unwrap_or_else(|report| panic!("{}\n{report}", String::from_utf8_lossy(&csv)));
        assert_read(&loaded, &meaning);
    }
}

/// A file that was copied in part: no row but the last is read as another one.
#[test]
fn a_file_cut_anywhere_is_a_table_of_its_first_rows_or_is_refused() {
    let text = "\u{feff}key,name,tier,note\r\nhushhush-1,acme,pro,\"a \"\"b\"\"\r\nc\"\r\n\r\n\"hushhush-2\",\"z,é\",free,\r\n\
                sha256:6ab9f1eb8f7d3388f4f9d586f66e99fd54080df2c446f0e58668b09c08a16dd0,gamma,,x\r\nhushhush-3,acme,pro,\r\n";
    let folder = tempfile::tempdir().unwrap();
    let whole = parse(folder.path(), text.as_bytes()).unwrap();
    let expected: Vec<_> =
        consumers(&whole).iter().map(|one| (one.name().to_owned(), one.tier().map(str::to_owned))).collect();
    assert_eq!(expected.len(), 4);
    for end in 0..text.len() {
        match parse(folder.path(), &text.as_bytes()[..end]) {
            Ok(loaded) => {
                let found: Vec<_> = consumers(&loaded).iter().collect();
                let all_but_last = found.len().saturating_sub(1);
                for (one, (name, tier)) in found[..all_but_last].iter().zip(&expected) {
                    assert_eq!((one.name(), one.tier()), (&**name, tier.as_deref()), "cut at {end}");
                }
            }
            Err(report) => {
                let text = report.to_string();
                assert!(report.errors() > 0 && !text.contains(SECRET), "cut at {end}: {text}");
            }
        }
    }
}

/// A quote that is not closed makes the next rows part of one value: they are never left out in silence.
#[test]
fn a_misplaced_quote_is_a_fault_of_its_line() {
    let folder = tempfile::tempdir().unwrap();
    let message = "a quote begins or ends within a value, or is not closed";
    for (rows, line) in [
        ("key-0001,acme,\"oops\nkey-0002,beta,\"fine\"\nkey-0003,gamma,x\n", 2),
        ("key-0001,acme,x\n\nkey-0002,be\"ta,x\n", 4),
        ("key-0001,acme,\"a\" \n", 2),
        ("key-0001,acme, \"a\"\n", 2),
        ("key-0001,acme,x\nkey-0002,beta,\"y", 3),
    ] {
        let report = parse(folder.path(), format!("key,name,note\n{rows}").as_bytes()).unwrap_err();
        assert!(
            report.error_lines()[0].ends_with(&format!("consumers.csv:{line}: {message}")),
            "{rows}\n{report}"
        );
    }
    let report = parse(folder.path(), b"key,\"name\nkey-0001,acme\n").unwrap_err();
    assert!(report.error_lines()[0].ends_with(&format!("consumers.csv:1: {message}")), "{report}");
}

#[test]
fn a_line_has_its_number_behind_empty_lines_and_long_values() {
    let folder = tempfile::tempdir().unwrap();
    let csv = "key,name,note\r\n\r\n\r\nkey-0001,acme,\"a\r\nb\"\r\n\r\nkey-0001,beta,x\r\n";
    let report = parse(folder.path(), csv.as_bytes()).unwrap_err();
    assert_eq!(report.error_lines(), ["consumers.csv:7: this key stands in line 4 too"]);
}

/// The report of a table in an environment with three variables.
fn in_environment(csv: &str) -> Result<LoadedConfig, Report> {
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("consumers.csv"), csv).unwrap();
    let toml = "[upstreams]\ndemo = \"builtin:echo\"\n[[routes]]\npath = \"/*\"\nupstream = \"demo\"\nauth = \"keys\"\n\
                [auth.keys]\ntype = \"api-key\"\nfrom = \"header:x-api-key\"\nfile = \"consumers.csv\"\n";
    let environment = |name: &str| match name {
        "ACME_KEY" => Some(format!("#{SECRET},\"1\"\n")),
        // printf %s hushhush-2 | sha256sum
        "GLOBEX_KEY" => {
            Some("SHA256:f0b3c2c8b8e5cdb92443233eb170bf778a6ac471b9207859208d32c5dde79623".to_owned())
        }
        "EMPTY" => Some(String::new()),
        "SHORT" => Some("hush".to_owned()),
        _ => None,
    };
    config::parse(toml.as_bytes(), folder.path().join("gateway.toml").to_str().unwrap(), &environment)
}

#[test]
fn variables_are_filled_in_and_are_part_of_no_other_value() {
    let loaded = in_environment(
        "key,name,tier,note\n${ACME_KEY},acme,${EMPTY},a ${NONE:-b} $${c}\n\"${GLOBEX_KEY}\",${NAME:-globex},pro,$5\n",
    )
    .unwrap();
    let row = |pairs: &[(&str, &str)]| -> Option<Row> {
        Some(pairs.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect())
    };
    let found = |key: &str| row_of(consumers(&loaded), key);
    assert_eq!(found(&format!("#{SECRET},\"1\"")), row(&[("name", "acme"), ("note", "a b ${c}")]));
    assert_eq!(found("hushhush-2"), row(&[("name", "globex"), ("note", "$5"), ("tier", "pro")]));
    assert_eq!(consumers(&loaded).keys(), 2);
}

#[test]
fn a_variable_that_is_no_key_is_a_fault_of_its_line() {
    let csv = "key,name\n${MISSING},a\n${hushhush},b\n${EMPTY},c\n${SHORT},d\nabc-${hushhush,e\n${hush hush},f\nhushhush-1,g\n";
    let report = in_environment(csv).unwrap_err();
    assert_eq!(
        report.error_lines(),
        [
            "consumers.csv:2: the environment variable `MISSING` is not set",
            "consumers.csv:3: an environment variable that this line names is not set",
            "consumers.csv:4: no request can carry this key",
            "consumers.csv:5: this key has fewer than 8 characters, so it could be guessed",
            "consumers.csv:6: `${` in this line begins no variable",
            "consumers.csv:7: `${` in this line begins no variable",
        ]
    );
    assert!(!report.to_string().contains("hush"), "{report}");
}

#[test]
fn lines_that_begin_with_a_number_sign_are_comments() {
    let folder = tempfile::tempdir().unwrap();
    let csv = "\u{feff}# keys of \"2026\n#\n\nkey,name,note\r\n# hushhush-0,eve,\"\r\nhushhush-1,acme,\"a\n# b\"\n#hushhush-9,acme,x\n\
               hushhush-2,#globex,#\n# the end";
    let loaded = parse(folder.path(), csv.as_bytes()).unwrap();
    let found = consumers(&loaded);
    assert_eq!(found.keys(), 2, "{found:?}");
    assert_eq!(found.find(b"hushhush-1").unwrap().column("note"), Some("a\n# b"));
    assert_eq!(found.find(b"hushhush-2").unwrap().name(), "#globex");
    let faulty = format!("{csv}\n\n# more\nhushhush-1,eve,\n");
    let report = parse(folder.path(), faulty.as_bytes()).unwrap_err();
    assert_eq!(report.error_lines(), ["consumers.csv:13: this key stands in line 6 too"]);
    let report = parse(folder.path(), b"key,name\rhushhush-1,acme\r# end\rhushhush-2,acme\r").unwrap_err();
    assert_eq!(
        report.error_lines(),
        ["consumers.csv:1: the lines of this file end with a carriage return alone"]
    );
}

/// Just above a power of two, where the table has grown last.
#[test]
fn a_consumer_takes_less_than_150_bytes_beside_its_text() {
    let folder = tempfile::tempdir().unwrap();
    for count in [1_000, 115_000] {
        let rows: String =
            (0..count).map(|number| format!("{SECRET}-{number},customer-{number},pro\n")).collect();
        let loaded = parse(folder.path(), format!("key,name,tier\n{rows}").as_bytes()).unwrap();
        let found = consumers(&loaded);
        assert_eq!(found.keys(), count);
        let each = found.overhead() / count;
        assert!(each < 150, "{each} bytes");
        eprintln!("{count} consumers: {each} bytes each beside their text");
    }
}

/// A wrong header line makes keys the tiers of consumers, and so would put them into warnings.
#[test]
fn a_column_with_keys_is_not_shown_as_tiers() {
    let folder = tempfile::tempdir().unwrap();
    let rows: String =
        (0..100).map(|number| format!("account-{number},name-{number},{SECRET}-{number}\n")).collect();
    std::fs::write(folder.path().join("consumers.csv"), format!("key,name,tier\n{rows}")).unwrap();
    let toml = "[upstreams]\ndemo = \"builtin:echo\"\n\
                [[routes]]\npath = \"/*\"\nupstream = \"demo\"\nauth = \"keys\"\nlimits = [\"api\"]\n\
                [auth.keys]\ntype = \"api-key\"\nfrom = \"header:x-api-key\"\nfile = \"consumers.csv\"\n\
                [limits.api]\nalgorithm = \"token-bucket\"\nkey = \"consumer\"\nrate = \"10/min\"\n[limits.api.tiers.pro]\n";
    let path = folder.path().join("gateway.toml");
    let loaded = config::parse(toml.as_bytes(), path.to_str().unwrap(), &|_| None).unwrap();
    let text = loaded.warnings.to_string();
    assert!(text.contains("auth `keys` has 100 tiers that limit `api` does not have"), "{text}");
    assert!(!text.contains(SECRET), "{text}");
}

/// One counter for consumers of different tiers drains at the rate of whichever was last.
#[test]
fn tiers_that_share_a_counter_are_a_warning() {
    let folder = tempfile::tempdir().unwrap();
    let warnings = |key: &str, csv: &str, second: &str| -> Vec<String> {
        std::fs::write(folder.path().join("consumers.csv"), csv).unwrap();
        std::fs::write(folder.path().join("second.csv"), second).unwrap();
        let toml = format!(
            "[upstreams]\ndemo = \"builtin:echo\"\n\
             [[routes]]\npath = \"/*\"\nupstream = \"demo\"\nauth = [\"keys\", \"more\"]\nlimits = [\"api\", \"all\"]\n\
             [auth.keys]\ntype = \"api-key\"\nfrom = \"header:x-api-key\"\nfile = \"consumers.csv\"\n\
             [auth.more]\ntype = \"api-key\"\nfrom = \"bearer\"\nfile = \"second.csv\"\n\
             [limits.all]\nalgorithm = \"gcra\"\nkey = \"ip\"\nrate = \"10/min\"\n\
             [limits.api]\nalgorithm = \"token-bucket\"\nkey = {key}\nrate = \"10/min\"\n\
             [limits.api.tiers.pro]\nrate = \"100/min\"\n[limits.api.tiers.free]\n"
        );
        let path = folder.path().join("gateway.toml");
        config::parse(toml.as_bytes(), path.to_str().unwrap(), &|_| None).unwrap().warnings.warning_lines()
    };
    let csv = "key,name,tier,org\nkey-0001,a,pro,x\nkey-0002,b,pro,x\nkey-0003,c,free,y\nkey-0004,d,free,\nkey-0005,e,pro,\n";
    let other = "key,name,tier,org\nmore-001,f,free,y\n";
    for key in [
        "\"consumer\"",
        "[\"ip\", \"consumer\"]",
        "\"consumer:org\"",
        "[\"consumer:org\", \"consumer:name\"]",
    ] {
        assert_eq!(warnings(key, csv, other), [""; 0], "{key}");
    }
    let toml = "[upstreams]\ndemo = \"builtin:echo\"\n\
         [[routes]]\npath = \"/*\"\nupstream = \"demo\"\nauth = \"keys\"\nlimits = [\"places\"]\n\
         [auth.keys]\ntype = \"api-key\"\nfrom = \"header:x-api-key\"\nfile = \"consumers.csv\"\n\
         [limits.places]\nalgorithm = \"concurrency\"\nkey = \"upstream\"\nmax = 10\nqueue = 5\n\
         share_by = \"consumer\"\n[limits.places.tiers.pro]\nweight = 4\n[limits.places.tiers.free]\n";
    let path = folder.path().join("gateway.toml");
    let loaded = config::parse(toml.as_bytes(), path.to_str().unwrap(), &|_| None).unwrap();
    assert_eq!(loaded.warnings.warning_lines(), [""; 0], "weights of places");
    let shared = |key: &str, csv: &str, second: &str, consumers: &str| {
        let found = warnings(key, csv, second);
        let words = format!("{consumers} different tiers, but one counter of limit `api`");
        assert!(found.len() == 1 && found[0].ends_with(&words), "{key}: {found:?}");
    };
    shared("\"global\"", csv, other, "consumers `a` and `c` have");
    shared("\"consumer:org\"", csv, "key,name,tier,org\nmore-001,f,free,x\n", "consumers `a` and `f` have");
    shared(
        "\"consumer\"",
        csv,
        "key,name,tier,org\nmore-001,a,free,x\n",
        "consumer `a` of several auths has",
    );
}

/// A file of networks may be one of secrets by mistake.
#[test]
fn no_line_of_a_file_of_networks_is_shown() {
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(
        folder.path().join("blocked.txt"),
        format!("10.0.0.0/8\n{SECRET},acme\n\n{SECRET}\u{e9}\r\n"),
    )
    .unwrap();
    let toml = "[server]\ndeny = [\"file:blocked.txt\"]\n[upstreams]\ndemo = \"builtin:echo\"\n[[routes]]\npath = \"/*\"\nupstream = \"demo\"\n";
    let path = folder.path().join("gateway.toml");
    let report = config::parse(toml.as_bytes(), path.to_str().unwrap(), &|_| None).unwrap_err();
    assert!(!report.to_string().contains(SECRET), "{report}");
    let lines = report.error_lines();
    assert_eq!(lines.len(), 2, "{report}");
    assert!(lines[0].starts_with("blocked.txt:2: ") && lines[1].starts_with("blocked.txt:4: "), "{lines:?}");
}
