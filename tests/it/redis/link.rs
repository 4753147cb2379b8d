//! One worker's connection to one real server: calls go together, and fail fast when the server is not what it should be.

use std::io::Write as _;
use std::rc::Rc;
use std::sync::Arc;
use std::time::{Duration, Instant};

use tollgate::store::redis::errors::CallError;
use tollgate::store::redis::health::ServerHealths;
use tollgate::store::redis::nodes::Nodes;
use tollgate::store::redis::script::Script;
use tollgate::store::redis::settings::{RedisServer, RedisServers, RedisSettings};

use crate::harness::asker::{
    Asker, assert_down_at_once, assert_one_outage, eventually, logged, run, settings, single, together,
};
use crate::harness::{Redis, TIMEOUT};

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
        let asker = Asker::open(RedisSettings { timeout: Duration::from_millis(100), ..single(&redis) });
        asker.until_answered(1).await;
        redis.stop();
        for _ in 0..5 {
            assert_eq!(asker.ask(1).await, Err(CallError::Timeout));
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

/// A server that stalls once is not given up for it, however many wait.
#[test]
fn calls_that_time_out_together_are_one_failure() {
    let redis = Redis::start();
    run(async {
        let asker = Asker::open(RedisSettings { timeout: Duration::from_millis(100), ..single(&redis) });
        asker.until_answered(1).await;
        redis.stop();
        let answers = together(&asker, 100, 1).await;
        assert_eq!(answers, vec![Err(CallError::Timeout); 100]);
        redis.resume();
        assert!(asker.ask(1).await.is_ok());
    });
}

/// After a time-out, no caller waits for the reply.
#[test]
fn calls_fail_together_when_the_server_is_given_up() {
    let redis = Redis::start();
    run(async {
        let asker = Asker::open(RedisSettings { timeout: Duration::from_millis(100), ..single(&redis) });
        asker.until_answered(1).await;
        redis.stop();
        let rounds = std::iter::repeat_with(|| together(&asker, 100, 1));
        let mut late = 0;
        for round in rounds.take(20) {
            let answers = round.await;
            late += usize::from(answers[0] == Err(CallError::Timeout));
            if answers.iter().all(|answer| *answer == Err(CallError::Down)) {
                break;
            }
        }
        assert!((4..=10).contains(&late), "{late}");
        assert_eq!(asker.ask(1).await, Err(CallError::Down));
        redis.resume();
    });
}

#[test]
fn a_late_reply_goes_to_no_call() {
    let redis = Redis::start();
    run(async {
        let asker = Asker::open(RedisSettings { timeout: Duration::from_millis(200), ..single(&redis) });
        asker.until_answered(1).await;
        redis.stop();
        let late = together(&asker, 3, 1).await;
        assert!(late.iter().all(|it| *it == Err(CallError::Timeout)), "{late:?}");
        redis.resume();
        // The three were decided all the same, and this one's answer is its own.
        assert_eq!(asker.ask(1).await, Ok(999_995));
        assert_eq!(asker.ask(2).await, Ok(999_999));
        assert_eq!(redis.connections(), 1);
    });
}

#[test]
fn a_cancelled_call_leaves_nothing_behind() {
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
fn a_lost_connection_is_replaced_at_once_and_no_call_fails() {
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
fn a_replica_is_not_asked_until_it_is_a_master() {
    let redis = Redis::start();
    let reason = "it is a replica, which takes no writes (READONLY)";
    is_not_asked_until(&redis, reason, || redis.read_only(), || redis.writable());
}

#[test]
fn a_full_server_is_not_asked_until_there_is_room() {
    let redis = Redis::start();
    is_not_asked_until(&redis, "its memory is full (OOM)", || redis.fill(), || redis.drain());
}

fn is_not_asked_until(redis: &Redis, reason: &str, fall: impl Fn(), recover: impl Fn()) {
    let ((), lines) = run(logged(async {
        let asker = Asker::open(single(redis));
        asker.until_answered(1).await;
        fall();
        let refused = asker.ask(1).await;
        assert!(
            matches!(refused, Err(CallError::Refused(code)) if reason.contains(code.as_str())),
            "{refused:?}"
        );
        asker.until_down(1).await;
        assert_down_at_once(&asker).await;
        assert_eq!(asker.reasons(), reason);
        recover();
        asker.until_answered(1).await;
        assert_eq!(redis.connections(), 1);
    }));
    assert_one_outage(&lines, &redis.addr().to_string(), reason);
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
                matches!(refused, Err(CallError::Refused(code)) if code.as_str() == "WRONGTYPE"),
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
        let asker = Asker::open(RedisSettings { timeout: Duration::from_millis(50), ..single(&redis) });
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
        let (script, healths) = (Arc::new(Script::new()), Arc::new(ServerHealths::default()));
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
        // The first reports to the others, which do not wait for their own next try.
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
        let asker = Asker::open(RedisSettings { timeout: TIMEOUT, ..single(&redis) });
        asker.until_answered(1).await;
        let answers = together(&asker, 9_000, 1).await;
        let busy = answers.iter().filter(|it| **it == Err(CallError::Busy)).count();
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
        let asker =
            Asker::open(settings(RedisServers::Single(RedisServer { host: "localhost".into(), port })));
        asker.until_down(1).await;
        assert_eq!(asker.reasons(), "it does not speak the protocol of Redis: a value begins with byte 72");
    });
}
