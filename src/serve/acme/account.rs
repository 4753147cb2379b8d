//! The account with the authority: from the shared store, the state directory, or a new one.

use instant_acme::Account;

use super::fleet::FleetStore;
use crate::acme::http::AuthorityClient;
use crate::acme::order::{self, OrderFailure};
use crate::acme::settings::AcmeSettings;
use crate::acme::state::StateDirectory;

/// The name of the account in the shared store.
fn name(settings: &AcmeSettings) -> String {
    let hash = blake3::hash(settings.directory.as_bytes()).to_hex();
    format!("account-{}", &hash[..16])
}

/// Where an account is kept, as far as it could be.
pub(super) struct AccountKeeper<'a> {
    pub(super) settings: &'a AcmeSettings,
    pub(super) state: &'a StateDirectory,
    /// The shared store, if keys are there.
    pub(super) fleet: Option<&'a FleetStore>,
    /// The account that could not be written.
    pub(super) unsaved: &'a mut Option<Vec<u8>>,
}

impl AccountKeeper<'_> {
    /// The account. A stored one that cannot be used is replaced.
    pub(super) async fn account(&mut self, client: &AuthorityClient) -> Result<Account, OrderFailure> {
        let stored = self.stored().await;
        let found = match order::account(self.settings, client, stored.as_deref()).await {
            Err(failure) if failure.has_no_account => {
                self.forget().await;
                order::account(self.settings, client, None).await
            }
            found => found,
        };
        let (account, new) = found?;
        if let Some(new) = new {
            tracing::info!("a new account with {} was made", self.settings.directory);
            self.keep(new).await;
        }
        Ok(account)
    }

    async fn stored(&self) -> Option<Vec<u8>> {
        let fleet = match self.fleet {
            Some(fleet) => fleet.get(&name(self.settings)).await.ok().flatten(),
            None => None,
        };
        fleet.or_else(|| self.unsaved.clone()).or_else(|| self.state.account())
    }

    async fn keep(&mut self, account: Vec<u8>) {
        if let Some(fleet) = self.fleet {
            fleet.put(&name(self.settings), &account, None).await.ok();
        }
        *self.unsaved = None;
        if let Err(error) = self.state.write_account(&account) {
            let path = self.state.path().display();
            tracing::warn!("the account cannot be written to {path}, and ends with this process: {error}");
            *self.unsaved = Some(account);
        }
    }

    /// The authority does not know it, or it is damaged.
    pub(super) async fn forget(&mut self) {
        *self.unsaved = None;
        self.state.set_account_aside();
        if let Some(fleet) = self.fleet {
            fleet.put(&name(self.settings), &[], None).await.ok();
        }
    }
}
