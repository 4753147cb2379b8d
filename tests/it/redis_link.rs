//! One worker's connection to one real server: calls go together, and fail fast when the server is not what it should be.

use std::io::Write as _;
use std::net::SocketAddr;
use std::rc::Rc;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use tokio::runtime::{Builder, LocalOptions};
use tollgate::limit::units::Rate;
use tollgate::limit::{Algorithm, Align};
use tollgate::store::redis::fault::Fault;
use tollgate::store::redis::health::Healths;
use tollgate::store::redis::nodes::{Answer, Nodes};
use tollgate::store::redis::resp::Command;
use tollgate::store::redis::script::Script;
use tollgate::store::redis::settings::{Dial, Secret, Server, Servers, Settings};
use tollgate::store::redis::{call, reply};

use crate::harness::{PATIENCE, Redis};
use crate::store_samples::{DAY, charge, key};

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

    /// One decision on a window of a day that holds 1,000,000 units; what remains.
    pub(crate) async fn ask(&self, number: u64) -> Result<u64, Fault> {
        let algorithm = &Algorithm::fixed_window(Rate::new(1_000_000, DAY).unwrap(), Align::FirstRequest);
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

pub(crate) fn single(redis: &Redis) -> Settings {
    settings(Servers::Single(server(redis.addr())))
}

pub(crate) fn server(address: SocketAddr) -> Server {
    Server { host: address.ip().to_string().into(), port: address.port() }
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
    let redis = Redis::start();
    run(async {
        let asker = Asker::open(single(&redis));
        let answers = together(&asker, 1_000, 1).await;
        let expected: Vec<_> = (0..1_000).map(|number| Ok(999_999 - number)).collect();
        assert_eq!(answers, expected);
        // The proofs of the handshake are two: one without the script, one with it.
        assert_eq!((redis.connections(), redis.calls_of("evalsha")), (1, 1_002));
        assert!(asker.healths.is_up());
    });
}

#[test]
fn a_forgotten_script_is_handed_over_once_for_all() {
    let redis = Redis::start();
    run(async {
        let asker = Asker::open(single(&redis));
        asker.until_answered(1).await;
        for round in 1..=3 {
            redis.set(&["SCRIPT", "FLUSH"]);
            let answers = together(&asker, 100, 2).await;
            assert!(answers.iter().all(Result::is_ok), "{answers:?}");
            assert_eq!(redis.calls_of("script|load"), 1 + round);
        }
        assert_eq!(asker.ask(2).await, Ok(999_699));
        assert!(asker.healths.is_up());
    });
}

/// What was logged while `future` ran.
async fn logged<T>(future: impl Future<Output = T>) -> (T, Vec<String>) {
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
fn assert_one_outage(lines: &[String], name: &str, reason: &str) {
    let [down, up] = lines else { panic!("two lines: {lines:?}") };
    let told =
        format!("WARN the store at {name} can not be asked: {reason}; limits go on by their `on_error`");
    assert_eq!(*down, told);
    assert!(up.starts_with(&format!("INFO the store at {name} is asked again, after ")), "{up}");
}

/// Calls that fail at once: none of them waits.
async fn assert_down_at_once(asker: &Asker) {
    let started = Instant::now();
    for _ in 0..1_000 {
        assert_eq!(asker.ask(1).await, Err(Fault::Down));
    }
    assert!(started.elapsed() < Duration::from_millis(500), "{:?}", started.elapsed());
}

#[test]
fn a_killed_server_is_asked_again_when_it_is_back() {
    let mut redis = Redis::start();
    let name = redis.addr().to_string();
    let ((), lines) = run(logged(async {
        let asker = Asker::open(single(&redis));
        asker.until_answered(1).await;
        redis.kill();
        asker.until_down(1).await;
        assert_down_at_once(&asker).await;
        assert!(!asker.healths.is_up());
        redis.restart();
        asker.until_answered(1).await;
        assert!(asker.healths.is_up());
        assert_eq!(redis.connections(), 1);
    }));
    assert_one_outage(&lines, &name, "connection refused");
}

#[test]
fn a_server_that_hangs_costs_a_few_calls_their_time_and_the_others_nothing() {
    let redis = Redis::start();
    let name = redis.addr().to_string();
    let ((), lines) = run(logged(async {
        let asker = Asker::open(Settings { timeout: Duration::from_millis(100), ..single(&redis) });
        asker.until_answered(1).await;
        redis.stop();
        for _ in 0..5 {
            assert_eq!(asker.ask(1).await, Err(Fault::Timeout));
        }
        assert_down_at_once(&asker).await;
        // Tries go on, one connection after the other.
        tokio::time::sleep(Duration::from_secs(2)).await;
        redis.resume();
        asker.until_answered(1).await;
        assert_eq!(redis.connections(), 1);
    }));
    assert_one_outage(&lines, &name, "no answer within 100ms");
}

#[test]
fn calls_that_wait_together_fail_together() {
    let redis = Redis::start();
    run(async {
        let asker = Asker::open(Settings { timeout: Duration::from_millis(100), ..single(&redis) });
        asker.until_answered(1).await;
        redis.stop();
        let answers = together(&asker, 100, 1).await;
        // Those that have waited as long as they may, and with them all others.
        let late = answers.iter().filter(|it| **it == Err(Fault::Timeout)).count();
        assert!(late >= 5 && answers[late..].iter().all(|it| *it == Err(Fault::Down)), "{answers:?}");
        assert_eq!(asker.ask(1).await, Err(Fault::Down));
        redis.resume();
    });
}

#[test]
fn a_late_answer_is_nobodys() {
    let redis = Redis::start();
    run(async {
        let asker = Asker::open(Settings { timeout: Duration::from_millis(200), ..single(&redis) });
        asker.until_answered(1).await;
        redis.stop();
        let late = together(&asker, 3, 1).await;
        assert!(late.iter().all(|it| *it == Err(Fault::Timeout)), "{late:?}");
        redis.resume();
        // The three were decided all the same, and this one's answer is its own.
        assert_eq!(asker.ask(1).await, Ok(999_995));
        assert_eq!(asker.ask(2).await, Ok(999_999));
        assert_eq!(redis.connections(), 1);
    });
}

#[test]
fn who_does_not_wait_for_the_answer_leaves_nothing_behind() {
    let redis = Redis::start();
    run(async {
        let asker = Asker::open(single(&redis));
        asker.until_answered(1).await;
        let (left, other) = (Rc::clone(&asker), Rc::clone(&asker));
        let left = tokio::task::spawn_local(async move { left.ask(2).await });
        let other = tokio::task::spawn_local(async move { other.ask(1).await });
        tokio::task::yield_now().await;
        left.abort();
        assert_eq!(other.await.unwrap(), Ok(999_998));
        assert_eq!(asker.ask(2).await, Ok(999_998));
    });
}

#[test]
fn a_lost_connection_is_made_anew_at_once_and_nobody_hears_of_it() {
    let redis = Redis::start();
    let ((), lines) = run(logged(async {
        let asker = Asker::open(single(&redis));
        asker.until_answered(1).await;
        for _ in 0..3 {
            redis.command(["CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes"]);
            // What was sent into the breaking connection is lost; what comes after it waits for the new one.
            let _ = asker.ask(1).await;
            assert!(asker.ask(1).await.is_ok());
        }
        assert_eq!(redis.connections(), 1);
    }));
    assert_eq!(lines, [""; 0]);
}

#[test]
fn a_replica_and_a_full_server_are_not_asked_until_they_take_writes() {
    let redis = Redis::start();
    let name = redis.addr().to_string();
    let cases: [(&str, &dyn Fn(), &dyn Fn()); 2] = [
        ("it is a replica, which takes no writes (READONLY)", &|| redis.read_only(), &|| redis.writable()),
        ("its memory is full (OOM)", &|| redis.fill(), &|| redis.drain()),
    ];
    for (reason, fall, recover) in cases {
        let ((), lines) = run(logged(async {
            let asker = Asker::open(single(&redis));
            asker.until_answered(1).await;
            fall();
            let refused = asker.ask(1).await;
            assert!(
                matches!(refused, Err(Fault::Refused(code)) if reason.contains(code.as_str())),
                "{refused:?}"
            );
            asker.until_down(1).await;
            assert_down_at_once(&asker).await;
            assert_eq!(asker.reasons(), reason);
            recover();
            asker.until_answered(1).await;
            assert_eq!(redis.connections(), 1);
        }));
        assert_one_outage(&lines, &name, reason);
    }
}

#[test]
fn a_key_that_holds_something_else_fails_its_own_calls_only() {
    let redis = Redis::start();
    let ((), lines) = run(logged(async {
        let asker = Asker::open(single(&redis));
        asker.until_answered(1).await;
        redis.command(["RPUSH", "test:{7}", "a list"]);
        for _ in 0..20 {
            let refused = asker.ask(7).await;
            assert!(
                matches!(refused, Err(Fault::Refused(code)) if code.as_str() == "WRONGTYPE"),
                "{refused:?}"
            );
        }
        assert!(asker.ask(1).await.is_ok());
    }));
    assert_eq!(lines, [""; 0]);
}

#[test]
fn a_server_that_is_not_there_at_first_is_asked_when_it_comes() {
    let mut redis = Redis::start();
    redis.kill();
    let name = redis.addr().to_string();
    let ((), lines) = run(logged(async {
        let asker = Asker::open(single(&redis));
        asker.until_down(1).await;
        redis.restart();
        asker.until_answered(1).await;
    }));
    assert_one_outage(&lines, &name, "connection refused");
}

#[test]
fn ten_outages_leave_one_connection() {
    let redis = Redis::start();
    run(async {
        let asker = Asker::open(Settings { timeout: Duration::from_millis(50), ..single(&redis) });
        asker.until_answered(1).await;
        for _ in 0..10 {
            redis.stop();
            asker.until_down(1).await;
            redis.resume();
            asker.until_answered(1).await;
        }
        // Those that were made and given up in between are closed.
        eventually("one connection", async || (redis.connections() == 1).then_some(())).await;
        assert!(redis.connections_ever() > 10);
    });
}

#[test]
fn workers_that_lose_a_server_together_say_so_once() {
    let mut redis = Redis::start();
    let name = redis.addr().to_string();
    let ((), lines) = run(logged(async {
        let (script, healths) = (Arc::new(Script::new()), Arc::new(Healths::default()));
        let settings = Arc::new(single(&redis));
        let workers = [(); 3].map(|()| {
            let nodes = Nodes::open(&settings, &script, &healths);
            Rc::new(Asker { nodes, healths: Arc::clone(&healths), script: Arc::clone(&script) })
        });
        for worker in &workers {
            worker.until_answered(1).await;
        }
        redis.kill();
        for worker in &workers {
            worker.until_down(1).await;
        }
        // Rests have grown to more than a second.
        tokio::time::sleep(Duration::from_secs(3)).await;
        assert!(!healths.is_up());
        redis.restart();
        workers[0].until_answered(1).await;
        // The first tells the others, who need not wait for their own next try.
        let told = Instant::now();
        for worker in &workers {
            worker.until_answered(1).await;
        }
        assert!(told.elapsed() < Duration::from_millis(500), "{:?}", told.elapsed());
        assert!(healths.is_up());
        assert_eq!(redis.connections(), 3);
    }));
    assert_one_outage(&lines, &name, "connection refused");
}

#[test]
fn too_many_calls_are_refused_at_once() {
    let redis = Redis::start();
    run(async {
        let asker = Asker::open(Settings { timeout: PATIENCE, ..single(&redis) });
        asker.until_answered(1).await;
        let answers = together(&asker, 9_000, 1).await;
        let busy = answers.iter().filter(|it| **it == Err(Fault::Busy)).count();
        // By calls or by bytes, what is reached first.
        assert!((1..8_000).contains(&busy), "{busy}");
        assert_eq!(answers.iter().filter(|it| it.is_ok()).count(), 9_000 - busy);
    });
}

#[test]
fn what_is_no_redis_is_told_in_words() {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let _ = stream.unwrap().write_all(b"HTTP/1.1 400 Bad Request\r\n\r\n");
        }
    });
    run(async {
        let asker = Asker::open(settings(Servers::Single(Server { host: "localhost".into(), port })));
        asker.until_down(1).await;
        assert_eq!(asker.reasons(), "it does not speak the protocol of Redis: a value begins with byte 72");
    });
}
