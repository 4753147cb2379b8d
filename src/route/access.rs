//! Access by address: `allow` and `deny`.

use std::sync::Arc;

use super::client::ClientAddress;
use super::networks::Networks;

/// The networks that may send requests. The default denies none.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct AddressRules {
    /// Only clients in these networks; `None`: all.
    pub allow: Option<Arc<Networks>>,
    /// No client in these networks.
    pub deny: Option<Arc<Networks>>,
}

/// Why a client is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AddressRefusal {
    /// `deny` names its network.
    Denied,
    /// `allow` does not name its network, or the client is not identified.
    NotAllowed,
}

impl AddressRefusal {
    /// For the access log.
    pub fn error(self) -> &'static str {
        match self {
            Self::Denied => "address_denied",
            Self::NotAllowed => "address_not_allowed",
        }
    }

    /// For operators. Clients are not told which rule refuses them.
    pub fn words(self) -> &'static str {
        match self {
            Self::Denied => "`deny` names the client's network",
            Self::NotAllowed => "`allow` does not name the client's network, or the client is not identified",
        }
    }
}

impl AddressRules {
    /// Whether there are no rules.
    pub fn is_empty(&self) -> bool {
        self.allow.is_none() && self.deny.is_none()
    }

    /// Checks a client. `deny` wins. A client that is not identified is in no network of `allow`, since its address is
    /// that of a proxy, which many clients share.
    ///
    /// # Errors
    ///
    /// The rule that refuses it.
    #[inline]
    pub fn check(&self, client: ClientAddress) -> Result<(), AddressRefusal> {
        if self.deny.as_ref().is_some_and(|deny| deny.contain(client.address)) {
            return Err(AddressRefusal::Denied);
        }
        match &self.allow {
            Some(allow) if !(client.identified && allow.contain(client.address)) => {
                Err(AddressRefusal::NotAllowed)
            }
            _ => Ok(()),
        }
    }
}
