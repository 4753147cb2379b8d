//! Reads the admin API, and sends the changes that the operator confirmed.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use http::{Method, StatusCode};
use percent_encoding::{NON_ALPHANUMERIC, utf8_percent_encode};
use serde::de::DeserializeOwned;
use tokio::task::JoinSet;

use super::snapshot::{GatewaySnapshot, GatewayState, ReadError};
use super::table::KeyTarget;
use super::target::AdminTarget;
use crate::admin_api::bans::{BanList, BanRequest};
use crate::admin_api::changes::ProblemDetails;
use crate::admin_api::fleet::FleetReport;
use crate::admin_api::keys::{KeyList, KeyOrder, KeyState};
use crate::admin_api::limits::LimitList;
use crate::admin_api::refusals::RefusalList;
use crate::admin_api::routes::RouteList;
use crate::admin_api::samples::SampleList;
use crate::admin_api::status::StatusReport;

/// Fields may differ in another version.
const VERSION: &str = env!("CARGO_PKG_VERSION");
/// The timeout of a response.
const TIMEOUT: Duration = Duration::from_secs(4);
/// The timeout of the response to a change; the gateway may have to call a shared store.
const CHANGE_TIMEOUT: Duration = Duration::from_secs(16);

/// What a round of requests asks for, besides what each round asks for.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct RoundOptions {
    /// The limit whose keys are listed. `None`: the one that refuses most.
    pub(super) limit: Option<String>,
    /// The number by which the gateway chooses the keys with most: `by` of the API.
    pub(super) order: KeyOrder,
    /// The key that the operator looks at.
    pub(super) look: Option<KeyTarget>,
}

/// A change of one key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct KeyChange {
    pub(super) target: KeyTarget,
    pub(super) kind: ChangeKind,
}

/// The change.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum ChangeKind {
    /// A new counter, with the whole allowance.
    Reset,
    /// A ban, for a duration as the API takes it.
    Ban(String),
    /// The end of a ban.
    Unban,
}

/// Reads one gateway in whole, and of several the state and the rates of each.
pub(super) struct GatewayReader {
    targets: Vec<Arc<AdminTarget>>,
    /// The index of the one that is read in whole.
    shown: usize,
    runtime: tokio::runtime::Runtime,
    snapshot: GatewaySnapshot,
    /// The configuration that the routes are of.
    routes_of: Option<(String, u64)>,
    /// Of each gateway, if there are several.
    gateways: Vec<GatewayState>,
}

impl GatewayReader {
    /// Nothing is read yet.
    pub(super) fn new(targets: Vec<AdminTarget>) -> io::Result<Self> {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        let gateways = match targets.as_slice() {
            [_] => Vec::new(),
            several => several.iter().map(|target| GatewayState::new(target.address())).collect(),
        };
        let targets = targets.into_iter().map(Arc::new).collect();
        Ok(Self {
            targets,
            shown: 0,
            runtime,
            snapshot: GatewaySnapshot::default(),
            routes_of: None,
            gateways,
        })
    }

    /// The next of several gateways is read in whole from now on.
    pub(super) fn next_gateway(&mut self) {
        if self.targets.len() > 1 {
            self.shown = (self.shown + 1) % self.targets.len();
            (self.snapshot, self.routes_of) = (GatewaySnapshot::default(), None);
        }
    }

    /// Asks for all that the views show. The requests of a step are sent together.
    pub(super) fn round(&mut self, options: &RoundOptions) -> Result<GatewaySnapshot, ReadError> {
        let Self { targets, shown, runtime, snapshot, routes_of, gateways } = self;
        let Some(target) = targets.get(*shown) else { return Ok(self.snapshot.clone()) };
        let read = runtime.block_on(async {
            let mut states = JoinSet::new();
            for (index, (target, state)) in targets.iter().zip(gateways.drain(..)).enumerate() {
                let shown = index == *shown;
                states.spawn(read_state(index, Arc::clone(target), GatewayState { shown, ..state }));
            }
            let read = read(target, snapshot, routes_of, options).await;
            let mut states = states.join_all().await;
            states.sort_by_key(|(index, _)| *index);
            gateways.extend(states.into_iter().map(|(_, state)| state));
            read
        });
        snapshot.gateways.clone_from(gateways);
        // Of several gateways, one that is away is told in its row.
        match read {
            Err(ReadError::Away(_)) if gateways.iter().any(|state| state.status.is_ok()) => {}
            read => read?,
        }
        Ok(self.snapshot.clone())
    }

    /// Sends a change, and returns the key after it.
    pub(super) fn change(&self, change: &KeyChange) -> Result<KeyState, ReadError> {
        let path = key_path(&change.target);
        let (method, path, body) = match &change.kind {
            ChangeKind::Reset => (Method::DELETE, path, String::new()),
            ChangeKind::Ban(span) => {
                let request = serde_json::to_string(&BanRequest { span: span.clone() });
                (Method::POST, format!("{path}/ban"), request.unwrap_or_default())
            }
            ChangeKind::Unban => (Method::DELETE, format!("{path}/ban"), String::new()),
        };
        let Some(target) = self.targets.get(self.shown) else { return Err(ReadError::Away(String::new())) };
        self.runtime.block_on(ask(target, method, &path, body, CHANGE_TIMEOUT))
    }
}

async fn read(
    target: &AdminTarget,
    snapshot: &mut GatewaySnapshot,
    routes_of: &mut Option<(String, u64)>,
    options: &RoundOptions,
) -> Result<(), ReadError> {
    let since = |seq: Option<u64>| seq.map(|seq| format!("?since={seq}")).unwrap_or_default();
    let samples = format!("samples{}", since(snapshot.samples.since()));
    let refusals = format!("refusals{}", since(snapshot.refusals.since()));
    let (status, samples, limits, refusals): (StatusReport, SampleList, LimitList, RefusalList) = tokio::try_join!(
        get(target, "status"),
        get(target, &samples),
        get(target, "limits"),
        get(target, &refusals)
    )?;
    snapshot.samples.add(samples);
    snapshot.refusals.add(refusals);
    snapshot.limits = limits.limits;
    let listed = snapshot.listed_limit(options.limit.as_deref()).map(ToOwned::to_owned);
    let config = (status.config.version.clone(), status.config.loaded.to_bits());
    let routes_changed = routes_of.as_ref() != Some(&config);
    let (keys, bans, routes, fleet, look) = tokio::try_join!(
        async {
            let Some(limit) = &listed else { return Ok(None) };
            get::<KeyList>(target, &keys_path(limit, options.order)).await.map(Some)
        },
        async {
            let has_bans = status.bans > 0 || status.shadow_bans > 0;
            if has_bans { get(target, "bans?top=1000").await } else { Ok(BanList::default()) }
        },
        async { if routes_changed { get::<RouteList>(target, "routes").await.map(Some) } else { Ok(None) } },
        async {
            match get::<FleetReport>(target, "fleet").await {
                // The shared store is unreachable, as the status tells.
                Err(ReadError::Refused(503, _)) => Ok(FleetReport { shared: true, ..FleetReport::default() }),
                fleet => fleet,
            }
        },
        async {
            let Some(key) = &options.look else { return Ok(None) };
            match get::<KeyState>(target, &key_path(key)).await {
                // The key's limit may be gone after a reload: there is nothing to show.
                Err(ReadError::Refused(..)) => Ok(None),
                state => state.map(Some),
            }
        },
    )?;
    snapshot.status = status;
    (snapshot.keys, snapshot.bans, snapshot.fleet, snapshot.look) = (keys, bans, fleet, look);
    if let Some(routes) = routes {
        snapshot.routes = routes.routes;
        *routes_of = Some(config);
    }
    Ok(())
}

/// Asks for the state and the rates of a gateway.
async fn read_state(
    index: usize,
    target: Arc<AdminTarget>,
    mut state: GatewayState,
) -> (usize, GatewayState) {
    let target = &*target;
    let samples =
        state.samples.since().map_or_else(|| "samples".to_owned(), |seq| format!("samples?since={seq}"));
    let read = async { tokio::try_join!(get(target, "status"), get::<SampleList>(target, &samples)) };
    state.status = read.await.map(|(status, samples)| {
        state.samples.add(samples);
        status
    });
    (index, state)
}

fn keys_path(limit: &str, order: KeyOrder) -> String {
    let (limit, by) = (utf8_percent_encode(limit, NON_ALPHANUMERIC), order.as_str());
    format!("limits/{limit}/keys?top=100&by={by}")
}

/// The parts of a key are separated by `,`, and each is percent-encoded.
fn key_path(key: &KeyTarget) -> String {
    let encoded = |text: &str| utf8_percent_encode(text, NON_ALPHANUMERIC).to_string();
    let parts: Vec<_> = key.path.split(',').map(|part| encoded(part.trim())).collect();
    format!("limits/{}/keys/{}", encoded(&key.limit), parts.join(","))
}

async fn get<T: DeserializeOwned>(target: &AdminTarget, path: &str) -> Result<T, ReadError> {
    ask(target, Method::GET, path, String::new(), TIMEOUT).await
}

async fn ask<T: DeserializeOwned>(
    target: &AdminTarget,
    method: Method,
    path: &str,
    body: String,
    timeout: Duration,
) -> Result<T, ReadError> {
    let path = format!("/api/v1/{path}");
    let sent = target.client.send(method, &path, target.authorization.as_deref(), body, timeout).await;
    let (status, body) = sent.map_err(|error| ReadError::Away(error.to_string()))?;
    if status == StatusCode::OK {
        let unusable = |error| {
            ReadError::Away(format!("the response is not that of a gateway of version {VERSION}: {error}"))
        };
        return serde_json::from_slice(&body).map_err(unusable);
    }
    let problem: ProblemDetails = serde_json::from_slice(&body).unwrap_or_default();
    let reason = if problem.detail.is_empty() {
        status.canonical_reason().unwrap_or_default().to_owned()
    } else {
        problem.detail
    };
    Err(ReadError::Refused(status.as_u16(), reason))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_in_a_path_is_encoded_by_part() {
        let target =
            |path: &str| KeyTarget { limit: "a b".to_owned(), path: path.to_owned(), text: String::new() };
        assert_eq!(
            key_path(&target("192.0.2.7, /search?x")),
            "limits/a%20b/keys/192%2E0%2E2%2E7,%2Fsearch%3Fx"
        );
        assert_eq!(key_path(&target("id:00ff")), "limits/a%20b/keys/id%3A00ff");
        assert_eq!(keys_path("é", KeyOrder::Units), "limits/%C3%A9/keys?top=100&by=units");
    }
}
