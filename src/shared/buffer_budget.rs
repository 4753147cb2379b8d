//! One bound for what all requests of the process hold before they are decided: heads, and bodies by which limits count.
//!
//! A request that waits for its body, a service, a place or its turn keeps its head and the received part of its body in
//! memory. Thousands of such requests fit into the bounds of connections and streams. Over the budget (`max_buffered`),
//! the client network that holds most loses its newest request, so that a flood displaces itself: an example is a client
//! with 6,400 half-sent bodies of 10 KB beside one with a single body.

use std::collections::{BTreeMap, HashMap};
use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::task::{Context, Poll, Waker};

use parking_lot::Mutex;

/// A network that holds less than this part of the budget loses no request to another one's growth.
const PROTECTED_SHARE: usize = 16;
/// All copies for mirrors together hold at most this part of the size of the budget.
const COPIES_SHARE: usize = 4;

/// The bytes held by all requests that are not decided.
#[derive(Debug, Default)]
pub struct BufferBudget {
    /// One lock: which network holds most is a question about all of them. Only requests that wait take it.
    ledger: Mutex<Ledger>,
    evictions: AtomicU64,
    /// Bytes of copies for mirrors. Apart, so that a copy evicts no request.
    copies: AtomicUsize,
}

#[derive(Debug, Default)]
struct Ledger {
    bytes: usize,
    /// No larger than the number of waiting requests. Its keys are hashed with a secret.
    networks: HashMap<IpAddr, NetworkShare>,
    /// The number of the next request.
    next: u64,
}

/// What one client network holds.
#[derive(Debug, Default)]
struct NetworkShare {
    bytes: usize,
    /// By number: the newest is the last.
    requests: BTreeMap<u64, HeldRequest>,
}

#[derive(Debug)]
struct HeldRequest {
    bytes: usize,
    evicted: Arc<AtomicBool>,
    waker: Waker,
}

/// The bytes of one waiting request, counted until it is dropped.
#[derive(Debug)]
pub struct BufferedRequest {
    budget: Arc<BufferBudget>,
    network: IpAddr,
    number: u64,
    bytes: usize,
    evicted: Arc<AtomicBool>,
    waker: Waker,
}

impl BufferBudget {
    /// Counts another request of this client network. It holds nothing yet: see [`BufferedRequest::resize`].
    pub fn begin(self: &Arc<Self>, network: IpAddr, context: &Context<'_>) -> BufferedRequest {
        let (evicted, waker) = (Arc::<AtomicBool>::default(), context.waker().clone());
        let mut ledger = self.ledger.lock();
        let number = ledger.next;
        ledger.next += 1;
        let request = HeldRequest { bytes: 0, evicted: Arc::clone(&evicted), waker: waker.clone() };
        ledger.networks.entry(network).or_default().requests.insert(number, request);
        BufferedRequest { budget: Arc::clone(self), network, number, bytes: 0, evicted, waker }
    }

    /// Counts a copy of a request, of so many bytes for now. `None`: copies would hold too much of the budget of `max`
    /// bytes.
    pub fn copy(self: &Arc<Self>, bytes: usize, max: usize) -> Option<BufferedCopy> {
        let mut copy = BufferedCopy { budget: Arc::clone(self), bytes: 0 };
        copy.grow(bytes, max).then_some(copy)
    }

    /// Bytes of requests held now.
    pub fn bytes(&self) -> usize {
        self.ledger.lock().bytes
    }

    /// Requests that were evicted so far.
    pub fn evictions(&self) -> u64 {
        self.evictions.load(Ordering::Relaxed)
    }
}

impl Ledger {
    /// Changes the bytes of a request. One that was evicted meanwhile holds none.
    fn resize(&mut self, network: IpAddr, number: u64, bytes: usize) {
        let Some(share) = self.networks.get_mut(&network) else { return };
        let Some(request) = share.requests.get_mut(&number) else { return };
        let before = std::mem::replace(&mut request.bytes, bytes);
        share.bytes = share.bytes - before + bytes;
        self.bytes = self.bytes - before + bytes;
    }

    /// Removes a request, unless it was evicted.
    fn remove(&mut self, network: IpAddr, number: u64) -> Option<HeldRequest> {
        let share = self.networks.get_mut(&network)?;
        let request = share.requests.remove(&number)?;
        share.bytes -= request.bytes;
        self.bytes -= request.bytes;
        if share.requests.is_empty() {
            self.networks.remove(&network);
        }
        Some(request)
    }

    /// The newest request of the network that holds most. If none holds more than its protected share of `max`, the
    /// request that grows has to go: this one.
    fn victim(&self, max: usize, growing: (IpAddr, u64)) -> (IpAddr, u64) {
        let most = self.networks.iter().max_by_key(|(_, share)| share.bytes);
        most.filter(|(_, share)| share.bytes >= max / PROTECTED_SHARE)
            .and_then(|(network, share)| Some((*network, *share.requests.last_key_value()?.0)))
            .unwrap_or(growing)
    }
}

impl BufferedRequest {
    /// The request holds this many bytes now. While all requests together hold more than `max`, the newest request of the
    /// network that holds most is evicted.
    pub fn resize(&mut self, bytes: usize, max: usize) {
        if bytes == self.bytes {
            return;
        }
        self.bytes = bytes;
        let mut ledger = self.budget.ledger.lock();
        ledger.resize(self.network, self.number, bytes);
        while ledger.bytes > max {
            let (network, number) = ledger.victim(max, (self.network, self.number));
            // The victim is among the requests, unless the growing one was evicted: then it holds nothing any more.
            let Some(request) = ledger.remove(network, number) else { break };
            request.evicted.store(true, Ordering::Release);
            request.waker.wake();
            self.budget.evictions.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Ready once the request was evicted. The present task is woken then.
    pub fn poll_evicted(&mut self, context: &Context<'_>) -> Poll<()> {
        if !self.waker.will_wake(context.waker()) {
            self.waker.clone_from(context.waker());
            let mut ledger = self.budget.ledger.lock();
            let share = ledger.networks.get_mut(&self.network);
            if let Some(request) = share.and_then(|share| share.requests.get_mut(&self.number)) {
                request.waker.clone_from(context.waker());
            }
        }
        if self.evicted.load(Ordering::Acquire) { Poll::Ready(()) } else { Poll::Pending }
    }
}

impl Drop for BufferedRequest {
    fn drop(&mut self) {
        self.budget.ledger.lock().remove(self.network, self.number);
    }
}

/// The bytes of a copy of a request, counted until it is dropped.
#[derive(Debug)]
pub struct BufferedCopy {
    budget: Arc<BufferBudget>,
    bytes: usize,
}

impl BufferedCopy {
    /// Counts further bytes. False: copies would hold too much of the budget of `max` bytes.
    #[must_use]
    pub fn grow(&mut self, bytes: usize, max: usize) -> bool {
        let fits = |held: usize| Some(held + bytes).filter(|held| *held <= max / COPIES_SHARE);
        let counted = self.budget.copies.fetch_update(Ordering::Relaxed, Ordering::Relaxed, fits).is_ok();
        if counted {
            self.bytes += bytes;
        }
        counted
    }
}

impl Drop for BufferedCopy {
    fn drop(&mut self) {
        self.budget.copies.fetch_sub(self.bytes, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MAX: usize = 1600;

    fn network(last: u8) -> IpAddr {
        [192, 0, 2, last].into()
    }

    fn hold(budget: &Arc<BufferBudget>, of: u8, bytes: usize) -> BufferedRequest {
        let mut request = budget.begin(network(of), &Context::from_waker(Waker::noop()));
        request.resize(bytes, MAX);
        request
    }

    fn is_evicted(request: &mut BufferedRequest) -> bool {
        request.poll_evicted(&Context::from_waker(Waker::noop())).is_ready()
    }

    #[test]
    fn the_network_that_holds_most_loses_its_newest_request() {
        let budget = Arc::new(BufferBudget::default());
        let mut flood: Vec<_> = (0..10).map(|_| hold(&budget, 1, 150)).collect();
        let mut honest = hold(&budget, 2, 100);
        assert!(!flood.iter_mut().any(is_evicted));
        honest.resize(101, MAX);
        assert!(!is_evicted(&mut honest));
        assert_eq!(
            flood.iter_mut().map(is_evicted).collect::<Vec<_>>(),
            [[false; 9].as_slice(), &[true]].concat()
        );
        assert_eq!((budget.bytes(), budget.evictions()), (9 * 150 + 101, 1));
        drop(flood);
        assert_eq!(budget.bytes(), 101);
        drop(honest);
        assert_eq!(budget.bytes(), 0);
        assert!(budget.ledger.lock().networks.is_empty());
    }

    #[test]
    fn copies_hold_a_quarter_at_most_and_evict_no_request() {
        let budget = Arc::new(BufferBudget::default());
        let mut request = hold(&budget, 1, MAX);
        let mut copy = budget.copy(300, MAX).unwrap();
        assert!(copy.grow(100, MAX) && !copy.grow(1, MAX) && budget.copy(1, MAX).is_none());
        drop(copy);
        assert!(budget.copy(400, MAX).is_some());
        assert!(!is_evicted(&mut request) && budget.bytes() == MAX);
    }

    #[test]
    fn where_all_hold_little_the_one_that_grows_is_refused() {
        let budget = Arc::new(BufferBudget::default());
        let mut requests: Vec<_> = (0..20).map(|of| hold(&budget, of, 80)).collect();
        requests[3].resize(90, MAX);
        let evicted: Vec<_> = requests.iter_mut().map(is_evicted).collect();
        assert_eq!(evicted.iter().filter(|evicted| **evicted).count(), 1);
        assert!(evicted[3]);
        assert_eq!(budget.bytes(), 19 * 80);
    }

    #[test]
    fn a_request_larger_than_the_budget_is_refused_and_changes_of_it_count_no_more() {
        let budget = Arc::new(BufferBudget::default());
        let mut request = hold(&budget, 1, MAX + 1);
        assert!(is_evicted(&mut request));
        request.resize(10, MAX);
        request.resize(MAX + 2, MAX);
        assert_eq!((budget.bytes(), budget.evictions()), (0, 1));
    }

    proptest::proptest! {
        /// In any history the sums and the bound hold, and a network below a sixteenth loses only a request that grows.
        #[test]
        fn the_bound_holds_in_any_history(
            steps in proptest::collection::vec((0..24_usize, 0..6_u8, 0..700_usize, proptest::bool::ANY), 1..200),
        ) {
            let budget = Arc::new(BufferBudget::default());
            let mut requests: HashMap<usize, BufferedRequest> = HashMap::new();
            for (which, of, bytes, ends) in steps {
                if ends {
                    requests.remove(&which);
                    continue;
                }
                requests.entry(which).or_insert_with(|| hold(&budget, of, 0));
                let mut before: HashMap<IpAddr, usize> = HashMap::new();
                let mut alive = Vec::new();
                for (other, request) in &mut requests {
                    if !is_evicted(request) {
                        alive.push(*other);
                        let bytes = if *other == which { bytes } else { request.bytes };
                        *before.entry(request.network).or_default() += bytes;
                    }
                }
                requests.get_mut(&which).expect("it is there").resize(bytes, MAX);
                proptest::prop_assert!(budget.bytes() <= MAX);
                let mut held = 0;
                for other in alive {
                    let request = requests.get_mut(&other).expect("it is there");
                    if !is_evicted(request) {
                        held += request.bytes;
                    } else if other != which {
                        proptest::prop_assert!(before[&request.network] >= MAX / PROTECTED_SHARE);
                    }
                }
                proptest::prop_assert_eq!(held, budget.bytes());
            }
        }
    }
}
