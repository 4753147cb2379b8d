//! What a fleet shares of its certificates. Without a shared store there is nothing.

use std::time::Duration;

use super::counters::Location;
use super::{Counters, Unreachable};

impl Counters {
    /// The value with this name, if there is one.
    ///
    /// # Errors
    ///
    /// The shared store is unavailable.
    pub async fn acme_value(&self, name: &str) -> Result<Option<Vec<u8>>, Unreachable> {
        match &self.location {
            Location::Memory => Ok(None),
            Location::Shared(client) => client.acme_value(name).await,
        }
    }

    /// Sets the value with this name, for `kept` or for ever; an empty one removes it.
    ///
    /// # Errors
    ///
    /// The shared store is unavailable.
    pub async fn set_acme_value(
        &self,
        name: &str,
        value: &[u8],
        kept: Option<Duration>,
    ) -> Result<(), Unreachable> {
        match &self.location {
            Location::Memory => Ok(()),
            Location::Shared(client) => client.set_acme_value(name, value, kept).await,
        }
    }

    /// Takes the lock with this name for `kept`, or keeps it for so long. Returns whether `holder` has it.
    ///
    /// # Errors
    ///
    /// The shared store is unavailable.
    pub async fn lock_acme(&self, name: &str, holder: &str, kept: Duration) -> Result<bool, Unreachable> {
        match &self.location {
            Location::Memory => Ok(true),
            Location::Shared(client) => client.lock_acme(name, holder, kept).await,
        }
    }

    /// Gives the lock back. Where the store is unavailable it ends by itself.
    pub async fn unlock_acme(&self, name: &str, holder: &str) {
        if let Location::Shared(client) = &self.location {
            client.unlock_acme(name, holder).await.ok();
        }
    }
}
