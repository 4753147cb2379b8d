//! One worker's connection to one real server: calls go together, and fail fast when the server is not what it should be.

use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use tokio::runtime::{Builder, LocalOptions};
use tollgate::store::redis::fault::Fault;
use tollgate::store::redis::health::Healths;
use tollgate::store::redis::nodes::{Answer, Nodes};
use tollgate::store::redis::resp::Command;
use tollgate::store::redis::script::Script;
use tollgate::store::redis::settings::{Dial, Secret, Servers, Settings};
use tollgate::store::redis::{call, reply};

use crate::harness::PATIENCE;
use crate::harness::redis_servers::RedisProcess;
use crate::store_samples::{DAY, all, charge, key};

/// A worker's view of a store, without the worker.
pub(crate) struct Asker {
    pub(crate) nodes: Nodes,
    pub(crate) healths: Arc<Healths>,
    script: Arc<Script>,
}

impl Asker {
    pub(crate) fn open(settings: Settings) -> Rc<Self> {
        let (script, healths) = (Arc::new(Script::new()), Arc::new(Healths::default()));
        let nodes = Nodes::open(&Arc::new(settings), &script, &healths);
        Rc::new(Self { nodes, healths, script })
    }

    /// One decision on a token bucket that holds 1,000,000 units; what remains.
    pub(crate) async fn ask(&self, number: u64) -> Result<u64, Fault> {
        let algorithm = &all(1_000_000, DAY)[0];
        let charges = [charge(algorithm, key(0, number), 1)];
        let answer = self.ask_raw(number, |command| {
            command.word(b"EVALSHA");
            command.word(self.script.sha1().as_bytes());
            command.number(1);
            command.text(format_args!("test:{{{number}}}"));
            call::decide(&charges, |argument| command.word(argument));
        });
        Ok(reply::read(&answer.await?.integers, 1).expect("the script's answer").outcome.decisions[0]
            .remaining)
    }

    pub(crate) async fn ask_raw(&self, tag: u64, write: impl Fn(&mut Command<'_>)) -> Result<Answer, Fault> {
        self.nodes.ask(self.nodes.slot(tag.to_string().as_bytes()), write).await
    }

    /// Asks until it is answered.
    pub(crate) async fn until_answered(&self, number: u64) {
        eventually("an answer", async || self.ask(number).await.ok()).await;
    }

    /// Asks until it fails without being asked.
    pub(crate) async fn until_down(&self, number: u64) {
        eventually("the breaker opens", async || (self.ask(number).await == Err(Fault::Down)).then_some(()))
            .await;
    }

    /// Why the store can't be asked.
    pub(crate) fn reasons(&self) -> String {
        let reasons = self.healths.servers().into_iter().filter_map(|server| server.reason());
        reasons.map(|reason| reason.to_string()).collect::<Vec<_>>().join("; ")
    }
}

/// Settings with a timeout that a busy machine keeps.
pub(crate) fn settings(servers: Servers) -> Settings {
    Settings {
        servers,
        dial: Dial::default(),
        prefix: "test".into(),
        secret: Secret([0; 32]),
        timeout: Duration::from_millis(500),
    }
}

pub(crate) fn single(redis: &RedisProcess) -> Settings {
    settings(Servers::Single(redis.server()))
}

/// Runs on a worker's runtime.
pub(crate) fn run<T>(future: impl Future<Output = T>) -> T {
    let runtime = Builder::new_current_thread().enable_all().build_local(LocalOptions::default()).unwrap();
    runtime.block_on(async { tokio::time::timeout(PATIENCE, future).await.expect("the test takes too long") })
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

/// So many calls at once; what each was answered.
async fn together(asker: &Rc<Asker>, calls: u64, number: u64) -> Vec<Result<u64, Fault>> {
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

#[test]
fn calls_of_a_tick_share_one_connection_and_are_answered_in_order() {
    let redis = RedisProcess::start(&[]);
    run(async {
        let asker = Asker::open(single(&redis));
        let answers = together(&asker, 1_000, 1).await;
        let expected: Vec<_> = (0..1_000).map(|number| Ok(999_999 - number)).collect();
        assert_eq!(answers, expected);
        // The proofs of the handshake are two: one without the script, one with it.
        assert_eq!((redis.connections(), redis.calls("evalsha")), (1, 1_002));
        assert!(asker.healths.is_up());
    });
}

#[test]
fn a_forgotten_script_is_handed_over_once_for_all() {
    let redis = RedisProcess::start(&[]);
    run(async {
        let asker = Asker::open(single(&redis));
        asker.until_answered(1).await;
        for round in 1..=3 {
            redis.order(&["SCRIPT", "FLUSH"]);
            let answers = together(&asker, 100, 2).await;
            assert!(answers.iter().all(Result::is_ok), "{answers:?}");
            assert_eq!(redis.calls("script|load"), 1 + round);
        }
        assert_eq!(asker.ask(2).await, Ok(999_699));
        assert!(asker.healths.is_up());
    });
}
