use proptest::collection::vec;
use proptest::prelude::*;

use super::*;

fn written(words: impl FnOnce(&mut Command<'_>)) -> Vec<u8> {
    let mut out = BytesMut::from("before");
    Command::write(&mut out, words);
    out.split_off(6).to_vec()
}

#[test]
fn a_command_counts_its_words_itself() {
    let command = written(|command| {
        command.word(b"EVALSHA");
        command.parts(&[b"a", b"", b"bc"]);
        command.number(42);
    });
    assert_eq!(command, b"*3\r\n$7\r\nEVALSHA\r\n$3\r\nabc\r\n$2\r\n42\r\n");
    let many = written(|command| (0..1_000).for_each(|_| command.word(b"")));
    assert!(many.starts_with(b"*1000\r\n$0\r\n\r\n") && many.len() == 7 + 6 * 1_000);
}

#[test]
fn values_are_read_one_after_the_other() {
    let list = |values: &[RespValue]| RespValue::List(values.to_vec());
    let text = |text: &str| RespValue::Bytes(text.as_bytes().into());
    let integers = |integers: &[i64]| RespValue::Integers(integers.into());
    for (bytes, value) in [
        ("*3\r\n:7\r\n:-1\r\n:0\r\n", integers(&[7, -1, 0])),
        ("*0\r\n", integers(&[])),
        (":9223372036854775807\r\n", RespValue::Integer(i64::MAX)),
        (":-9223372036854775808\r\n", RespValue::Integer(i64::MIN)),
        ("+OK\r\n", text("OK")),
        ("$4\r\n\r\n\r\n\r\n", text("\r\n\r\n")),
        ("$-1\r\n", RespValue::Nothing),
        ("*-1\r\n", RespValue::Nothing),
        ("*2\r\n:1\r\n$1\r\na\r\n", list(&[RespValue::Integer(1), text("a")])),
        ("*2\r\n*1\r\n:1\r\n*0\r\n", list(&[integers(&[1]), integers(&[])])),
        ("-OOM it is full\r\n", RespValue::Refused(ServerError::read(b"OOM it is full"))),
    ] {
        let two = [bytes, "+more\r\n"].concat();
        assert_eq!(read(two.as_bytes()), Ok(Some((value, bytes.len()))), "{bytes}");
        for cut in 0..bytes.len() {
            assert_eq!(read(&bytes.as_bytes()[..cut]), Ok(None), "{bytes} cut at {cut}");
        }
    }
}

#[test]
fn what_is_no_value_is_refused_at_once() {
    for (bytes, fault) in [
        ("HTTP/1.1 400", MalformedReply::Mark(b'H')),
        (":\r\n", MalformedReply::Number),
        (":+1\r\n", MalformedReply::Number),
        (":9223372036854775808\r\n", MalformedReply::Number),
        ("$-2\r\n", MalformedReply::Number),
        ("$1\r\nab\r\n", MalformedReply::End),
        ("+a\rb", MalformedReply::End),
        ("$1048577\r\n", MalformedReply::TooLarge),
        ("*1048577\r\n", MalformedReply::TooLarge),
    ] {
        assert_eq!(read(bytes.as_bytes()), Err(fault), "{bytes}");
    }
    assert_eq!(read("*1\r\n".repeat(10).as_bytes()), Err(MalformedReply::TooLarge));
    let many = ["*70000\r\n", &":1\r\n".repeat(70_000)].concat();
    assert_eq!(read(many.as_bytes()), Err(MalformedReply::TooLarge));
    assert_eq!(read(&vec![b'+'; MAX_BYTES]), Err(MalformedReply::TooLarge));
    assert_eq!(read(&vec![b'+'; MAX_BYTES - 1]), Ok(None));
}

fn values() -> impl Strategy<Value = RespValue> {
    let leaf = prop_oneof![
        vec(any::<i64>(), 0..20).prop_map(|integers| RespValue::Integers(integers.into())),
        any::<i64>().prop_map(RespValue::Integer),
        vec(any::<u8>(), 0..40).prop_map(|bytes| RespValue::Bytes(bytes.into())),
        Just(RespValue::Nothing),
        "[A-Z]{1,12}( [a-z0-9:. ]{0,30})?"
            .prop_map(|line| RespValue::Refused(ServerError::read(line.as_bytes()))),
    ];
    leaf.prop_recursive(4, 60, 6, |inner| {
        // A list of nothing but integers reads as `Integers`.
        vec(inner, 0..6).prop_map(|mut list| {
            list.push(RespValue::Nothing);
            RespValue::List(list)
        })
    })
}

fn encode(value: &RespValue, out: &mut Vec<u8>) {
    match value {
        RespValue::Integers(integers) => {
            out.extend(format!("*{}\r\n", integers.len()).bytes());
            integers.iter().for_each(|it| out.extend(format!(":{it}\r\n").bytes()));
        }
        RespValue::Integer(integer) => out.extend(format!(":{integer}\r\n").bytes()),
        RespValue::Bytes(bytes) => {
            out.extend(format!("${}\r\n", bytes.len()).bytes());
            out.extend_from_slice(bytes);
            out.extend_from_slice(b"\r\n");
        }
        RespValue::Nothing => out.extend_from_slice(b"$-1\r\n"),
        RespValue::List(list) => {
            out.extend(format!("*{}\r\n", list.len()).bytes());
            list.iter().for_each(|it| encode(it, out));
        }
        RespValue::Refused(ServerError::Other(code)) => out.extend(format!("-{code} x\r\n").bytes()),
        RespValue::Refused(_) => out.extend_from_slice(b"-NOSCRIPT x\r\n"),
    }
}

proptest! {
    #[test]
    fn any_value_is_read_back_and_no_part_of_it_is_taken_for_a_whole(value in values(), cut in any::<prop::sample::Index>()) {
        let mut bytes = Vec::new();
        encode(&value, &mut bytes);
        prop_assert_eq!(read(&bytes), Ok(Some((value, bytes.len()))));
        prop_assert_eq!(read(&bytes[..cut.index(bytes.len())]), Ok(None));
    }

    #[test]
    fn any_bytes_are_a_value_a_fault_or_wait_for_more(bytes in vec(prop_oneof![
        any::<u8>(), prop::sample::select(&b"*$:+-\r\n0123456789"[..])], 0..200)) {
        if let Ok(Some((_, length))) = read(&bytes) {
            prop_assert!(0 < length && length <= bytes.len());
            // What follows changes nothing.
            prop_assert_eq!(read(&bytes[..length]), read(&bytes));
        }
    }

    #[test]
    fn what_is_malformed_stays_so_whatever_follows(bytes in vec(prop::sample::select(&b"*$:+-\r\n012"[..]), 0..60)) {
        for cut in 0..bytes.len() {
            if let Err(fault) = read(&bytes[..cut]) {
                prop_assert_eq!(read(&bytes), Err(fault));
            }
        }
    }
}
