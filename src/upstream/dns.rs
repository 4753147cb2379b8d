//! The addresses of servers' host names. They are looked up in the background, so that no request waits for a resolver.

use std::io;
use std::net::IpAddr;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use arc_swap::ArcSwapOption;
use dashmap::DashMap;
use tokio::net::lookup_host;
use tokio::sync::Notify;
use tokio::time::{sleep, timeout};

use crate::plan::{Endpoint, Upstream};

/// How often a name is looked up again. The system's resolver does not report how long an answer is valid.
const REFRESH: Duration = Duration::from_secs(30);
/// A name whose addresses accept no connection is looked up again, but not sooner than this after the last lookup.
const EARLIEST: Duration = Duration::from_secs(1);
/// The delay after a failed lookup. It doubles after each further failure, up to [`REFRESH`].
const RETRY: Duration = Duration::from_secs(1);

/// All host names of the process, shared by workers and health checks.
#[derive(Debug, Default)]
pub(super) struct Resolver(DashMap<Box<str>, Arc<ResolvedName>>);

impl Resolver {
    /// The address of a server. Takes a lock: called when a plan is adopted, not per request.
    pub(super) fn address_of(&self, endpoint: &Endpoint) -> HostAddress {
        if let Some(path) = &endpoint.unix_socket {
            return HostAddress::UnixSocket(Arc::clone(path));
        }
        if let Ok(address) = endpoint.host.parse() {
            return HostAddress::Address(address);
        }
        let fresh = || Arc::new(ResolvedName::new(&endpoint.host));
        HostAddress::Name(Arc::clone(&self.0.entry(endpoint.host.as_str().into()).or_insert_with(fresh)))
    }

    /// Returns the names of a plan's servers, and removes all others.
    pub(super) fn adopt(&self, upstreams: &[Arc<Upstream>]) -> Vec<Arc<ResolvedName>> {
        let endpoints = upstreams.iter().flat_map(|upstream| upstream.endpoints());
        let mut named: Vec<Arc<ResolvedName>> = Vec::new();
        for host_address in endpoints.map(|endpoint| self.address_of(endpoint)) {
            match host_address {
                HostAddress::Name(name) if !named.iter().any(|known| Arc::ptr_eq(known, &name)) => {
                    named.push(name)
                }
                HostAddress::Name(_) | HostAddress::Address(_) | HostAddress::UnixSocket(_) => {}
            }
        }
        self.0.retain(|_, name| named.iter().any(|known| Arc::ptr_eq(known, name)));
        named
    }
}

/// The address of a server.
#[derive(Clone, Debug)]
pub(super) enum HostAddress {
    /// An IP address in the config file.
    Address(IpAddr),
    /// A name that the resolver looks up.
    Name(Arc<ResolvedName>),
    /// A socket of this machine.
    UnixSocket(Arc<Path>),
}

impl HostAddress {
    /// The server's IP addresses; none if its name does not resolve, or it is a Unix socket. Waits only for the first answer of the resolver.
    pub(super) async fn addresses(&self) -> Arc<Vec<IpAddr>> {
        match self {
            Self::Address(address) => Arc::new(vec![*address]),
            Self::Name(name) => name.addresses().await,
            Self::UnixSocket(_) => Arc::default(),
        }
    }

    /// The server's addresses, as far as they are known. Never waits.
    pub(super) fn known(&self) -> Option<Arc<Vec<IpAddr>>> {
        match self {
            Self::Address(_) | Self::UnixSocket(_) => None,
            Self::Name(name) => name.known.load_full(),
        }
    }

    /// Whether the server still has this address, as far as is known.
    pub(super) fn has(&self, address: ConnectedAddress) -> bool {
        match (self, address) {
            (Self::Name(name), ConnectedAddress::Ip(address)) => {
                name.known.load().as_ref().is_none_or(|known| known.contains(&address))
            }
            _ => true,
        }
    }

    /// The server's addresses accept no connection: a name may have others by now.
    pub(super) fn report_unreachable(&self) {
        if let Self::Name(name) = self {
            name.unreachable.notify_one();
        }
    }

    /// Whether both are the same address, or the same name.
    pub(super) fn is(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Address(one), Self::Address(other)) => one == other,
            (Self::Name(one), Self::Name(other)) => Arc::ptr_eq(one, other),
            (Self::UnixSocket(one), Self::UnixSocket(other)) => one == other,
            _ => false,
        }
    }
}

/// The address that a connection leads to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ConnectedAddress {
    /// An address of the server's host.
    Ip(IpAddr),
    /// The server's Unix socket.
    UnixSocket,
}

/// A name, and the resolver's last answer.
#[derive(Debug)]
pub(super) struct ResolvedName {
    pub(super) host: Box<str>,
    /// `None` until the resolver has answered; empty until it has returned an address.
    known: ArcSwapOption<Vec<IpAddr>>,
    learned: Notify,
    /// Its addresses accept no connection.
    unreachable: Notify,
}

impl ResolvedName {
    pub(super) fn new(host: &str) -> Self {
        Self {
            host: host.into(),
            known: ArcSwapOption::empty(),
            learned: Notify::new(),
            unreachable: Notify::new(),
        }
    }

    async fn addresses(&self) -> Arc<Vec<IpAddr>> {
        loop {
            // Created before the check, so that no answer in between is missed.
            let learned = self.learned.notified();
            if let Some(known) = self.known.load_full() {
                return known;
            }
            learned.await;
        }
    }

    /// Stores an answer; after a failure the last addresses stay. Returns a change to be logged.
    pub(super) fn update(&self, answer: io::Result<Vec<IpAddr>>) -> Result<(), io::Error> {
        let none = || io::Error::new(io::ErrorKind::NotFound, "it has no address");
        let answer = answer.and_then(|found| if found.is_empty() { Err(none()) } else { Ok(found) });
        let (known, learned) = match answer {
            Ok(found) => (Some(found), Ok(())),
            Err(error) => (self.known.load().is_none().then(Vec::new), Err(error)),
        };
        if let Some(known) = known {
            self.known.store(Some(Arc::new(known)));
            self.learned.notify_waiters();
        }
        learned
    }

    /// Looks the name up at intervals, until the task is aborted.
    pub(super) async fn keep_up(self: Arc<Self>) {
        let mut failures = 0_u32;
        loop {
            let learned = self.update(look_up(&self.host).await);
            self.warn_of_change(&learned, failures);
            failures = if learned.is_ok() { 0 } else { failures.saturating_add(1) };
            let pause = match failures {
                0 => REFRESH,
                failures => RETRY.saturating_mul(1 << (failures - 1).min(5)).min(REFRESH),
            };
            self.rest(pause).await;
        }
    }

    /// Waits until the next lookup.
    async fn rest(&self, pause: Duration) {
        sleep(pause.min(EARLIEST)).await;
        // Over the time is the usual case.
        drop(timeout(pause.saturating_sub(EARLIEST), self.unreachable.notified()).await);
    }

    fn warn_of_change(&self, learned: &Result<(), io::Error>, failures: u32) {
        let Self { host, known, .. } = self;
        match learned {
            Err(error) if failures == 0 => {
                let last = known.load().as_ref().map_or(0, |known| known.len());
                tracing::warn!(
                    "the server name `{host}` cannot be looked up: {error}; addresses from before: {last}"
                );
            }
            Ok(()) if failures > 0 => tracing::info!("the server name `{host}` is known again"),
            _ => {}
        }
    }
}

/// Asks the system's resolver. Returns each address once, in the resolver's order.
async fn look_up(host: &str) -> io::Result<Vec<IpAddr>> {
    let mut found = Vec::new();
    for address in lookup_host((host, 0)).await? {
        if !found.contains(&address.ip()) {
            found.push(address.ip());
        }
    }
    Ok(found)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn addresses(last: &[u8]) -> Vec<IpAddr> {
        last.iter().map(|last| [10, 0, 0, *last].into()).collect()
    }

    fn silence() -> io::Result<Vec<IpAddr>> {
        Err(io::ErrorKind::TimedOut.into())
    }

    #[tokio::test]
    async fn the_last_answer_stays_good_while_the_resolver_fails() {
        let name = Arc::new(ResolvedName::new("a.test"));
        let host_address = HostAddress::Name(Arc::clone(&name));
        name.update(Ok(addresses(&[1, 2]))).expect("it is known");
        assert!(name.update(silence()).is_err() && name.update(Ok(Vec::new())).is_err());
        assert_eq!(*host_address.addresses().await, addresses(&[1, 2]));
        name.update(Ok(addresses(&[2, 3]))).expect("it is known");
        assert_eq!(
            [1, 2, 3].map(|last| host_address.has(ConnectedAddress::Ip([10, 0, 0, last].into()))),
            [false, true, true]
        );
    }

    #[tokio::test]
    async fn only_the_first_answer_is_waited_for() {
        let name = Arc::new(ResolvedName::new("a.test"));
        let host_address = HostAddress::Name(Arc::clone(&name));
        let waiting = tokio::spawn(async move { host_address.addresses().await });
        tokio::task::yield_now().await;
        assert!(!waiting.is_finished());
        assert!(name.update(silence()).is_err());
        assert_eq!(
            *waiting.await.expect("no panic"),
            addresses(&[]),
            "then it is known that nothing is known"
        );
    }

    #[tokio::test(start_paused = true)]
    async fn a_name_is_looked_up_soon_after_its_addresses_failed() {
        let name = Arc::new(ResolvedName::new("a.test"));
        let host_address = HostAddress::Name(Arc::clone(&name));
        let begun = tokio::time::Instant::now();
        name.rest(REFRESH).await;
        assert_eq!(begun.elapsed(), REFRESH);
        host_address.report_unreachable();
        host_address.report_unreachable();
        let begun = tokio::time::Instant::now();
        name.rest(REFRESH).await;
        assert_eq!(begun.elapsed(), EARLIEST, "many failures are one reason");
        let begun = tokio::time::Instant::now();
        tokio::join!(name.rest(REFRESH), async {
            sleep(5 * EARLIEST).await;
            host_address.report_unreachable();
        });
        assert_eq!(begun.elapsed(), 5 * EARLIEST);
    }

    #[test]
    fn all_callers_for_a_name_get_the_same_addresses() {
        let names = Resolver::default();
        let endpoint = |host: &str, port| Endpoint {
            host: host.to_owned(),
            port,
            authority: format!("{host}:{port}").into(),
            weight: 1,
            unix_socket: None,
            tls: None,
        };
        let host_address = names.address_of(&endpoint("a.test", 1));
        assert!(
            host_address.is(&names.address_of(&endpoint("a.test", 2)))
                && !host_address.is(&names.address_of(&endpoint("b.test", 1)))
        );
        assert!(names.adopt(&[]).is_empty());
        assert!(
            !host_address.is(&names.address_of(&endpoint("a.test", 1))),
            "no request looked it up in between"
        );
        assert!(matches!(names.address_of(&endpoint("::1", 1)), HostAddress::Address(_)));
    }
}
