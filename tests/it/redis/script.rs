//! The script as gateways send it, on the server's own clock.

use tollgate::limit::units::{Micros, Rate};
use tollgate::limit::{Algorithm, Verdict};
use tollgate::store::redis::reply::{self, Reply};
use tollgate::store::redis::{call, script::Script};
use tollgate::store::{Charge, StoreRequest};

use crate::harness::charges::{DAY, admits, all, charge, key};
use crate::harness::script::{evalsha, named};
use crate::harness::{Answer, Connection, Redis};

/// A connection to a server that knows the script.
struct Server {
    connection: Connection,
    script: Script,
    redis: Redis,
}

impl Server {
    fn start() -> Self {
        let (redis, script) = (Redis::start(), Script::new());
        let mut connection = redis.connect();
        assert_eq!(connection.call(["SCRIPT", "LOAD", script.text()]).text(), script.sha1());
        Self { connection, script, redis }
    }

    fn try_decide(&mut self, charges: &[Charge<'_>]) -> Answer {
        decide_on(&mut self.connection, &self.script, charges)
    }

    fn decide(&mut self, charges: &[Charge<'_>]) -> Reply {
        reply::read(&self.try_decide(charges).integers(), charges.len()).unwrap()
    }

    fn command(&mut self, words: &[&str]) -> Answer {
        self.connection.call(words)
    }

    /// The server's time in µs.
    fn time(&mut self) -> u64 {
        let Answer::List(time) = self.command(&["TIME"]) else { panic!("a time") };
        time[0].text().parse::<u64>().unwrap() * 1_000_000 + time[1].text().parse::<u64>().unwrap()
    }

    /// How many changes the server has seen.
    fn changes(&mut self) -> u64 {
        let told = self.command(&["INFO", "persistence"]).text();
        let line = told.lines().find_map(|line| line.strip_prefix("rdb_changes_since_last_save:")).unwrap();
        line.parse().unwrap()
    }
}

fn decide_on(connection: &mut Connection, script: &Script, charges: &[Charge<'_>]) -> Answer {
    let mut arguments = Vec::new();
    call::decide(StoreRequest::of(charges), tollgate::limit::wall_clock::WallTime(0), |argument| {
        arguments.push(argument.to_vec())
    });
    let keys: Vec<_> = charges.iter().map(named).collect();
    connection.call(evalsha(script.sha1(), &keys, arguments))
}

fn error(answer: Answer) -> String {
    let Answer::Error(told) = answer else { panic!("no error: {answer:?}") };
    told
}

#[test]
fn the_servers_clock_decides() {
    let (mut server, algorithm) = (Server::start(), all(10, DAY).remove(0));
    let before = server.time();
    let used = server.decide(&[charge(&algorithm, key(0, 0), 1)]).now.0;
    assert!((before..=server.time()).contains(&used));
}

#[test]
fn every_key_expires_a_second_after_its_state_says_nothing() {
    let mut server = Server::start();
    for (number, algorithm) in (0..).zip(all(10, Micros(7_000_000))) {
        let charge = charge(&algorithm, key(0, number), 7);
        let now = server.decide(&[charge]).now;
        let (state, _) = algorithm.decide(<_>::default(), now, charge.cost);
        let lives = (algorithm.forget_at(&state).0 - now.0).div_ceil(1_000) + 1_000;
        let left = server.command(&["PTTL", &named(&charge)]).integer().cast_unsigned();
        assert!((lives - 500..=lives).contains(&left), "{algorithm:?}: {left} of {lives} ms");
    }
}

#[test]
fn a_refused_client_is_admitted_when_its_wait_is_over() {
    let mut server = Server::start();
    for (number, algorithm) in (0..).zip(all(2, Micros(100_000))) {
        let charges = [charge(&algorithm, key(0, number), 2)];
        let refused = std::iter::repeat_with(|| server.decide(&charges))
            .find(|reply| !admits(reply.outcome.decisions[0].verdict))
            .unwrap();
        let Verdict::Deny(tollgate::limit::Wait::After(wait)) = refused.outcome.decisions[0].verdict else {
            panic!("{algorithm:?}")
        };
        while server.time() < refused.now.0 + wait.0 {
            std::thread::sleep(std::time::Duration::from_millis(1));
        }
        assert!(admits(server.decide(&charges).outcome.decisions[0].verdict), "{algorithm:?}");
    }
}

#[test]
fn refusals_and_looks_write_nothing() {
    let mut server = Server::start();
    for (number, algorithm) in (0..).zip(all(10, DAY)) {
        let charges = [charge(&algorithm, key(0, number), 11)];
        while admits(server.decide(&charges).outcome.decisions[0].verdict) {}
        let before = server.changes();
        server.decide(&charges);
        let mut arguments = Vec::new();
        call::peek(&charges, tollgate::limit::wall_clock::WallTime(0), |argument| {
            arguments.push(argument.to_vec())
        });
        let sha1 = server.script.sha1().to_owned();
        server.connection.call(evalsha(&sha1, &charges.map(|charge| named(&charge)), arguments)).integers();
        assert_eq!(server.changes(), before, "{algorithm:?}");
    }
}

#[test]
fn two_gateways_admit_exactly_the_allowance() {
    let server = Server::start();
    for (number, algorithm) in (0..).zip(all(100, DAY)) {
        let charges = [charge(&algorithm, key(0, number), 1)];
        let gateway = || {
            let mut connection = server.redis.connect();
            let ask = || decide_on(&mut connection, &server.script, &charges).integers();
            let replies = std::iter::repeat_with(ask).map(|answer| reply::read(&answer, 1).unwrap());
            replies.take(150).filter(|reply| admits(reply.outcome.decisions[0].verdict)).count()
        };
        let passed = std::thread::scope(|scope| {
            let gateways = [scope.spawn(gateway), scope.spawn(gateway)];
            gateways.map(|gateway| gateway.join().unwrap()).iter().sum::<usize>()
        });
        // The leaky bucket holds one and 100 more that wait behind it.
        assert_eq!(passed, if algorithm.name() == "leaky-bucket" { 101 } else { 100 }, "{algorithm:?}");
    }
}

#[test]
fn what_is_no_state_is_a_fresh_one() {
    let mut server = Server::start();
    for (number, algorithm) in (0..).zip(all(10, DAY)) {
        let charge = charge(&algorithm, key(0, number), 1);
        server.command(&["SET", &named(&charge), "hello"]);
        let reply = server.decide(&[charge]);
        let (_, expected) = algorithm.decide(<_>::default(), reply.now, charge.cost);
        assert_eq!(reply.outcome.decisions[0], expected, "{algorithm:?}");
        assert!(server.decide(&[charge]).outcome.decisions[0].remaining < 10, "{algorithm:?}");
    }
}

#[test]
fn a_call_that_fails_has_charged_nothing() {
    let (mut server, algorithm) = (Server::start(), all(10, DAY).remove(0));
    let (good, bad) = (charge(&algorithm, key(0, 0), 1), charge(&algorithm, key(0, 1), 1));
    server.command(&["RPUSH", &named(&bad), "a list"]);
    assert!(error(server.try_decide(&[good, bad])).contains("WRONGTYPE"));
    assert_eq!(server.changes(), 1);
}

#[test]
fn a_full_server_refuses_to_charge_but_still_looks() {
    let (mut server, algorithm) = (Server::start(), all(2, DAY).remove(0));
    let (one, other) = (charge(&algorithm, key(0, 0), 2), charge(&algorithm, key(0, 1), 2));
    server.decide(&[one]);
    server.command(&["CONFIG", "SET", "maxmemory", "1"]);
    let before = server.changes();
    assert!(error(server.try_decide(&[other])).contains("OOM"));
    assert!(error(server.try_decide(&[charge(&algorithm, key(0, 2), 1), other])).contains("OOM"));
    assert_eq!(server.changes(), before);
    assert!(!admits(server.decide(&[one]).outcome.decisions[0].verdict));
}

#[test]
fn a_state_takes_as_much_memory_as_is_told() {
    let mut server = Server::start();
    let rate = Rate::new(1_000, DAY).unwrap();
    for (number, algorithm) in (0..).zip(all(1_000, DAY)) {
        let charge = charge(&algorithm, key(0, number), 1);
        server.decide(&[charge]);
        let one = server.command(&["MEMORY", "USAGE", &named(&charge)]).integer();
        assert!(one <= 280, "{algorithm:?}: {one} B");
        println!("{} {one} B", algorithm.name());
    }
    let log = Algorithm::sliding_log(rate, None, false);
    let charge = charge(&log, key(0, 100), 1);
    for _ in 0..1_000 {
        server.decide(&[charge]);
    }
    let many = server.command(&["MEMORY", "USAGE", &named(&charge)]).integer();
    println!("1000 events {many} B, key {} B", named(&charge).len());
    assert!(many <= 280 + 2 * 16 * 1_000, "{many} B");
}
