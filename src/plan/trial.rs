//! `trial` of a limit: the share of its keys for which it is enforced. For the others it is in shadow.

use super::key_share::KeyShare;
use super::{Limit, Mode};
use crate::route::MatchedRequest;
use crate::route::client::ClientRule;
use crate::route::key::{KeyFault, PathForm};

/// The share of a limit's keys for which it is enforced.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Trial {
    keys: KeyShare,
}

impl Trial {
    /// A share from 0 to 1 of the keys of the limit `name`. Two limits choose different keys.
    pub fn new(share: f64, name: &str) -> Self {
        Self { keys: KeyShare::new(share, &["trial of ", name]) }
    }

    /// The share, from 0 to 1.
    pub fn share(&self) -> f64 {
        self.keys.share()
    }

    /// The share as text: `5 %`.
    pub fn percent(&self) -> String {
        self.keys.percent()
    }
}

impl Limit {
    /// Whether it is enforced for a request: that depends on the request's key in a trial.
    #[inline]
    pub fn mode_of(&self, matched: MatchedRequest<'_>) -> Mode {
        match &self.trial {
            Some(trial) if !trial.keys.has(&self.key, matched) => Mode::Shadow,
            _ => self.mode,
        }
    }

    /// The same for the key of these values: see [`Key::owner_of`](crate::route::key::Key::owner_of).
    ///
    /// # Errors
    ///
    /// As [`Key::owner_of`](crate::route::key::Key::owner_of).
    pub fn mode_of_values(
        &self,
        values: &[String],
        rule: &ClientRule,
        paths: PathForm,
    ) -> Result<Mode, KeyFault> {
        let Some(trial) = &self.trial else { return Ok(self.mode) };
        let hash = self.key.owner_of(values, &trial.keys.hash_key, rule, paths)?;
        Ok(if trial.keys.covers(hash.0) { self.mode } else { Mode::Shadow })
    }
}
