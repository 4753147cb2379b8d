//! What is due now, and one order after the other.

use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use tokio::time::{Instant, timeout};

use super::account::AccountKeeper;
use super::fleet::FleetStore;
use super::installation::{adopt, moment, save};
use crate::acme::certificate::StoredCertificate;
use crate::acme::http::AuthorityClient;
use crate::acme::live::{LiveCertificate, LiveSource, LiveStatus};
use crate::acme::order::{OrderFailure, PendingOrder};
use crate::acme::renewal_info::{self, ASKED_EVERY};
use crate::acme::schedule::FailedOrders;
use crate::acme::settings::AcmeSettings;
use crate::acme::state::{StateDirectory, StateLock};
use crate::clock::{self, micros};
use crate::limit::units::Micros;
use crate::limit::wall_clock::WallTime;
use crate::plan::Plan;
use crate::shared::{Life, Shared};
use crate::store::redis::settings::RedisSettings;

/// The longest time of an order.
const LONGEST_ORDER: Duration = Duration::from_secs(300);
/// The most orders in a row that end with a rejected nonce.
const NONCE_TRIES: usize = 4;
/// How often a certificate is written that could not be written.
const SAVED_EVERY: Duration = Duration::from_secs(60);
/// How often the certificates of the fleet are looked for.
const LOOKED_EVERY: Duration = Duration::from_secs(30);
/// The shortest time between two certificates for the same names.
const SHORTEST_USE: Micros = Micros(10 * Micros::SECOND.0);

/// Orders with these settings.
pub(super) struct Orders {
    shared: Arc<Shared>,
    pub(super) settings: Arc<AcmeSettings>,
    fleet: Option<Rc<FleetStore>>,
    state: StateDirectory,
    client: AuthorityClient,
    unsaved_account: Option<Vec<u8>>,
    /// When certificates were last saved, and looked for.
    saved: Option<Instant>,
    looked: Option<Instant>,
    /// What was logged that lasts.
    said: Option<String>,
}

/// How an order ended without a certificate.
enum NoCertificate {
    Failed(OrderFailure),
    /// It is made later, and is no failure.
    Waits(&'static str),
}

impl From<OrderFailure> for NoCertificate {
    fn from(failure: OrderFailure) -> Self {
        Self::Failed(failure)
    }
}

impl Orders {
    pub(super) fn new(
        shared: Arc<Shared>,
        settings: Arc<AcmeSettings>,
        fleet: Option<Rc<FleetStore>>,
    ) -> Self {
        let (state, client) = (StateDirectory::new(&settings), AuthorityClient::new(&settings));
        Self {
            shared,
            settings,
            fleet,
            state,
            client,
            unsaved_account: None,
            saved: None,
            looked: None,
            said: None,
        }
    }

    /// The settings of the shared store, if there is one.
    pub(super) fn store_settings(&self) -> Option<&Arc<RedisSettings>> {
        self.fleet.as_ref().map(|fleet| &fleet.settings)
    }

    /// Does what is due now.
    pub(super) async fn turn(&mut self, plan: &Plan) {
        let live: Vec<_> =
            plan.server.tls.iter().flat_map(|tls| tls.acme()).filter_map(|one| one.live()).collect();
        if is_over(&mut self.saved, SAVED_EVERY) {
            live.iter().for_each(|live| save(live, &self.state, false));
        }
        if self.fleet.as_ref().is_some_and(|fleet| fleet.has_keys())
            && is_over(&mut self.looked, LOOKED_EVERY)
        {
            for live in &live {
                self.look(live).await;
            }
        }
        for live in live {
            if self.is_draining() {
                return;
            }
            self.ask_for_suggestion(live).await;
            if self.is_due(live) {
                self.order(live).await;
            }
        }
    }

    fn is_draining(&self) -> bool {
        *self.shared.life.borrow() == Life::Draining
    }

    fn now(&self) -> WallTime {
        self.shared.clock.wall_now()
    }

    fn is_due(&self, live: &LiveCertificate) -> bool {
        let now = self.now();
        live.update(|status| {
            status.failed.follow(now);
            let is_fresh = status.installed.is_some_and(|at| at <= now && now.since(at) < SHORTEST_USE);
            !is_fresh && status.next_order(now) <= now
        })
    }

    /// Takes the certificate that another gateway of the fleet has got.
    async fn look(&self, live: &Arc<LiveCertificate>) -> bool {
        let Some(fleet) = self.fleet.as_ref().filter(|fleet| fleet.has_keys()) else { return false };
        let name = certificate_name(&self.state.id(&live.names));
        let Ok(Some(pem)) = fleet.get(&name).await else { return false };
        let found = String::from_utf8(pem).ok().and_then(|pem| StoredCertificate::from_pem(&pem).ok());
        let is_adopted = found.is_some_and(|found| adopt(live, found, &self.state, self.now()));
        if is_adopted {
            let until = moment(live.validity().end);
            tracing::info!(
                "certificate for {}: taken from the shared store, valid until {until}",
                live.names.join(", ")
            );
            save(live, &self.state, true);
        }
        is_adopted
    }

    /// Asks the authority when to renew, if it is time to.
    async fn ask_for_suggestion(&self, live: &LiveCertificate) {
        let (now, status) = (self.now(), live.status());
        let Some(id) = status.certificate.id.filter(|_| status.source == LiveSource::Authority) else {
            return;
        };
        // A clock that was set back by more than a day does not keep it from asking.
        let is_ahead = status.suggestion_due > now.plus(Micros(2 * 86_400 * Micros::SECOND.0));
        if now < status.suggestion_due && !is_ahead {
            return;
        }
        let again = match self.suggestion(&id, status.jitter).await {
            Some((suggested, again)) => {
                live.update(|status| status.suggested = Some(suggested));
                again
            }
            None => ASKED_EVERY,
        };
        live.update(|status| status.suggestion_due = now.plus(micros(again)));
    }

    /// What the authority suggests; `None`: nothing, or it cannot be asked.
    async fn suggestion(&self, id: &str, draw: f64) -> Option<(WallTime, Duration)> {
        if self.client.seen().renewal_info.is_none() {
            self.client.get(&self.settings.directory).await.ok()?;
        }
        let url = self.client.seen().renewal_info?;
        let suggested = renewal_info::suggested(&self.client, &url, id, draw).await;
        suggested
            .inspect_err(|fault| tracing::debug!("the authority suggests no time to renew: {fault}"))
            .ok()
    }

    /// Orders a certificate, unless another process or gateway does.
    async fn order(&mut self, live: &Arc<LiveCertificate>) {
        let Some(_lock) = self.lock_state() else { return };
        if self.state.certificate(&live.names).is_some_and(|found| {
            let is_newer = found.pem != live.status().certificate.pem;
            is_newer && adopt(live, found, &self.state, self.now())
        }) {
            tracing::info!("certificate for {}: another process has got one", live.names.join(", "));
            return;
        }
        let Some(fleet) = self.fleet.clone() else {
            let ended = self.attempt(live, None).await;
            return self.note(live, ended).await;
        };
        let lock = match fleet.lock().await {
            Ok(Some(lock)) => lock,
            Ok(None) => return,
            Err(_) => return self.say("orders of certificates wait: the shared store is unavailable"),
        };
        if !self.waits_for_fleet(live, &fleet).await {
            let ended = self.attempt(live, Some(&fleet)).await;
            self.note(live, ended).await;
        }
        fleet.unlock(lock).await;
    }

    /// Whether another gateway has got the certificate, or has failed so lately that none may order.
    async fn waits_for_fleet(&self, live: &Arc<LiveCertificate>, fleet: &FleetStore) -> bool {
        if self.look(live).await {
            return true;
        }
        let now = self.now();
        match fleet.failed_orders(&self.state.id(&live.names)).await {
            Ok(Some(failed)) if failed.next(now) > now => {
                live.update(|status| status.failed = failed);
                true
            }
            Ok(_) => false,
            Err(_) => true,
        }
    }

    /// `None`: another process orders. A state directory that cannot be locked is one that no other process uses either.
    fn lock_state(&mut self) -> Option<Option<StateLock>> {
        match self.state.lock() {
            Ok(Some(lock)) => Some(Some(lock)),
            Ok(None) => None,
            Err(error) => {
                self.say(&format!("the state directory of `[acme]` cannot be used: {error}"));
                Some(None)
            }
        }
    }

    /// Logs what lasts, once.
    fn say(&mut self, text: &str) {
        if self.said.as_deref() != Some(text) {
            tracing::warn!("{text}");
            self.said = Some(text.to_owned());
        }
    }

    /// An order, bounded in time. The answers to its challenges end with it, and so it does when the process drains.
    async fn attempt(
        &mut self,
        live: &Arc<LiveCertificate>,
        fleet: Option<&FleetStore>,
    ) -> Result<StoredCertificate, NoCertificate> {
        let mut life = self.shared.life.clone();
        let shared = Arc::clone(&self.shared);
        let ended = tokio::select! {
            ended = timeout(LONGEST_ORDER, self.get_despite_nonces(live, fleet)) => ended.unwrap_or_else(|_| {
                Err(OrderFailure::of(format!("it took longer than {LONGEST_ORDER:?}")).into())
            }),
            _ = life.wait_for(|life| *life == Life::Draining) => Err(NoCertificate::Waits("the process ends")),
        };
        shared.acme.challenges.set_own(Vec::new(), shared.clock.wall_now());
        if let Some(fleet) = fleet {
            fleet.withdraw().await;
        }
        ended
    }

    /// Gets a certificate from the authority. An order that ends with a rejected nonce is made again, without a wait.
    async fn get_despite_nonces(
        &mut self,
        live: &Arc<LiveCertificate>,
        fleet: Option<&FleetStore>,
    ) -> Result<StoredCertificate, NoCertificate> {
        for _ in 1..NONCE_TRIES {
            match self.get(live, fleet).await {
                Err(NoCertificate::Failed(failure)) if failure.is_nonce => {}
                ended => return ended,
            }
        }
        self.get(live, fleet).await
    }

    /// Gets a certificate from the authority.
    async fn get(
        &mut self,
        live: &Arc<LiveCertificate>,
        fleet: Option<&FleetStore>,
    ) -> Result<StoredCertificate, NoCertificate> {
        self.client.forget_wish();
        let mut keeper = AccountKeeper {
            settings: &self.settings,
            state: &self.state,
            fleet: fleet.filter(|fleet| fleet.has_keys()),
            unsaved: &mut self.unsaved_account,
        };
        let account = keeper.account(&self.client).await?;
        let status = live.status();
        let replaced = status.certificate.id.filter(|_| status.source == LiveSource::Authority);
        let challenge = self.settings.challenge;
        let begun =
            PendingOrder::begin(&account, &self.client, &live.names, challenge, replaced.as_deref()).await;
        if begun.as_ref().is_err_and(|failure| failure.has_no_account) {
            keeper.forget().await;
        }
        let pending = begun?;
        self.shared.acme.challenges.set_own(pending.answers.clone(), self.shared.clock.wall_now());
        if let Some(fleet) = fleet {
            let published = fleet.publish(&pending.answers).await;
            published.map_err(|_| NoCertificate::Waits("the shared store is unavailable"))?;
        }
        let issued = pending.finish().await?;
        issued
            .check(&live.names, self.shared.clock.wall_now())
            .map_err(|fault| OrderFailure::of(format!("the authority's certificate is not used: {fault}")))?;
        Ok(issued)
    }

    /// Shows and keeps what was issued, or notes the failure.
    async fn note(&mut self, live: &Arc<LiveCertificate>, ended: Result<StoredCertificate, NoCertificate>) {
        let (names, now) = (live.names.join(", "), self.now());
        match ended {
            Ok(issued) => {
                let (issuer, until) = (issued.issuer.clone(), moment(issued.validity.end));
                let pem = issued.pem.clone();
                let next = LiveStatus::new(issued, LiveSource::Authority);
                live.install(LiveStatus { is_unsaved: true, installed: Some(now), ..next });
                self.shared.metrics.count_order(true);
                self.said = None;
                tracing::info!("certificate for {names}: issued by {issuer}, valid until {until}");
                save(live, &self.state, true);
                self.keep_failures(live, &FailedOrders::default()).await;
                if let Some(fleet) = self.fleet.as_ref().filter(|fleet| fleet.has_keys()) {
                    let name = certificate_name(&self.state.id(&live.names));
                    if fleet.put(&name, pem.as_bytes(), None).await.is_err() {
                        tracing::warn!(
                            "certificate for {names}: the shared store does not have it: it is unavailable"
                        );
                    }
                }
            }
            Err(NoCertificate::Waits(why)) => {
                self.say(&format!("certificate for {names}: the order waits: {why}"))
            }
            Err(NoCertificate::Failed(failure)) => {
                let OrderFailure { text, wish, .. } = failure;
                let failed = live.update(|status| {
                    status.failed.fail(now, text.clone(), wish, fastrand::f64());
                    status.failed.clone()
                });
                self.shared.metrics.count_order(false);
                let (count, next) = (failed.count, moment(failed.next(now)));
                tracing::warn!(
                    "certificate for {names}: order failed, {count} in a row, next at {next}: {text}"
                );
                self.keep_failures(live, &failed).await;
            }
        }
    }

    async fn keep_failures(&mut self, live: &LiveCertificate, failed: &FailedOrders) {
        if let Err(error) = self.state.write_failed_orders(&live.names, failed) {
            self.say(&format!("failed orders cannot be written to {}: {error}", self.state.path().display()));
        }
        if let Some(fleet) = &self.fleet {
            fleet.set_failed_orders(&self.state.id(&live.names), failed).await;
        }
    }
}

/// The name of a certificate in the shared store.
fn certificate_name(id: &str) -> String {
    format!("certificate-{id}")
}

/// Whether so much time has passed since the moment, which is now then.
fn is_over(since: &mut Option<Instant>, span: Duration) -> bool {
    let is_over = since.is_none_or(|since| since.elapsed() >= span);
    if is_over {
        *since = Some(clock::now());
    }
    is_over
}
