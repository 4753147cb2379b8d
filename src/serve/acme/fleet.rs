//! What the gateways of a fleet share of their certificates: the answers to challenges, failed orders, who orders now, and
//! with `secret` the account and the certificates.

use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use tokio::task::JoinHandle;
use tokio::time::{sleep, timeout};

use crate::acme::challenges::ChallengeAnswer;
use crate::acme::schedule::FailedOrders;
use crate::acme::sealed;
use crate::acme::settings::AcmeSecret;
use crate::plan::Plan;
use crate::shared::Shared;
use crate::store::redis::settings::RedisSettings;
use crate::store::{Counters, Unreachable};

/// How often the answers to challenges are read.
const READ_EVERY: Duration = Duration::from_secs(1);
/// How long the other gateways have to read them before the authority is told.
const SEEN_AFTER: Duration = Duration::from_secs(3);
/// How long answers are kept, if the gateway that orders ends.
const ANSWERS_KEPT: Duration = Duration::from_secs(600);
/// How long the lock is held without a word, and how often it is kept.
const LOCK: Duration = Duration::from_secs(60);
const KEPT_EVERY: Duration = Duration::from_secs(15);
/// How long failed orders are remembered after the longest wait.
const FAILURES_KEPT: Duration = Duration::from_secs(14 * 86_400);
/// Tries of a value that must be read or written; a timeout of the store is short.
const TRIES: usize = 5;
const BETWEEN_TRIES: Duration = Duration::from_millis(200);

const ANSWERS: &str = "challenges";
const LOCK_NAME: &str = "lock";

/// The shared store.
pub(super) struct FleetStore {
    pub(super) settings: Arc<RedisSettings>,
    counters: Rc<Counters>,
    secret: Option<AcmeSecret>,
    /// This process, as holder of the lock.
    own: String,
    reading: JoinHandle<()>,
}

/// While it lives, no other gateway of the fleet orders.
pub(super) struct FleetLock(JoinHandle<()>);

impl Drop for FleetStore {
    fn drop(&mut self) {
        self.reading.abort();
    }
}

impl Drop for FleetLock {
    fn drop(&mut self) {
        self.0.abort();
    }
}

impl FleetStore {
    /// Begins to read the answers to challenges. Needs a local runtime around it.
    pub(super) fn open(
        shared: &Arc<Shared>,
        plan: &Plan,
        settings: Arc<RedisSettings>,
        secret: Option<AcmeSecret>,
    ) -> Self {
        let counters = Rc::new(shared.store.open(plan.server.workers));
        let own = format!("{:016x}", shared.control.gateway_id);
        let reading = read_answers(Arc::clone(shared), Rc::clone(&counters), secret);
        let reading = tokio::task::spawn_local(reading);
        Self { settings, counters, secret, own, reading }
    }

    /// Whether private keys are there.
    pub(super) fn has_keys(&self) -> bool {
        self.secret.is_some()
    }

    /// Publishes the answers, and waits until the other gateways have read them.
    pub(super) async fn publish(&self, answers: &[ChallengeAnswer]) -> Result<(), Unreachable> {
        let text = serde_json::to_vec(answers).unwrap_or_default();
        self.put(ANSWERS, &text, Some(ANSWERS_KEPT)).await?;
        // Also of a gateway that seems to be alone: one that starts now is in no list yet, but may be asked.
        sleep(SEEN_AFTER).await;
        Ok(())
    }

    /// Nothing is to be answered any more.
    pub(super) async fn withdraw(&self) {
        self.put(ANSWERS, &[], None).await.ok();
    }

    /// The value with this name: unsealed, if there is a secret.
    pub(super) async fn get(&self, name: &str) -> Result<Option<Vec<u8>>, Unreachable> {
        for _ in 1..TRIES {
            if let Ok(value) = self.counters.acme_value(name).await {
                return Ok(opened(self.secret.as_ref(), name, value));
            }
            sleep(BETWEEN_TRIES).await;
        }
        self.counters.acme_value(name).await.map(|value| opened(self.secret.as_ref(), name, value))
    }

    /// Sets the value with this name, sealed if there is a secret.
    pub(super) async fn put(
        &self,
        name: &str,
        value: &[u8],
        kept: Option<Duration>,
    ) -> Result<(), Unreachable> {
        let sealed = match &self.secret {
            Some(secret) if !value.is_empty() => sealed::seal(secret, name, value).ok_or(Unreachable)?,
            _ => value.to_vec(),
        };
        for _ in 1..TRIES {
            if self.counters.set_acme_value(name, &sealed, kept).await.is_ok() {
                return Ok(());
            }
            sleep(BETWEEN_TRIES).await;
        }
        self.counters.set_acme_value(name, &sealed, kept).await
    }

    /// Has the other gateways wait. `None`: one of them orders.
    pub(super) async fn lock(&self) -> Result<Option<FleetLock>, Unreachable> {
        if !self.counters.lock_acme(LOCK_NAME, &self.own, LOCK).await? {
            return Ok(None);
        }
        let (counters, own) = (Rc::clone(&self.counters), self.own.clone());
        let keep = async move {
            loop {
                sleep(KEPT_EVERY).await;
                // If the store is away, the lock ends, and another gateway may order, too.
                counters.lock_acme(LOCK_NAME, &own, LOCK).await.ok();
            }
        };
        Ok(Some(FleetLock(tokio::task::spawn_local(keep))))
    }

    /// Lets the other gateways order.
    pub(super) async fn unlock(&self, lock: FleetLock) {
        drop(lock);
        timeout(READ_EVERY, self.counters.unlock_acme(LOCK_NAME, &self.own)).await.ok();
    }

    /// The failed orders of all gateways for the certificate with this id.
    pub(super) async fn failed_orders(&self, id: &str) -> Result<Option<FailedOrders>, Unreachable> {
        let text = self.get(&format!("attempts-{id}")).await?;
        Ok(text.and_then(|text| serde_json::from_slice(&text).ok()))
    }

    /// Tells the other gateways of failed orders, or that there are none any more.
    pub(super) async fn set_failed_orders(&self, id: &str, failed: &FailedOrders) {
        let text = match failed.count {
            0 => Vec::new(),
            _ => serde_json::to_vec(failed).unwrap_or_default(),
        };
        self.put(&format!("attempts-{id}"), &text, Some(FAILURES_KEPT)).await.ok();
    }
}

/// The content of a value, which is sealed if there is a secret. Another secret's is as if it were not there.
fn opened(secret: Option<&AcmeSecret>, name: &str, value: Option<Vec<u8>>) -> Option<Vec<u8>> {
    match secret {
        Some(secret) => sealed::open(secret, name, &value?),
        None => value,
    }
}

/// Answers what any gateway of the fleet is asked for.
async fn read_answers(shared: Arc<Shared>, counters: Rc<Counters>, secret: Option<AcmeSecret>) {
    loop {
        // If they cannot be read, the known ones stay.
        if let Ok(value) = counters.acme_value(ANSWERS).await {
            let text = opened(secret.as_ref(), ANSWERS, value);
            let answers = text.and_then(|text| serde_json::from_slice(&text).ok()).unwrap_or_default();
            shared.acme.challenges.set_fleet(answers, shared.clock.wall_now());
        }
        sleep(READ_EVERY).await;
    }
}
