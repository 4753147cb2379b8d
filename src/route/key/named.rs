//! Keys named by the values of their parts, as users write them.

use std::borrow::Cow;
use std::fmt::Write as _;
use std::net::IpAddr;

use super::{Key, KeyFault, KeySecret, KeyText, LABEL_END, Part};
use crate::limit::units::Fingerprint;
use crate::route::client::ClientRule;
use crate::route::folding::folded_text;
use crate::route::mask::Masking;
use crate::route::network_prefixes::NetworkPrefixes;
use crate::route::part_value::write_value;
use crate::route::path::{Path, PathMatching};
use crate::route::pattern::bare_host;

/// The name of the single key of a limit with the key `global` alone.
pub const EVERYONE: &str = "everyone";

/// The form of paths in requests.
#[derive(Clone, Copy, Debug, Default)]
pub struct PathForm {
    /// The setting `path_matching`.
    pub matching: PathMatching,
    /// Whether the routes treat `//` as `/`.
    pub merge_slashes: bool,
}

impl Key {
    /// The owner that [`Self::claim`] returns for a request with these values: one a part, but none for `global`. A key
    /// of `global` alone is named [`EVERYONE`].
    ///
    /// An address may be any of the client's network. A header has one value. Hosts and paths are converted to the form
    /// that they have in requests.
    ///
    /// # Errors
    ///
    /// There are more or fewer values than parts; or a value is invalid for its part.
    pub fn owner_of(
        &self,
        values: &[String],
        secret: &KeySecret,
        rule: &ClientRule,
        paths: PathForm,
    ) -> Result<Fingerprint, KeyFault> {
        let mut text = KeyText::new(secret);
        let mut rest = self.without_name(values)?.iter();
        for part in &self.parts {
            match part {
                Part::Global => text.tag(part.tag()),
                // As many values as there are parts.
                _ => text.named(part, &self.in_case(rest.next().map_or("", String::as_str)), rule, paths)?,
            }
        }
        Ok(text.fingerprint())
    }

    /// The label of the key with these values, which [`Self::owner_of`] has accepted: equal to that of
    /// [`Self::write_label`] for a request with these values.
    pub fn label_of(&self, values: &[String], rule: &ClientRule, masking: Masking<'_>) -> String {
        let mut label = String::new();
        let parts = self.parts.iter().filter(|part| **part != Part::Global);
        let max = self.max_label_part();
        for (part, value) in parts.zip(values) {
            let value = &*self.in_case(value);
            match (part, value.parse::<IpAddr>()) {
                // Writing to a `String` cannot fail.
                (Part::Ip, Ok(address)) => _ = write!(label, "{}", rule.client(address).network),
                (Part::Network(prefixes), Ok(address)) => {
                    _ = write!(label, "{}", network(*prefixes, rule, address));
                }
                _ => write_value(value, part.masking(masking), part.is_authorization(), max, &mut label),
            }
            label.push(LABEL_END);
        }
        label
    }

    /// A value as it is compared.
    fn in_case<'v>(&self, value: &'v str) -> Cow<'v, str> {
        if self.folds_case { Cow::Owned(folded_text(value)) } else { Cow::Borrowed(value) }
    }

    /// The values, if their number is right.
    fn without_name<'v>(&self, values: &'v [String]) -> Result<&'v [String], KeyFault> {
        let parts: Vec<_> = self.parts.iter().filter(|part| **part != Part::Global).collect();
        if parts.is_empty() && values.iter().map(String::as_str).eq([EVERYONE]) {
            return Ok(&[]);
        }
        if !parts.is_empty() && parts.len() == values.len() {
            return Ok(values);
        }
        if parts.is_empty() {
            return KeyFault::new("the limit has one key for all", format!("write `{EVERYONE}`"));
        }
        let parts: Vec<_> = parts.iter().map(|part| format!("`{part}`")).collect();
        let help = format!("write one for each part, with `,` between them: {}", parts.join(", "));
        let message = match values.len() {
            1 => "the key has another number of parts than 1".to_owned(),
            count => format!("the key has another number of parts than {count}"),
        };
        KeyFault::new(message, help)
    }
}

impl KeyText<'_> {
    /// Writes the same as a request with this value.
    fn named(
        &mut self,
        part: &Part,
        value: &str,
        rule: &ClientRule,
        paths: PathForm,
    ) -> Result<(), KeyFault> {
        if value.is_empty() {
            let help = "requests that lack a part have keys that are known by their id only";
            return KeyFault::new(format!("the value of `{part}` is empty"), help);
        }
        match part {
            Part::Ip => match value.parse::<IpAddr>() {
                Ok(address) => self.address(part.tag(), rule.client(address).network),
                Err(_) => return not_a("an address", value),
            },
            Part::Network(prefixes) => match value.parse::<IpAddr>() {
                Ok(address) => self.address(part.tag(), network(*prefixes, rule, address)),
                Err(_) => return not_a("an address", value),
            },
            Part::Header(_) => self.value(part.tag(), value.as_bytes()),
            Part::Host => self.bytes(part.tag(), bare_host(value).as_bytes()),
            Part::Path => match Path::parse(value, paths.matching) {
                Ok(path) => self.bytes(part.tag(), path.folded(paths.merge_slashes).as_bytes()),
                Err(_) => return not_a("a path", value),
            },
            Part::Cookie(_)
            | Part::Query(_)
            | Part::Method
            | Part::Route
            | Part::Upstream
            | Part::Global
            | Part::TlsSubject
            | Part::ClientCertificate(_)
            | Part::Country
            | Part::AutonomousSystem
            | Part::Consumer
            | Part::ConsumerColumn(_)
            | Part::JwtClaim(_)
            | Part::JsonMember(_)
            | Part::FormField(_)
            | Part::Descriptor(_) => {
                self.bytes(part.tag(), value.as_bytes());
            }
        }
        Ok(())
    }
}

fn network(prefixes: NetworkPrefixes, rule: &ClientRule, address: IpAddr) -> IpAddr {
    let client = rule.client(address);
    prefixes.network(client.address, client.network)
}

fn not_a<T>(what: &str, value: &str) -> Result<T, KeyFault> {
    KeyFault::new(
        format!("`{}` is not {what}", value.escape_debug()),
        "values are percent-encoded, each by itself",
    )
}
