//! What the tests of a worker's connections stand on: the connections without the worker, and what is logged of them.

use std::net::SocketAddr;
use std::rc::Rc;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use tokio::runtime::{Builder, LocalOptions};
use tollgate::limit::units::Rate;
use tollgate::limit::{Algorithm, Align};
use tollgate::store::StoreRequest;
use tollgate::store::redis::errors::CallError;
use tollgate::store::redis::health::ServerHealths;
use tollgate::store::redis::nodes::{Nodes, NodesReply};
use tollgate::store::redis::resp::Command;
use tollgate::store::redis::script::Script;
use tollgate::store::redis::settings::{
    ConnectOptions, RedisPassword, RedisServer, RedisServers, RedisSettings,
};
use tollgate::store::redis::{call, reply};

use crate::harness::core::charges::{DAY, charge, key};
use crate::harness::{Redis, TIMEOUT};

/// A worker's view of a store, without the worker.
pub(crate) struct Asker {
    pub(crate) nodes: Nodes,
    pub(crate) healths: Arc<ServerHealths>,
    pub(crate) script: Arc<Script>,
}

impl Asker {
    pub(crate) fn open(settings: RedisSettings) -> Rc<Self> {
        let (script, healths) = (Arc::new(Script::new()), Arc::new(ServerHealths::default()));
        let nodes = Nodes::open(&Arc::new(settings), &script, &healths);
        Rc::new(Self { nodes, healths, script })
    }

    /// One decision on a window of a day that holds 1,000,000 units; what remains.
    pub(crate) async fn ask(&self, number: u64) -> Result<u64, CallError> {
        let algorithm = &Algorithm::fixed_window(Rate::new(1_000_000, DAY).unwrap(), Align::FirstRequest);
        let charges = [charge(algorithm, key(0, number), 1)];
        let answer = self.ask_raw(number, |command| {
            command.word(b"EVALSHA");
            command.word(self.script.sha1().as_bytes());
            command.number(1);
            command.parts(&[b"test:{", number.to_string().as_bytes(), b"}"]);
            call::decide(StoreRequest::of(&charges), tollgate::limit::wall_clock::WallTime(0), |argument| {
                command.word(argument)
            });
        });
        Ok(reply::read(&answer.await?.integers, 1).expect("the script's answer").outcome.decisions[0]
            .remaining)
    }

    pub(crate) async fn ask_raw(
        &self,
        tag: u64,
        write: impl Fn(&mut Command<'_>),
    ) -> Result<NodesReply, CallError> {
        self.nodes.ask(self.nodes.slot(tag.to_string().as_bytes()), write).await
    }

    /// Asks until it is answered.
    pub(crate) async fn until_answered(&self, number: u64) {
        eventually("an answer", async || self.ask(number).await.ok()).await;
    }

    /// Asks until it fails without being asked.
    pub(crate) async fn until_down(&self, number: u64) {
        eventually("the breaker opens", async || {
            (self.ask(number).await == Err(CallError::Down)).then_some(())
        })
        .await;
    }

    /// Why the store can't be asked.
    pub(crate) fn reasons(&self) -> String {
        let reasons = self.healths.servers().into_iter().filter_map(|server| server.reason());
        reasons.map(|reason| reason.to_string()).collect::<Vec<_>>().join("; ")
    }
}

/// Settings with a timeout that a busy machine keeps.
pub(crate) fn settings(servers: RedisServers) -> RedisSettings {
    RedisSettings {
        servers,
        dial: ConnectOptions::default(),
        prefix: "test".into(),
        secret: RedisPassword([0; 32]),
        timeout: Duration::from_millis(500),
    }
}

pub(crate) fn single(redis: &Redis) -> RedisSettings {
    settings(RedisServers::Single(server(redis.addr())))
}

pub(crate) fn server(address: SocketAddr) -> RedisServer {
    RedisServer { host: address.ip().to_string().into(), port: address.port() }
}

/// Runs on a worker's runtime.
pub(crate) fn run<T>(future: impl Future<Output = T>) -> T {
    let runtime = Builder::new_current_thread().enable_all().build_local(LocalOptions::default()).unwrap();
    runtime.block_on(async { tokio::time::timeout(TIMEOUT, future).await.expect("the test takes too long") })
}

/// Asks until there is an answer; panics with `what` when there never is.
pub(crate) async fn eventually<T>(what: &str, mut condition: impl AsyncFnMut() -> Option<T>) -> T {
    for _ in 0..3_000 {
        if let Some(value) = condition().await {
            return value;
        }
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    panic!("waited in vain: {what}");
}

/// Makes a number of calls at once. Returns their replies.
pub(crate) async fn together(asker: &Rc<Asker>, calls: u64, number: u64) -> Vec<Result<u64, CallError>> {
    let ask = |_| {
        let asker = Rc::clone(asker);
        tokio::task::spawn_local(async move { asker.ask(number).await })
    };
    let tasks: Vec<_> = (0..calls).map(ask).collect();
    let mut answers = Vec::new();
    for task in tasks {
        answers.push(task.await.unwrap());
    }
    answers
}

/// Calls that fail at once: none of them waits.
pub(crate) async fn assert_down_at_once(asker: &Asker) {
    let started = Instant::now();
    for _ in 0..1_000 {
        assert_eq!(asker.ask(1).await, Err(CallError::Down));
    }
    assert!(started.elapsed() < Duration::from_secs(5), "{:?}", started.elapsed());
}

/// What was logged while `future` ran.
pub(crate) async fn logged<T>(future: impl Future<Output = T>) -> (T, Vec<String>) {
    let lines = Lines::default();
    let writer = lines.clone();
    let subscriber = tracing_subscriber::fmt()
        .with_ansi(false)
        .without_time()
        .with_target(false)
        .with_writer(move || writer.clone())
        .finish();
    // The runtime has one thread, so all it runs meanwhile logs here.
    let guard = tracing::subscriber::set_default(subscriber);
    let value = future.await;
    drop(guard);
    (value, lines.take())
}

/// Lines of the log.
#[derive(Clone, Debug, Default)]
struct Lines(Arc<Mutex<Vec<u8>>>);

impl Lines {
    fn take(&self) -> Vec<String> {
        String::from_utf8_lossy(&self.0.lock().unwrap()).lines().map(|line| line.trim().to_owned()).collect()
    }
}

impl std::io::Write for Lines {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.0.lock().unwrap().extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

/// One line for going, with its reason, and one for coming back.
#[track_caller]
pub(crate) fn assert_one_outage(lines: &[String], name: &str, reason: &str) {
    let [down, up] = lines else { panic!("two lines: {lines:?}") };
    let told = format!("WARN the store at {name} is unreachable: {reason}; limits follow their `on_error`");
    assert_eq!(*down, told);
    assert!(up.starts_with(&format!("INFO the store at {name} is asked again, after ")), "{up}");
}
