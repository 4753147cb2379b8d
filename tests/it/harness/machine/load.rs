//! A load generator: many keep-alive connections, each with a thread of its own.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Instant;

use crate::harness::Client;

/// How much load.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Load {
    /// Requests in all.
    pub(crate) requests: usize,
    /// Connections at once.
    pub(crate) concurrency: usize,
}

impl Load {
    /// Sends `request(n)` for every `n` below `requests` and counts the answers by status.
    pub(crate) fn run(
        self,
        address: SocketAddr,
        request: impl Fn(usize) -> String + Sync,
    ) -> BTreeMap<u16, usize> {
        self.run_over(&[address], request)
    }

    /// As [`Self::run`], with the connections spread over several addresses in turn. Each takes the next request when it is free.
    pub(crate) fn run_over(
        self,
        addresses: &[SocketAddr],
        request: impl Fn(usize) -> String + Sync,
    ) -> BTreeMap<u16, usize> {
        let (next, request) = (&AtomicUsize::new(0), &request);
        std::thread::scope(|scope| {
            let addresses = addresses.iter().copied().cycle().take(self.concurrency);
            let connect = |address| scope.spawn(move || self.drive(address, next, request));
            let threads: Vec<_> = addresses.map(connect).collect();
            threads.into_iter().fold(BTreeMap::new(), |mut sum, thread| {
                for (status, count) in thread.join().expect("the connection's thread succeeds") {
                    *sum.entry(status).or_default() += count;
                }
                sum
            })
        })
    }

    /// Runs this load again and again while `work` is done, at least once. The load's thread begins with `enter`. Each
    /// request is the last of its connection: a process that leaves may close an idle one. Counts the answers by status.
    pub(crate) fn during<T>(
        self,
        address: SocketAddr,
        enter: impl FnOnce() + Send,
        work: impl FnOnce() -> T,
    ) -> (BTreeMap<u16, usize>, T) {
        let request = |_| "GET / HTTP/1.1\r\nhost: test\r\nconnection: close\r\n\r\n".to_owned();
        let done = &AtomicBool::new(false);
        std::thread::scope(|scope| {
            let load = scope.spawn(move || {
                enter();
                let mut all = BTreeMap::new();
                loop {
                    let started = Instant::now();
                    for (status, count) in self.run(address, request) {
                        *all.entry(status).or_default() += count;
                    }
                    // The work has half of the machine.
                    std::thread::sleep(started.elapsed());
                    if done.load(Ordering::Relaxed) {
                        return all;
                    }
                }
            });
            let ends = SetWhenDropped(done);
            let result = work();
            drop(ends);
            (load.join().expect("no request fails"), result)
        })
    }

    fn drive(
        self,
        address: SocketAddr,
        next: &AtomicUsize,
        request: &(impl Fn(usize) -> String + Sync),
    ) -> BTreeMap<u16, usize> {
        let mut statuses = BTreeMap::new();
        let mut client = Client::connect(address);
        loop {
            let number = next.fetch_add(1, Ordering::Relaxed);
            if number >= self.requests {
                return statuses;
            }
            let response = client.exchange(request(number));
            *statuses.entry(response.status).or_default() += 1;
            if response.closed {
                client = Client::connect(address);
            }
        }
    }
}

/// Sets the flag after a panic, too.
struct SetWhenDropped<'a>(&'a AtomicBool);

impl Drop for SetWhenDropped<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}
