//! `require` of a route: what its consumers must be or have.

use std::fmt;

use crate::route::claim::ClaimPath;
use crate::route::consumers::Consumer;

/// What a route requires of a consumer: one of these values. `Display` writes it for people: `` `scope`: `orders:read` ``.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ConsumerRequirement {
    /// Of what.
    pub attribute: Attribute,
    /// The values, at least one, of which one suffices.
    pub any_of: Box<[Box<str>]>,
}

/// What a consumer is or has.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Attribute {
    /// Its name.
    Name,
    /// Its tier.
    Tier,
    /// A claim of its token, or the column of this name of its file.
    Claim(ClaimPath),
}

impl Attribute {
    /// The words for the name and the tier.
    pub const CONSUMER: &'static str = "consumer";
    /// See [`Self::CONSUMER`].
    pub const TIER: &'static str = "tier";

    /// The claim, if it is one.
    pub fn claim(&self) -> Option<&ClaimPath> {
        match self {
            Self::Claim(claim) => Some(claim),
            Self::Name | Self::Tier => None,
        }
    }
}

impl ConsumerRequirement {
    /// Whether the consumer has one of the values.
    pub fn is_met_by(&self, consumer: Consumer<'_>) -> bool {
        self.any_of.iter().any(|wanted| match &self.attribute {
            Attribute::Name => consumer.name() == &**wanted,
            Attribute::Tier => consumer.tier() == Some(wanted),
            Attribute::Claim(claim) => consumer.has(claim, wanted),
        })
    }

    /// The scope that a client has to ask its issuer for (RFC 6750 §3), if it is a single one.
    pub(super) fn scope(&self) -> Option<&str> {
        let [only] = &*self.any_of else { return None };
        // Of RFC 6749 §3.3.
        let is_scope = |byte: u8| matches!(byte, b' ' | b'!' | b'#'..=b'[' | b']'..=b'~');
        let is_sent = self.attribute.claim().is_some_and(ClaimPath::is_scope) && only.bytes().all(is_scope);
        is_sent.then_some(only)
    }
}

impl fmt::Display for Attribute {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Name => Self::CONSUMER,
            Self::Tier => Self::TIER,
            Self::Claim(claim) => claim.as_str(),
        })
    }
}

impl fmt::Display for ConsumerRequirement {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let values: Vec<_> = self.any_of.iter().map(|value| format!("`{}`", value.escape_debug())).collect();
        write!(f, "`{}`: {}", self.attribute, values.join(" or "))
    }
}
