//! What it takes to read access logs: lines a second, for both passes over a file.
//!
//! `cargo bench --bench replay`.
#![expect(clippy::unwrap_used, reason = "a benchmark that cannot be set up should stop")]

use std::fmt::Write as _;
use std::ops::ControlFlow;
use std::path::PathBuf;

use divan::counter::ItemsCount;
use divan::{Bencher, black_box};
use tempfile::NamedTempFile;
use tollgate::limit::units::Micros;
use tollgate::log_reader::{LogFormat, LogInput, LogOptions, LogReader};

const LINES: u64 = 200_000;

fn main() {
    divan::main();
}

fn file(line: impl Fn(u64, &mut String)) -> NamedTempFile {
    let mut text = String::new();
    (0..LINES).for_each(|index| {
        line(index, &mut text);
        text.push('\n');
    });
    let file = NamedTempFile::new().unwrap();
    std::fs::write(file.path(), text).unwrap();
    file
}

fn tollgate(index: u64, text: &mut String) {
    let (minute, second, micros) =
        (index / 60_000 % 60, index / 1_000 % 60, index % 1_000 * 1_000 + index % 7);
    let client = index % 250;
    write!(
        text,
        r#"{{"time":"2026-01-31T12:{minute:02}:{second:02}.{micros:06}Z","method":"GET","host":"example.com","path":"/api/items/{index}?page=2","route":"items","status":200,"bytes_in":0,"bytes_out":5120,"duration_ms":12.345,"upstream":"api/127.0.0.1:9001","upstream_ms":11.0,"client":"198.51.100.{client}","consumer":null,"tier":null,"request_id":"0190c2a5f3b47a1e","limit":"per-client","decision":"allowed","remaining":99,"cost":1,"error":null}}"#
    )
    .unwrap();
}

fn combined(index: u64, text: &mut String) {
    let (minute, second, client) = (index / 60_000 % 60, index / 1_000 % 60, index % 250);
    write!(
        text,
        r#"198.51.100.{client} - - [31/Jan/2026:12:{minute:02}:{second:02} +0000] "GET /articles/{index}?ref=home HTTP/1.1" 200 5120 "https://example.com/" "Mozilla/5.0 (X11; Linux x86_64; rv:128.0) Gecko/20100101 Firefox/128.0""#
    )
    .unwrap();
}

fn read(path: PathBuf) -> u64 {
    let options = LogOptions {
        inputs: vec![LogInput::File(path)],
        format: LogFormat::Auto,
        map: None,
        host: Some("example.com".to_owned()),
        trusted_proxies: Vec::new(),
        reorder: Micros(60_000_000),
        from: None,
        to: None,
    };
    let mut reader = LogReader::open(options, |_| ControlFlow::Continue(())).unwrap();
    let mut bytes = 0;
    while let Some(request) = reader.next() {
        bytes += request.head.len() as u64;
    }
    assert_eq!(reader.counts().requests, LINES);
    bytes
}

fn bench(bencher: Bencher<'_, '_>, line: fn(u64, &mut String)) {
    let file = file(line);
    bencher.counter(ItemsCount::new(LINES)).bench(|| read(black_box(file.path().to_path_buf())));
}

#[divan::bench(sample_count = 10)]
fn tollgate_lines(bencher: Bencher<'_, '_>) {
    bench(bencher, tollgate);
}

#[divan::bench(sample_count = 10)]
fn combined_lines(bencher: Bencher<'_, '_>) {
    bench(bencher, combined);
}
