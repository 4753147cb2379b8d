//! The credential of an explained request: verified as that of a client is, and charged if it is wrong.
//!
//! The admin listener has one thread, so hashes and signatures are computed by the threads that clients' credentials
//! have. A wrong credential is charged to `failures` before the next one of the same client is looked at: whoever may
//! send requests to the admin listener guesses no faster than a client.

use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::net::IpAddr;
use std::sync::Arc;

use super::super::ApiError;
use crate::auth::password_lanes::Flight;
use crate::auth::passwords::PasswordCheck;
use crate::auth::runtime::CredentialVerification;
use crate::explain::{LiveCredential, PendingCredential};
use crate::limit::Verdict;
use crate::limit::units::{Cost, Fingerprint};
use crate::plan::auth::VerificationFault;
use crate::plan::{LimitIndex, Mode, Plan};
use crate::route::identity::Identity;
use crate::shared::Shared;
use crate::shared::worker_commands::KeyCommand;
use crate::store::{KeyOperation, OperationFault, OperationResult};

const FULL: &str = "too many credentials wait to be verified";
const USED_UP: &str = "the client has used up `failures`";
const NO_KEYS: &str = "the keys of the issuer were never fetched";
/// The explanation says why by itself.
const BY_SERVICE: &str = "";

type CheckedCredential = Result<Arc<Identity>, VerificationFault>;

/// Verifies the credential of an explained request.
pub(super) async fn verify(
    shared: &Shared,
    plan: &Arc<Plan>,
    pending: Option<PendingCredential>,
) -> Result<LiveCredential, ApiError> {
    // A key that is known, or none, or one that is wrong: the explanation looks it up.
    let looked_up = LiveCredential::Unverified(BY_SERVICE);
    let Some(PendingCredential { auth, verification, network, failures }) = pending else {
        return Ok(looked_up);
    };
    let failures = Failures { shared, plan, key: failures };
    let verified = match verification {
        None if failures.are_used_up().await? => return Ok(LiveCredential::Withheld(USED_UP)),
        None => {
            failures.charge().await?;
            return Ok(looked_up);
        }
        Some(CredentialVerification::Forward(_)) => return Ok(looked_up),
        Some(CredentialVerification::Remembered(identity)) => Ok(Ok(identity)),
        Some(CredentialVerification::Token(token)) if token.lacks_keys() => Err(NO_KEYS),
        Some(CredentialVerification::Token(token)) => match failures.are_used_up().await? {
            true => Err(USED_UP),
            false => {
                let verified = shared.verification.run(move || token.run()).await;
                let verified = verified.map(|token| token.map_err(VerificationFault::Token));
                failures.charged(verified.map_err(|_full| FULL)).await?
            }
        },
        Some(CredentialVerification::Password(password)) => check(password, network, &failures).await?,
    };
    Ok(match verified {
        Ok(result) => LiveCredential::Verified(auth, result),
        Err(reason) => LiveCredential::Unverified(reason),
    })
}

/// Checks a password in its client's turn.
async fn check(
    password: PasswordCheck,
    network: IpAddr,
    failures: &Failures<'_>,
) -> Result<Result<CheckedCredential, &'static str>, ApiError> {
    let passwords = &failures.shared.passwords;
    let guard = match passwords.join(password.hash()).await {
        Flight::Leader(guard) => guard,
        Flight::Result(result) => return failures.charged(Ok(result.map_err(Into::into))).await,
    };
    let mut client = DefaultHasher::new();
    network.hash(&mut client);
    // Held until the outcome is charged.
    let Ok(_turn) = passwords.turn(client.finish()).await else { return Ok(Err(FULL)) };
    if failures.are_used_up().await? {
        return Ok(Err(USED_UP));
    }
    let checked = passwords.check(&guard, password).await;
    failures.charged(checked.map(|result| result.map_err(Into::into)).map_err(|_full| FULL)).await
}

/// The limit on wrong credentials.
struct Failures<'a> {
    shared: &'a Shared,
    plan: &'a Arc<Plan>,
    /// Its index, and the key of the client; `None`: there is none, or it does not apply.
    key: Option<(LimitIndex, Fingerprint)>,
}

impl Failures<'_> {
    /// Whether the client's next wrong credential would be refused.
    async fn are_used_up(&self) -> Result<bool, OperationFault> {
        let Some((index, key_hash)) = self.key else { return Ok(false) };
        let limit = self.plan.limit(index);
        let now = self.shared.clock.now();
        if limit.refusing_ban(self.shared.store.bans(), key_hash, limit.mode == Mode::Shadow, now).is_some() {
            return Ok(true);
        }
        let decisions = self.execute(index, key_hash, KeyOperation::Look).await?.decisions;
        let denied = decisions.iter().any(|decision| matches!(decision.verdict, Verdict::Deny(_)));
        Ok(denied && limit.mode == Mode::Enforce)
    }

    /// Charges a credential that is wrong.
    async fn charged(
        &self,
        verified: Result<CheckedCredential, &'static str>,
    ) -> Result<Result<CheckedCredential, &'static str>, ApiError> {
        if let Ok(Err(_)) = verified {
            self.charge().await?;
        }
        Ok(verified)
    }

    async fn charge(&self) -> Result<(), ApiError> {
        let Some((limit, key_hash)) = self.key else { return Ok(()) };
        self.execute(limit, key_hash, KeyOperation::Charge(Cost::ONE, None)).await?;
        Ok(())
    }

    async fn execute(
        &self,
        limit: LimitIndex,
        key_hash: Fingerprint,
        operation: KeyOperation,
    ) -> Result<OperationResult, OperationFault> {
        let (plan, tier, cost) = (Arc::clone(self.plan), None, Some(Cost::ONE));
        let command = KeyCommand { plan, limit, tier, key_hash, cost, operation, in_process: false };
        match self.shared.worker_commands.execute(command.clone()).await {
            Err(OperationFault::Unreachable(_)) => {
                self.shared.worker_commands.execute(KeyCommand { in_process: true, ..command }).await
            }
            executed => executed,
        }
    }
}
