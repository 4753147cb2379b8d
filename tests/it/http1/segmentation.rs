//! Where the network cuts a message must not matter: the codec says the same of it in one piece and in any others.
//!
//! Everything of [`corpus`] is read whole, in two pieces cut at every byte, byte by byte, and in three pieces cut at random;
//! every second generated message in three at every byte.

use crate::harness::corpus::{self, Failures, answer, cuts, request, shown, written};
use tollgate::http1::scanner::HeadScanner;

/// Cuts into three at random of each message that was not generated.
const PAIRS: usize = 30;

/// In two at every byte, in three at random, byte by byte.
fn all_cuts(length: usize) -> Vec<Vec<usize>> {
    let two = cuts::in_two(length).into_iter().map(|index| vec![index]);
    let three = cuts::pairs(length, length as u64, PAIRS).into_iter().map(|pair| pair.to_vec());
    two.chain(three).chain([cuts::bytewise(length)]).collect()
}

/// In three, so that each byte is cut at in half as many readings; and byte by byte.
fn half_the_cuts(length: usize) -> Vec<Vec<usize>> {
    let half = length / 2;
    let three = (1..=half).map(|index| vec![index, index + half]);
    let three = three.map(|indices| indices.into_iter().filter(|&index| index < length).collect());
    three.chain([cuts::bytewise(length)]).collect()
}

/// Reads `bytes` in all those pieces, and notes the first reading that differs from that of the whole.
fn compare<R: PartialEq + std::fmt::Debug>(
    (name, bytes): (&str, &[u8]),
    cuts: impl Fn(usize) -> Vec<Vec<usize>>,
    failures: &mut Failures,
    read: impl Fn(&[&[u8]]) -> R,
) {
    let whole = read(&[bytes]);
    for indices in cuts(bytes.len()) {
        let cut = read(&cuts::segments(bytes, &indices));
        if cut != whole {
            let indices = if indices.len() > 2 { "byte by byte".to_owned() } else { format!("{indices:?}") };
            failures.note(|| {
                let bytes = shown(bytes);
                format!("{name}, cut at {indices}:\n{bytes}\nwhole: {whole:?}\ncut:   {cut:?}")
            });
            return;
        }
    }
}

#[test]
fn requests_of_the_corpus_read_the_same_under_every_cut() {
    let mut failures = Failures::default();
    for sent in corpus::requests() {
        compare((&sent.name, &sent.bytes), all_cuts, &mut failures, request::read);
    }
    failures.assert_none();
}

#[test]
fn answers_of_the_corpus_read_the_same_under_every_cut() {
    let mut failures = Failures::default();
    for answered in corpus::answers() {
        compare((&answered.name, &answered.bytes), all_cuts, &mut failures, |pieces| {
            answer::read(answered.method, pieces)
        });
    }
    failures.assert_none();
}

#[test]
fn generated_requests_read_the_same_under_every_cut() {
    let mut failures = Failures::default();
    for sent in corpus::generated_requests(0, 2) {
        compare((&sent.name, &sent.bytes), half_the_cuts, &mut failures, request::read);
    }
    failures.assert_none();
}

#[test]
fn generated_answers_read_the_same_under_every_cut() {
    let mut failures = Failures::default();
    for answered in corpus::generated_answers(0, 2) {
        compare((&answered.name, &answered.bytes), half_the_cuts, &mut failures, |pieces| {
            answer::read(answered.method, pieces)
        });
    }
    failures.assert_none();
}

/// The generator makes both kinds, and not nearly all of one.
#[test]
fn about_half_of_what_is_generated_is_good() {
    let requests =
        corpus::generated_requests(0, 1).filter(|sent| request::read(&[&sent.bytes]).is_good()).count();
    let answers = corpus::generated_answers(0, 1)
        .filter(|answered| answer::read(answered.method, &[&answered.bytes]).complete)
        .count();
    for good in [requests, answers] {
        assert!(
            (3_500..7_500).contains(&good),
            "{requests} requests, {answers} answers of {}",
            corpus::GENERATED
        );
    }
}

#[test]
fn what_is_written_as_good_is_read_whole_and_what_is_bad_is_refused() {
    let mut failures = Failures::default();
    for bytes in written::good_requests() {
        let read = request::read(&[&bytes]);
        if !read.is_good() {
            failures.note(|| format!("a good request:\n{}\n{read:?}", shown(&bytes)));
        }
    }
    for bytes in written::bad_requests() {
        let read = request::read(&[&bytes]);
        if read.refused.is_none() {
            failures.note(|| format!("a bad request:\n{}\n{read:?}", shown(&bytes)));
        }
    }
    for (method, bytes) in written::good_answers() {
        let read = answer::read(method, &[&bytes]);
        if !read.complete || read.length != bytes.len() {
            failures.note(|| format!("a good answer:\n{}\n{read:?}", shown(&bytes)));
        }
    }
    for (method, bytes) in written::bad_answers() {
        let read = answer::read(method, &[&bytes]);
        // To switch protocols is the exchange's to refuse, which knows whether the client asked for it.
        let unasked = read.head.as_ref().is_some_and(|head| head.status == 101);
        if !read.refused && !unasked {
            failures.note(|| format!("a bad answer:\n{}\n{read:?}", shown(&bytes)));
        }
    }
    failures.assert_none();
}

/// Behind an error nothing is read, however well it goes on.
#[test]
fn an_error_is_final() {
    let mut failures = Failures::default();
    for body in written::BAD_CHUNKS {
        for mut decoder in [request::decoder(), answer::decoder()] {
            if (0..4).all(|_| decode_all(&mut decoder, body.as_bytes()).is_ok()) {
                continue;
            }
            for good in ["0\r\n\r\n", "\r\n", "\n", "a", ";x\r\n", "1\r\na\r\n0\r\n\r\n"] {
                if decoder.decode(good.as_bytes()).is_ok() {
                    failures.note(|| format!("behind {body:?} the chunk decoder takes {good:?}"));
                }
            }
        }
    }
    for head in written::BAD {
        let (mut scanner, mut bytes) = (HeadScanner::default(), head.as_bytes().to_vec());
        if scanner.advance(&bytes, request::MAX_HEAD).is_err() {
            for more in ["\r\n", "GET / HTTP/1.1\r\nhost: a\r\n\r\n", "\r\n\r\n"] {
                bytes.extend_from_slice(more.as_bytes());
                if scanner.advance(&bytes, request::MAX_HEAD).is_ok() {
                    failures.note(|| format!("{:?} is a head for the scanner now", shown(&bytes)));
                }
            }
        }
    }
    failures.assert_none();
}

fn decode_all(decoder: &mut tollgate::http1::chunks::ChunkDecoder, mut bytes: &[u8]) -> Result<(), ()> {
    while !bytes.is_empty() && !decoder.is_done() {
        let (taken, _) = decoder.decode(bytes).map_err(|_| ())?;
        bytes = &bytes[taken..];
    }
    Ok(())
}
