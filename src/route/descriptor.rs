//! Descriptors: what another proxy says of a request when it asks whether the request may pass.
//!
//! For example, Envoy sends `generic_key = search, remote_address = 192.0.2.1`. A limit with the key
//! `descriptor:remote_address` counts by that address.

use std::fmt::Write as _;

use percent_encoding::percent_decode_str;

use super::mask::Masking;

/// An entry of a descriptor. Envoy sends the bytes of headers as they are, so that neither has to be UTF-8.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DescriptorEntry {
    /// What the value is: `remote_address`.
    pub name: Vec<u8>,
    /// The value. It may be empty.
    pub value: Vec<u8>,
}

/// Names whose values are no secrets: addresses of clients, and texts of the other proxy's own configuration.
const SHOWN: [&str; 8] = [
    "destination_cluster",
    "generic_key",
    "header_match",
    "masked_remote_address",
    "method",
    "path",
    "remote_address",
    "source_cluster",
];

/// Whether the values of entries with this name may be shown whole.
pub fn is_shown(name: &str) -> bool {
    SHOWN.binary_search(&name).is_ok()
}

/// Appends entries as the access log has them: `generic_key=search,remote_address=192.0.2.1`. Values that may be secret
/// are masked, except where `is_known`: these stand in the configuration.
pub fn write_entries(
    entries: &[DescriptorEntry],
    is_known: impl Fn(&DescriptorEntry) -> bool,
    masking: Masking<'_>,
    out: &mut String,
) {
    for (index, entry) in entries.iter().enumerate() {
        if index > 0 {
            out.push(',');
        }
        let name = String::from_utf8_lossy(&entry.name);
        let value = String::from_utf8_lossy(&entry.value);
        write_encoded(&name, out);
        out.push('=');
        if masking.is_off() || is_shown(&name) || is_known(entry) {
            write_encoded(&value, out);
        } else {
            let mut masked = String::new();
            masking.write(&value, false, &mut masked);
            // A path has no `#`: there begins what no server gets to see.
            write_encoded(&masked.replace(" #", "~"), out);
        }
    }
}

/// Reads what [`write_entries`] wrote: masked values stay masked, and distinct ones differ. `None`: it is no such text.
pub fn read_entries(text: &str) -> Option<Vec<DescriptorEntry>> {
    let entry = |text: &str| {
        let (name, value) = text.split_once('=')?;
        let decoded = |text: &str| percent_decode_str(text).collect::<Vec<u8>>();
        Some(DescriptorEntry { name: decoded(name), value: decoded(value) })
    };
    text.split(',').map(entry).collect()
}

/// Appends text. Characters with a meaning in the text of a call, or in a line of a log, are percent-encoded.
pub fn write_encoded(text: &str, out: &mut String) {
    for character in text.chars() {
        let is_plain = character.is_ascii_alphanumeric() || "._-:~@/…".contains(character);
        if is_plain {
            out.push(character);
            continue;
        }
        let mut bytes = [0; 4];
        for byte in character.encode_utf8(&mut bytes).bytes() {
            // Writing to a `String` cannot fail.
            let _ = write!(out, "%{byte:02X}");
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::route::mask::ShortIds;
    use crate::route::secret::KeySecret;

    #[test]
    fn shown_names_are_sorted() {
        assert!(SHOWN.is_sorted());
        assert!(is_shown("remote_address") && !is_shown("api_key"));
    }

    fn entry(name: &str, value: &str) -> DescriptorEntry {
        DescriptorEntry { name: name.into(), value: value.into() }
    }

    #[test]
    fn secrets_are_masked_unless_the_configuration_has_them() {
        let ids = ShortIds::new(&KeySecret::Process([0; 16]));
        let entries =
            [entry("remote_address", "192.0.2.1"), entry("api_key", "secret"), entry("plan", "gold, a=b")];
        let mut text = String::new();
        write_entries(&entries, |entry| entry.name == b"plan", Masking::Ids(&ids), &mut text);
        assert!(text.starts_with("remote_address=192.0.2.1,api_key=…~"), "{text}");
        assert!(text.ends_with(",plan=gold%2C%20a%3Db") && !text.contains("secret"), "{text}");
    }

    proptest! {
        #[test]
        fn entries_come_back_as_they_were(
            entries in prop::collection::vec((".{0,8}", ".{0,8}"), 1..5),
        ) {
            let entries: Vec<_> = entries.iter().map(|(name, value)| entry(name, value)).collect();
            let mut text = String::new();
            write_entries(&entries, |_| true, Masking::NoIds, &mut text);
            prop_assert_eq!(read_entries(&text), Some(entries));
        }
    }
}
