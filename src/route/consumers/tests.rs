use super::*;

fn table(digests: bool) -> Consumers {
    let columns = ["name", "tier", "org"].map(str::to_owned).to_vec();
    Consumers::new(columns, 0, Some(1), digests, [7; 16])
}

#[test]
fn a_consumer_is_found_by_any_of_its_keys() {
    let mut table = table(false);
    table.push(KeyForm::Plain(b"k1"), ["acme", "pro", "a"].into_iter()).unwrap();
    table.push(KeyForm::Plain(b"k2"), ["acme", "pro"].into_iter()).unwrap();
    table.push(KeyForm::Plain(b"k3"), ["zeta", "", ""].into_iter()).unwrap();
    assert_eq!(table.push(KeyForm::Plain(b"k2"), ["other"].into_iter()), Err(1));
    let table = table.finish(2);
    let found = |key: &str| {
        let consumer = table.find(key.as_bytes())?;
        Some((consumer.name(), consumer.tier(), consumer.column("org"), consumer.column("none")))
    };
    assert_eq!(found("k1"), Some(("acme", Some("pro"), Some("a"), None)));
    assert_eq!(found("k2"), Some(("acme", Some("pro"), None, None)));
    assert_eq!(found("k3"), Some(("zeta", None, None, None)));
    assert_eq!((found("k4"), found(""), found("k1 "), found("K1")), (None, None, None, None));
    assert_eq!((table.keys(), table.names()), (3, 2));
    assert_eq!(table.named("zeta").unwrap().name(), "zeta");
}

#[test]
fn plain_keys_and_digests_stand_side_by_side() {
    let mut table = table(true);
    // echo -n secret | sha256sum
    let digest = "sha256:2bb80d537b1da3e38bd30361aa855686bde0eacd7162fef6a25fe97bf527a25b";
    table.push(KeyForm::parse(digest).unwrap(), ["hashed"].into_iter()).unwrap();
    table.push(KeyForm::parse("open-key").unwrap(), ["plain"].into_iter()).unwrap();
    assert_eq!(table.push(KeyForm::Plain(b"secret"), ["again"].into_iter()), Err(0));
    let table = table.finish(2);
    assert_eq!(table.find(b"secret").unwrap().name(), "hashed");
    assert_eq!(table.find(b"open-key").unwrap().name(), "plain");
    assert!(table.find(digest.as_bytes()).is_none(), "the digest itself is no key");
    for prefix in ["SHA256:", "Sha256:"] {
        let text = digest.replace("sha256:", prefix);
        assert!(matches!(KeyForm::parse(&text), Ok(KeyForm::Digest(_))), "{text}");
        assert!(KeyForm::may_have_digests(format!("key,name\n{text},a\n").as_bytes()), "{text}");
    }
    assert!(!KeyForm::may_have_digests(b":,a256:,sha256"));
    assert!(table.find(&[0; 32]).is_none());
}

#[test]
fn backends_get_visible_ascii() {
    assert_eq!(encoded("acme-1/~\""), "acme-1/~\"");
    assert_eq!(encoded("Müller & Söhne"), "M%C3%BCller%20&%20S%C3%B6hne");
    assert_eq!(encoded("50%\u{7f}\t"), "50%25%7F%09");
}

/// What backends get is encoded where the name or the tier of any row needs it.
#[test]
fn a_name_or_a_tier_of_any_row_is_encoded() {
    for (row, name, tier) in [
        (["a%1", "pro", "x"], "a%251", "pro"),
        (["acme", "p%1", "x"], "acme", "p%251"),
        (["acme", "pro", "%1"], "acme", "pro"),
    ] {
        let mut table = table(false);
        table.push(KeyForm::Plain(b"k1"), row.into_iter()).unwrap();
        let table = table.finish(1);
        let consumer = table.find(b"k1").unwrap();
        assert_eq!((&*consumer.encoded_name(), consumer.encoded_tier().as_deref()), (name, Some(tier)));
    }
}

#[test]
fn malformed_digests_are_refused() {
    for text in
        ["sha256:", "sha256:00", &format!("sha256:{}", "g".repeat(64)), &format!("sha256:{}", "é".repeat(32))]
    {
        assert_eq!(KeyForm::parse(text).err(), Some(KeyTextFault::Digest), "{text}");
    }
    assert!(matches!(KeyForm::parse("SHA256:00"), Err(KeyTextFault::Digest)));
    assert!(matches!(KeyForm::parse("sha256-a"), Ok(KeyForm::Plain(_))));
}

#[test]
fn a_key_has_eight_characters_or_more() {
    for key in ["1234567", "k", "\u{e9}\u{e9}\u{e9}\u{e9}\u{e9}\u{e9}\u{e9}"] {
        assert_eq!(KeyForm::parse(key).err(), Some(KeyTextFault::Short), "{key}");
    }
    assert!(KeyForm::parse("\u{e9}2345678").is_ok());
}
