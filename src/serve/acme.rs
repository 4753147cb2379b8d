//! Orders certificates from an authority when they are due, and shows the new ones to clients.
//!
//! One task of the control thread does it, one order after the other. For example, it finds that the certificate for
//! `example.com` has a third of its lifetime left, takes the lock of the state directory and that of the fleet, orders,
//! publishes the answers to the challenges, and installs what the authority has issued. Where `[acme]` is missing, it
//! waits for a reload.

mod account;
mod fleet;
mod installation;
mod orders;

use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use crate::acme::runtime::AcmeRuntime;
use crate::clock::Clock;
use crate::plan::Plan;
use crate::shared::Shared;
use fleet::FleetStore;
use orders::Orders;

/// How often it looks what is due: a step of the clock is noticed as soon.
const TICK: Duration = Duration::from_secs(1);

/// The certificates of the first plan, which is not active yet.
pub(super) fn first(plan: &Plan, clock: &Clock) -> AcmeRuntime {
    let runtime = AcmeRuntime::default();
    attach(&runtime, plan, clock);
    runtime
}

/// Gives the certificates of a plan that is not active yet what is shown for them.
pub(super) fn attach(runtime: &AcmeRuntime, plan: &Plan, clock: &Clock) {
    if let (Some(settings), Some(tls)) = (&plan.acme, &plan.server.tls) {
        let wanted: Vec<_> = tls.acme().collect();
        runtime.attach(settings, &wanted, clock.wall_now());
    }
}

/// Runs until the process ends. Needs the control thread's local runtime around it.
pub(super) async fn run(shared: Arc<Shared>) {
    let mut reloads = shared.control.config_status.clone();
    let mut orders: Option<Orders> = None;
    loop {
        let plan = shared.plan.load_full();
        let settings = plan.acme.as_ref().filter(|_| has_names(&plan));
        let Some(settings) = settings else {
            forget_fleet(&shared, orders.take());
            if reloads.changed().await.is_err() {
                return;
            }
            continue;
        };
        let is_same = |orders: &Orders| {
            orders.settings == *settings && orders.store_settings() == plan.store.shared.as_ref()
        };
        let mut present = match orders.take() {
            Some(present) if is_same(&present) => present,
            last => {
                forget_fleet(&shared, last);
                let store = plan.store.shared.as_ref();
                let fleet =
                    store.map(|store| FleetStore::open(&shared, &plan, Arc::clone(store), settings.secret));
                Orders::new(Arc::clone(&shared), Arc::clone(settings), fleet.map(Rc::new))
            }
        };
        present.turn(&plan).await;
        orders = Some(present);
        tokio::select! {
            changed = reloads.changed() => if changed.is_err() { return },
            () = tokio::time::sleep(TICK) => {}
        }
    }
}

/// What other gateways were asked for is not answered any more: the shared store is another one, or there is none.
fn forget_fleet(shared: &Shared, last: Option<Orders>) {
    if last.is_some() {
        drop(last);
        shared.acme.challenges.set_fleet(Vec::new(), shared.clock.wall_now());
    }
}

fn has_names(plan: &Plan) -> bool {
    plan.server.tls.as_ref().is_some_and(|tls| tls.acme().next().is_some())
}
