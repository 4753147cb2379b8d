//! All pools of one worker, and the clients of upstreams that use them.

use std::cell::RefCell;
use std::collections::HashMap;
use std::rc::Rc;
use std::sync::Arc;

use super::http2::{Http2Pool, MAX_HTTP2_CONNECTIONS};
use super::pool::EndpointPool;
use super::server_registry::{ServerRegistry, ServerStates};
use super::{UpstreamClient, UpstreamServer};
use crate::clock;
use crate::plan::{Endpoint, Protocol, Upstream, UpstreamIndex};

/// All pools of one worker, by server, so that connections outlive a reload.
#[derive(Debug, Default)]
pub struct Pools {
    endpoints: RefCell<PoolsByServer>,
    /// Those of copies of requests, which take no connection of other requests.
    mirrors: RefCell<PoolsByServer>,
}

type PoolsByServer = HashMap<UpstreamServer, Rc<EndpointPool>>;

impl Pools {
    /// The client of every upstream of a plan, in order. Pools of servers that the plan no longer names are dropped.
    pub fn adopt(
        &self,
        upstreams: &[Arc<Upstream>],
        registry: &ServerRegistry,
        workers: usize,
    ) -> Vec<Rc<UpstreamClient>> {
        let states_of = |upstream: &Upstream| registry.states(upstream);
        adopt(&self.endpoints, upstreams.iter(), (registry, states_of), workers)
    }

    /// The clients by which copies of requests are sent, in the order of [`Plan::mirrors`](crate::plan::Plan::mirrors).
    pub fn adopt_mirrors(
        &self,
        mirrors: &[(UpstreamIndex, Arc<Upstream>)],
        registry: &ServerRegistry,
        workers: usize,
    ) -> Vec<Rc<UpstreamClient>> {
        let states_of = |upstream: &Upstream| registry.observed_states(upstream);
        let upstreams = mirrors.iter().map(|(_, upstream)| upstream);
        adopt(&self.mirrors, upstreams, (registry, states_of), workers)
    }

    /// Closes connections that were unused for too long. Called about once a second.
    pub fn expire(&self) {
        let now = clock::now();
        for pools in [&self.endpoints, &self.mirrors] {
            pools.borrow().values().for_each(|pool| pool.expire(now));
        }
    }
}

/// The client of each upstream, in order, with the pools that stay.
fn adopt<'u>(
    pools: &RefCell<PoolsByServer>,
    upstreams: impl Iterator<Item = &'u Arc<Upstream>>,
    (registry, states_of): (&ServerRegistry, impl Fn(&Upstream) -> ServerStates),
    workers: usize,
) -> Vec<Rc<UpstreamClient>> {
    let mut old = pools.take();
    let mut kept = HashMap::new();
    let clients = upstreams
        .map(|upstream| {
            let limit = registry.connection_limit(upstream);
            let pool_of = |endpoint: &Endpoint| {
                let key = (Arc::clone(&upstream.name), Arc::clone(&endpoint.authority));
                let host_address = registry.names.address_of(endpoint);
                let last = old.remove(&key).or_else(|| kept.get(&key).cloned());
                let http2_pool = http2_pool(upstream, workers);
                let last = last.filter(|pool| {
                    pool.leads_to(endpoint, &host_address, limit.as_ref(), http2_pool.as_ref())
                });
                let fresh = || Rc::new(EndpointPool::new(endpoint, host_address, limit.clone(), http2_pool));
                let pool = last.unwrap_or_else(fresh);
                kept.insert(key, Rc::clone(&pool));
                pool
            };
            Rc::new(UpstreamClient::new(Arc::clone(upstream), pool_of, states_of(upstream), workers))
        })
        .collect();
    pools.replace(kept);
    clients
}

/// One worker's HTTP/2 connections to one server: the worker's share of the upstream's connection limit.
fn http2_pool(upstream: &Upstream, workers: usize) -> Option<Http2Pool> {
    let sharers = workers.max(1) * upstream.endpoints().len().max(1);
    let max =
        upstream.max_connections.map_or(MAX_HTTP2_CONNECTIONS, |limit| (limit.connections / sharers).max(1));
    (upstream.protocol == Protocol::Http2).then(|| Http2Pool::new(max, upstream.idle_timeout))
}
