//! Active health checks. Tasks of the control thread send requests to servers, in the servers' protocol.

mod probing;

use std::collections::HashMap;
use std::sync::Arc;

use http::HeaderValue;
use tokio::task::{AbortHandle, spawn_local};
use tokio::time::{MissedTickBehavior, interval};

use super::dns::{HostAddress, ResolvedName};
use super::server_registry::ServerRegistry;
use super::server_state::ServerState;
use super::{UpstreamServer, outlier_log};
use crate::clock;
use crate::net::TlsClientConfig;
use crate::plan::health_check::HealthCheck;
use crate::plan::{Endpoint, Protocol, ProxyProtocolVersion, Upstream};
use probing::{CheckError, Prober};

/// The health-check and lookup tasks for the servers of the active plan.
#[derive(Debug, Default)]
pub struct HealthChecks {
    running: HashMap<UpstreamServer, UpstreamChecks>,
    /// The tasks that look names up.
    names: HashMap<Box<str>, (Arc<ResolvedName>, AbortHandle)>,
    /// The task that logs which servers are down.
    outage_log: Option<AbortHandle>,
}

#[derive(Debug)]
struct UpstreamChecks {
    rule: HealthCheck,
    host: Option<HeaderValue>,
    tls: Option<TlsClientConfig>,
    protocol: Protocol,
    send_proxy_protocol: Option<ProxyProtocolVersion>,
    server: Arc<ServerState>,
    task: AbortHandle,
}

impl HealthChecks {
    /// Switches to the servers of another plan: unchanged checks go on, others begin or end. Needs a local tokio
    /// runtime around it.
    pub fn adopt(&mut self, upstreams: &[Arc<Upstream>], registry: &ServerRegistry) {
        registry.adopt(upstreams);
        self.keep_up(registry.names.adopt(upstreams));
        let mut last = std::mem::take(&mut self.running);
        for upstream in upstreams {
            let Some(rule) = &upstream.health else { continue };
            for (endpoint, server) in upstream.endpoints().iter().zip(registry.states(upstream).iter()) {
                let name = (Arc::clone(&upstream.name), Arc::clone(&endpoint.authority));
                let same = |running: &UpstreamChecks| {
                    running.rule == *rule
                        && running.host == upstream.host
                        && running.tls == endpoint.tls
                        && running.protocol == upstream.protocol
                        && running.send_proxy_protocol == upstream.send_proxy_protocol
                };
                let running = match last.remove(&name) {
                    Some(running) if same(&running) => running,
                    changed => {
                        changed.inspect(|running| running.task.abort());
                        UpstreamChecks::start(
                            upstream,
                            endpoint,
                            rule,
                            server,
                            registry.names.address_of(endpoint),
                        )
                    }
                };
                self.running.insert(name, running);
            }
        }
        for ended in last.into_values() {
            ended.task.abort();
            // The server is not checked any more, so it has to count as healthy.
            ended.server.set_healthy(clock::now());
        }
        let telling =
            spawn_local(outlier_log::log_changes(outlier_log::watched(upstreams, registry))).abort_handle();
        self.outage_log.replace(telling).inspect(AbortHandle::abort);
    }

    /// Looks up these names from now on, and no others.
    fn keep_up(&mut self, names: Vec<Arc<ResolvedName>>) {
        let mut last = std::mem::take(&mut self.names);
        for name in names {
            let running = match last.remove(&name.host) {
                Some((known, task)) if Arc::ptr_eq(&known, &name) => task,
                changed => {
                    changed.inspect(|(_, task)| task.abort());
                    spawn_local(Arc::clone(&name).keep_up()).abort_handle()
                }
            };
            self.names.insert(name.host.clone(), (name, running));
        }
        last.into_values().for_each(|(_, task)| task.abort());
    }
}

impl UpstreamChecks {
    fn start(
        upstream: &Upstream,
        endpoint: &Endpoint,
        rule: &HealthCheck,
        server: &Arc<ServerState>,
        host_address: HostAddress,
    ) -> Self {
        let check = Check {
            upstream: Arc::clone(&upstream.name),
            authority: Arc::clone(&endpoint.authority),
            prober: Prober::new(upstream, endpoint, rule, host_address),
            rule: rule.clone(),
            server: Arc::clone(server),
            down_after: upstream.down_after(),
        };
        let task = spawn_local(check.run()).abort_handle();
        let (host, tls) = (upstream.host.clone(), endpoint.tls.clone());
        let &Upstream { protocol, send_proxy_protocol, .. } = upstream;
        let (rule, server) = (rule.clone(), Arc::clone(server));
        Self { rule, host, tls, protocol, send_proxy_protocol, server, task }
    }
}

/// The health check of one server.
struct Check {
    upstream: Arc<str>,
    /// The server's name.
    authority: Arc<str>,
    prober: Prober,
    rule: HealthCheck,
    server: Arc<ServerState>,
    down_after: u32,
}

impl Check {
    async fn run(self) {
        let mut streak = ConsecutiveResults::new(self.server.is_healthy());
        let mut ticks = interval(self.rule.interval);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        for turn in 0.. {
            ticks.tick().await;
            let state = self.prober.check(turn).await;
            match &state {
                Ok(()) => self.server.passed_check(clock::now(), self.rule.healthy),
                Err(_) => self.server.failed_check(),
            }
            if streak.record(state.is_ok(), &self.rule).is_some() {
                self.change(state.err());
            }
        }
    }

    /// Records that the server became healthy or unhealthy. The change is logged only here.
    fn change(&self, ill: Option<CheckError>) {
        let Self { upstream, authority, server, .. } = self;
        match ill {
            None => {
                // A passed health check counts as an answer, unless an ejection still holds.
                server.answered(clock::now());
                server.set_healthy(clock::now());
                server.set_reported_down(server.is_failing(self.down_after));
                tracing::info!("upstream `{upstream}`: {authority} is healthy again");
            }
            Some(ill) => {
                server.set_unhealthy(ill.to_string());
                server.set_reported_down(true);
                tracing::warn!("upstream `{upstream}`: {authority} is unhealthy: {ill}");
            }
        }
    }
}

/// The state derived from consecutive results. The first result alone decides; later, only the configured number of
/// equal results in a row changes the state.
#[derive(Debug)]
struct ConsecutiveResults {
    healthy: bool,
    /// Consecutive results that contradict `healthy`; `None` before the first result.
    against: Option<u32>,
}

impl ConsecutiveResults {
    fn new(healthy: bool) -> Self {
        Self { healthy, against: None }
    }

    /// Records a result. Returns the new state if it changes.
    fn record(&mut self, good: bool, rule: &HealthCheck) -> Option<bool> {
        let needed = if good { rule.healthy } else { rule.unhealthy };
        let against = match self.against {
            _ if good == self.healthy => 0,
            None => needed,
            Some(against) => against.saturating_add(1),
        };
        let changed = against >= needed;
        self.against = Some(if changed { 0 } else { against });
        self.healthy = self.healthy != changed;
        changed.then_some(self.healthy)
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::plan::health_check::Probe;

    fn changes(answers: &[bool]) -> Vec<Option<bool>> {
        let (interval, timeout) = (Duration::from_secs(5), Duration::from_secs(1));
        let (healthy, unhealthy) = (2, 3);
        let rule = HealthCheck { probe: Probe::Tcp, port: None, interval, timeout, healthy, unhealthy };
        let mut streak = ConsecutiveResults::new(true);
        answers.iter().map(|good| streak.record(*good, &rule)).collect()
    }

    #[test]
    fn so_many_answers_in_a_row_change_it() {
        let (good, bad) = (true, false);
        let answers = [good, bad, bad, good, bad, bad, bad, bad, good, bad, good, good, good];
        let mut expected = [None; 13];
        (expected[6], expected[11]) = (Some(false), Some(true));
        assert_eq!(changes(&answers), expected);
    }

    #[test]
    fn the_first_answer_alone_decides() {
        assert_eq!(changes(&[false, true, true]), [Some(false), None, Some(true)]);
        assert_eq!(changes(&[true, false]), [None, None]);
    }
}
