//! The shared store in figures: decisions through a worker's client against a local Redis, beside `redis-benchmark` with the same
//! script on the same server.
//!
//! `cargo bench --bench shared`, half a minute. Starts a `redis-server` of its own; the two share the machine.
#![expect(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "a benchmark that cannot be set up should stop"
)]
#![expect(clippy::disallowed_methods, reason = "a benchmark reads a clock")]

use std::borrow::Cow;
use std::cell::{Cell, RefCell};
use std::io::{Read as _, Write as _};
use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::process::{Child, Command, Stdio};
use std::rc::Rc;
use std::sync::Arc;
use std::time::{Duration, Instant};

use rustix::time::{ClockId, clock_gettime};
use tokio::runtime::{Builder, LocalOptions};
use tollgate::limit::Algorithm;
use tollgate::limit::units::{Cost, Fingerprint, Micros, Rate, Timestamp};
use tollgate::store::redis::script::Script;
use tollgate::store::redis::settings::{
    ConnectOptions, RedisPassword, RedisServer, RedisServers, RedisSettings,
};
use tollgate::store::redis::{call, key};
use tollgate::store::{Charge, Counters, Group, OnError, ParamsId, SharedKeyInfo, Store, StoreRequest};

const SPAN: Duration = Duration::from_secs(3);
const KEYS: u64 = 100_000;
const NOON: Timestamp = Timestamp(1_599_998_400_000_000);

fn main() {
    let redis = Redis::start();
    let second = Rate::new(1_000_000, Micros::SECOND).unwrap();
    let open = Limit::new(Algorithm::token_bucket(second, Cost::new(1_000_000).unwrap()));
    println!("one token bucket, {KEYS} keys at random, one worker, one connection");
    println!(
        "  {:>9}{:>14}{:>9}{:>9}{:>16}",
        "at once", "decisions/s", "p50 µs", "p99 µs", "CPU µs/decision"
    );
    let mut max = 0.0_f64;
    for at_once in [1, 8, 64, 256] {
        let run = Run::of(&redis, &open, at_once);
        println!(
            "  {at_once:>9}{:>14.0}{:>9.0}{:>9.0}{:>16.2}",
            run.per_second, run.p50, run.p99, run.processor_time
        );
        max = max.max(run.per_second);
    }
    println!("redis-benchmark, the same script, the same keys, one connection");
    println!("  {:>9}{:>14}", "at once", "calls/s");
    let mut reference = 0.0_f64;
    for at_once in [1, 8, 64, 256] {
        let calls = redis.benchmark(&open, at_once);
        println!("  {at_once:>9}{calls:>14.0}");
        reference = reference.max(calls);
    }
    println!("must: calls/s of redis-benchmark, to decisions/s | 1.20 | {:.2}", reference / max);
    println!("a refusal that is remembered");
    let closed = Limit::new(Algorithm::fixed_window(Rate::new(1, Rate::MAX_PERIOD).unwrap(), <_>::default()));
    println!("  {:.0} ns", remembered(&redis, &closed));
}

/// What a run came to. Times in µs.
struct Run {
    per_second: f64,
    p50: f64,
    p99: f64,
    processor_time: f64,
}

impl Run {
    /// This number of tasks, each of which sends its next call after the reply.
    fn of(redis: &Redis, limit: &Limit, at_once: u64) -> Self {
        worker(redis, async |counters| {
            let (taken, random) = (Rc::new(RefCell::new(Vec::new())), Rc::new(Cell::new(1)));
            let (start, before) = (Instant::now(), processor_time());
            let tasks: Vec<_> = (0..at_once)
                .map(|_| {
                    let (counters, taken, random) =
                        (Rc::clone(&counters), Rc::clone(&taken), Rc::clone(&random));
                    let limit = *limit;
                    tokio::task::spawn_local(async move {
                        while start.elapsed() < SPAN {
                            let asked = Instant::now();
                            decide(&counters, &limit, next(&random) % KEYS, NOON).await;
                            taken.borrow_mut().push(asked.elapsed());
                        }
                    })
                })
                .collect();
            for task in tasks {
                task.await.unwrap();
            }
            let (elapsed, used) = (start.elapsed(), processor_time() - before);
            let mut taken = taken.borrow_mut();
            taken.sort_unstable();
            let micros = |part: usize| taken[taken.len() * part / 100].as_secs_f64() * 1e6;
            let count = taken.len() as f64;
            Self {
                per_second: count / elapsed.as_secs_f64(),
                p50: micros(50),
                p99: micros(99),
                processor_time: used.as_secs_f64() * 1e6 / count,
            }
        })
    }
}

/// ns for a refusal that needs no call.
fn remembered(redis: &Redis, limit: &Limit) -> f64 {
    worker(redis, async |counters| {
        decide(&counters, limit, 0, NOON).await;
        decide(&counters, limit, 0, NOON).await;
        let (turns, start) = (1_000_000, Instant::now());
        for _ in 0..turns {
            decide(&counters, limit, 0, NOON.plus(Micros(1))).await;
        }
        start.elapsed().as_secs_f64() * 1e9 / f64::from(turns)
    })
}

/// Runs `work` as a worker would, once it is connected.
fn worker<T>(redis: &Redis, work: impl AsyncFnOnce(Rc<Counters>) -> T) -> T {
    let runtime = Builder::new_current_thread().enable_all().build_local(LocalOptions::default()).unwrap();
    runtime.block_on(async {
        let store = Store::new(1_000_000, Some(Arc::new(redis.settings()))).unwrap();
        let counters = Rc::new(store.open(0));
        tokio::time::sleep(Duration::from_millis(200)).await;
        let value = work(counters).await;
        let decided_locally =
            store.shared().unwrap().counts().iter().map(|counts| counts.errors.get()).sum::<u64>();
        assert_eq!(decided_locally, 0, "every decision is the server's");
        value
    })
}

async fn decide(counters: &Counters, limit: &Limit, client: u64, now: Timestamp) {
    let key_hash =
        Fingerprint(u128::from(client + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15_f39c_c060_5ced_c835));
    let outcome = counters.decide(StoreRequest::of(&[limit.charge(key_hash)]), now).await;
    assert_eq!(outcome.decisions.len(), 1);
}

static REMOTE: SharedKeyInfo = SharedKeyInfo {
    name: Cow::Borrowed("bench:1t:00000000"),
    identity: 1,
    on_error: OnError::Local,
    settles: false,
    stays_in_process: false,
    lease: None,
};

/// An algorithm with the name of its numbers, which a plan knows beforehand.
#[derive(Clone, Copy)]
struct Limit {
    algorithm: Algorithm,
    params: ParamsId,
}

impl Limit {
    fn new(algorithm: Algorithm) -> Self {
        Self { algorithm, params: ParamsId::of(&algorithm) }
    }

    fn charge(&self, key_hash: Fingerprint) -> Charge<'_> {
        let Self { algorithm, params } = self;
        let (key, cost, group) = (key_hash.of_policy(REMOTE.identity), Cost::ONE, Group::Enforced);
        Charge { algorithm, params: *params, key, cost, group, shared_key: &REMOTE }
    }
}

/// Xorshift: good enough to spread keys.
fn next(state: &Cell<u64>) -> u64 {
    let mut x = state.get();
    x ^= x << 13;
    x ^= x >> 7;
    x ^= x << 17;
    state.set(x);
    x
}

fn processor_time() -> Duration {
    clock_gettime(ClockId::ProcessCPUTime).try_into().unwrap()
}

/// A server of our own, ended with this process.
struct Redis {
    child: Child,
    port: u16,
}

impl Redis {
    fn start() -> Self {
        let port = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap().local_addr().unwrap().port();
        let child = Command::new("redis-server")
            .args(["--port", &port.to_string(), "--bind", "127.0.0.1", "--save", "", "--appendonly", "no"])
            .stdout(Stdio::null())
            .spawn()
            .expect("redis-server is missing: `make tools` installs it");
        while TcpStream::connect((Ipv4Addr::LOCALHOST, port)).is_err() {
            std::thread::sleep(Duration::from_millis(10));
        }
        Self { child, port }
    }

    fn settings(&self) -> RedisSettings {
        RedisSettings {
            servers: RedisServers::Single(RedisServer { host: "127.0.0.1".into(), port: self.port }),
            dial: ConnectOptions::default(),
            prefix: "tollgate".into(),
            secret: RedisPassword([0; 32]),
            timeout: Duration::from_secs(1),
        }
    }

    /// Calls a second of `redis-benchmark`. It knows no words with zero bytes, so its script has the charge written in front.
    fn benchmark(&self, limit: &Limit, at_once: u64) -> f64 {
        let mut words = Vec::new();
        call::decide(
            StoreRequest::of(&[limit.charge(Fingerprint(0))]),
            tollgate::limit::wall_clock::WallTime(0),
            |word| words.push(word.to_vec()),
        );
        let digits: String = words[2].iter().map(|byte| format!("\\{byte:03}")).collect();
        let sha1 = self.load(&format!("ARGV[3] = '{digits}'\n{}", Script::new().text()));
        let name = key::parts("tollgate", "bench:1t:00000000", &key::key_hash(Fingerprint(0))).concat();
        let name =
            String::from_utf8(name).unwrap().replace(&"0".repeat(32), "00000000000000000000__rand_int__");
        let calls = if at_once == 1 { 30_000 } else { 150_000 };
        let output = Command::new("redis-benchmark")
            .args(["-p", &self.port.to_string(), "-c", "1", "-P", &at_once.to_string()])
            .args(["-n", &calls.to_string(), "-r", &KEYS.to_string(), "--csv"])
            .args(["EVALSHA", &sha1, "1", &name, "decide", "0", "0"])
            .output()
            .expect("redis-benchmark is missing: `make tools` installs it");
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        let last = text.lines().last().unwrap_or_default();
        let figure = last.rsplit(',').nth(6).unwrap_or_default().trim_matches('"');
        figure.parse().unwrap_or_else(|_| panic!("no figure in {text}"))
    }

    /// The name by which the server calls this script.
    fn load(&self, script: &str) -> String {
        let mut stream = TcpStream::connect((Ipv4Addr::LOCALHOST, self.port)).unwrap();
        write!(stream, "*3\r\n$6\r\nSCRIPT\r\n$4\r\nLOAD\r\n${}\r\n{script}\r\n", script.len()).unwrap();
        // `$40`, and forty digits.
        let mut answer = [0; 5 + 40 + 2];
        stream.read_exact(&mut answer).unwrap();
        String::from_utf8_lossy(&answer[5..45]).into_owned()
    }
}

impl Drop for Redis {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
