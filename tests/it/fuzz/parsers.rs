//! The fuzz targets of `fuzz/`, run for a short while on their corpora and on mutations of these.
//!
//! A coverage-guided run is `cargo fuzz run NAME` (docs/security.md); what it finds goes into the corpus. Here the mutations
//! are the same in each run; `TOLLGATE_FUZZ_SEED` chooses others, `TOLLGATE_FUZZ_SECONDS` how long each target runs.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use proptest::prelude::Rng as _;
use proptest::test_runner::{RngAlgorithm, TestRng};

#[path = "../../../fuzz/targets.rs"]
mod targets;

/// Pieces that a mutation inserts: what parsers of these formats decide by.
const TOKENS: [&[u8]; 36] = [
    b"\r\n",
    b"\r",
    b"\n",
    b"\0",
    b" ",
    b"\t",
    b":",
    b";",
    b",",
    b"=",
    b"\"",
    b"\\",
    b"%2e",
    b"..",
    b"//",
    b"0\r\n\r\n",
    b"5\r\nhello\r\n",
    b";x=\"y\"",
    b"content-length: 5\r\n",
    b"transfer-encoding: chunked\r\n",
    b"host: a\r\n",
    b"HTTP/1.1",
    b"HTTP/1.0",
    b"PROXY TCP4 ",
    b"\xff",
    b"\x7f",
    b"[::1]",
    b"_",
    b"\"\"",
    b"/32",
    b"&key=",
    b"\nhushhush,x,pro\n",
    b"sha256:",
    b"\\*",
    b"~*",
    b"*",
];
/// Bytes of an input at most.
const MAX_INPUT: usize = 4 << 10;

/// Asserts the target of each input of its corpus, and of mutations.
fn fuzz(name: &str) {
    let (_, target) =
        targets::TARGETS.iter().find(|(known, _)| *known == name).expect("a target of that name");
    let corpus = corpus(name);
    let check = |input: &[u8]| {
        if catch_unwind(AssertUnwindSafe(|| target(input))).is_err() {
            panic!("{name} fails on b\"{}\"", input.escape_ascii());
        }
    };
    corpus.iter().for_each(|input| check(input));
    let number = |variable: &str| std::env::var(variable).ok().and_then(|number| number.parse::<u64>().ok());
    let seed = number("TOLLGATE_FUZZ_SEED").unwrap_or(0);
    let seconds = Duration::from_secs(number("TOLLGATE_FUZZ_SECONDS").unwrap_or(1));
    let mut random = Random::new(seed);
    let begun = Instant::now();
    while begun.elapsed() < seconds {
        (0..50).for_each(|_| check(&random.mutated(&corpus)));
    }
}

/// The inputs of a target's folder; at least one.
fn corpus(name: &str) -> Vec<Vec<u8>> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("fuzz/corpus").join(name);
    let entries = std::fs::read_dir(&folder).unwrap_or_else(|error| panic!("{}: {error}", folder.display()));
    let mut paths: Vec<PathBuf> = entries.map(|entry| entry.expect("it can be listed").path()).collect();
    paths.sort();
    assert!(!paths.is_empty(), "{} has no inputs", folder.display());
    paths.iter().map(|path| std::fs::read(path).expect("it can be read")).collect()
}

struct Random(TestRng);

impl Random {
    fn new(seed: u64) -> Self {
        let seed = [seed.to_le_bytes(); 4].concat();
        Self(TestRng::from_seed(RngAlgorithm::ChaCha, &seed))
    }

    fn below(&mut self, bound: usize) -> usize {
        usize::try_from(self.0.next_u64() % bound.max(1) as u64).unwrap_or(0)
    }

    /// An input of the corpus, changed in a few places.
    fn mutated(&mut self, corpus: &[Vec<u8>]) -> Vec<u8> {
        let mut input = corpus[self.below(corpus.len())].clone();
        for _ in 0..=self.below(6) {
            let at = self.below(input.len() + 1);
            let end = (at + 1 + self.below(16)).min(input.len());
            match self.below(8) {
                0 if at < input.len() => input[at] = u8::try_from(self.below(256)).unwrap_or(0),
                1 if at < input.len() => input[at] ^= 1 << self.below(8),
                2 if at < end => drop(input.drain(at..end)),
                3 if at < end => {
                    let piece = input[at..end].to_vec();
                    let place = self.below(input.len());
                    input.splice(place..place, piece);
                }
                4 => input.truncate(at),
                5 => {
                    let other = &corpus[self.below(corpus.len())];
                    let from = self.below(other.len());
                    input.truncate(at);
                    input.extend_from_slice(&other[from..]);
                }
                6 => input.insert(at, u8::try_from(self.below(256)).unwrap_or(0)),
                _ => {
                    let token = TOKENS[self.below(TOKENS.len())];
                    input.splice(at..at, token.iter().copied());
                }
            }
        }
        input.truncate(MAX_INPUT);
        input
    }
}

/// A test for each target.
macro_rules! fuzz_tests {
    ($($name:ident)*) => {
        $(#[test]
        fn $name() {
            fuzz(stringify!($name));
        })*

        #[test]
        fn each_target_has_a_test_and_a_binary() {
            let names: Vec<_> = targets::TARGETS.iter().map(|(name, _)| *name).collect();
            assert_eq!(names, [$(stringify!($name)),*]);
            for name in names {
                let path = Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("fuzz/fuzz_targets/{name}.rs"));
                assert!(path.exists(), "{} is missing", path.display());
            }
        }
    };
}

fuzz_tests! {
    request_head response_head request_body response_body trailers proxy_preamble http2_head path client_address
    traceparent redis_reply gateway_toml explain credentials consumers_file networks_file value_pattern token
    key_set measured_body log_line field_map rate_limit_call http3_stream quic_message
}
