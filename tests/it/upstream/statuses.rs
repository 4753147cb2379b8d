//! Responses that count as failures (`eject.statuses`), and those after which a request is sent again (`retry.on`).

use crate::harness::servers::{is_up, over, over_within};
use crate::harness::{Backend, Client, Gateway, Next, send};

const SICK: &str = "HTTP/1.1 503 Service Unavailable\r\ncontent-length: 4\r\n\r\nsick";
const ONE_WORKER: &str = "[server]\nworkers = 1\n[admin]";

fn sick() -> Backend {
    Backend::answering(SICK)
}

/// One worker before these servers.
fn one_worker(servers: &[&Backend], lines: &str) -> Gateway {
    Gateway::start(&over(servers, lines).replace("[admin]", ONE_WORKER))
}

fn retried(gateway: &Gateway, reason: &str) -> f64 {
    gateway.metric("tollgate_upstream_retries_total", &[&format!("reason=\"{reason}\"")])
}

#[test]
fn a_server_with_such_statuses_is_ejected_and_answers_pass() {
    let (sick, good) = (sick(), Backend::ok());
    let rule = "eject = { failures = 3, for = \"1h\", statuses = [\"5xx\", \"429\"] }";
    let gateway = Gateway::start(&over(&[&sick, &good], rule));
    let statuses: Vec<u16> = (0..40).map(|_| gateway.get("/").status).collect();
    assert_eq!(statuses.iter().filter(|status| **status == 503).count(), 3, "{statuses:?}");
    assert_eq!((sick.count(), good.count()), (3, 37));
    assert!(!is_up(&gateway, &sick) && is_up(&gateway, &good));
    gateway.wait_for_log("is down and is ejected: 3 failures in a row, it answered 503");
}

#[test]
fn other_statuses_reset_the_count() {
    let turns = std::sync::atomic::AtomicUsize::new(0);
    let ill = Backend::start(move |exchange| {
        let turn = turns.fetch_add(1, std::sync::atomic::Ordering::SeqCst);
        let status = if turn % 3 == 2 { "404 Not Found" } else { "500 Oh" };
        exchange.write(format!("HTTP/1.1 {status}\r\ncontent-length: 0\r\n\r\n"));
        Next::KeepAlive
    });
    let good = Backend::ok();
    let gateway = one_worker(&[&ill, &good], "eject = { failures = 3, statuses = [\"500\"] }");
    (0..60).for_each(|_| drop(gateway.get("/")));
    assert_eq!((ill.count(), good.count()), (30, 30));
}

#[test]
fn an_idempotent_request_is_sent_to_another_server() {
    let (sick, good) = (sick(), Backend::ok());
    let gateway = one_worker(&[&sick, &good], "eject = { failures = 0 }\nretry = { on = [\"503\"] }");
    let mut client = Client::connect(gateway.addr());
    (0..40).for_each(|_| drop(client.get("/", "").expect(200)));
    assert_eq!((sick.count(), good.count()), (20, 40));
    assert_eq!(retried(&gateway, "status"), 20.0);
    // The connection to the server that answered whole responses is kept.
    assert_eq!(sick.connections(), 1);
    // Responses that clients got are counted, and no others.
    let served = |class| gateway.metric("tollgate_upstream_responses_total", &[class]);
    assert_eq!((served("class=\"2xx\""), served("class=\"5xx\"")), (40.0, 0.0));
}

#[test]
fn a_post_never_is() {
    let (sick, good) = (sick(), Backend::ok());
    let gateway = one_worker(&[&sick, &good], "retry = { on = [\"5xx\", \"timeout\"] }");
    let post = "POST / HTTP/1.1\r\nhost: test\r\ncontent-length: 2\r\n\r\nhi";
    let statuses: Vec<u16> = (0..20).map(|_| send(gateway.addr(), post).status).collect();
    assert_eq!(statuses.iter().filter(|status| **status == 503).count(), 10);
    assert_eq!((sick.count(), good.count()), (10, 10));
    assert_eq!(retried(&gateway, "status"), 0.0);
}

/// Reads the body, then answers 503.
fn reading() -> Backend {
    Backend::start(|exchange| {
        exchange.read_body();
        exchange.write(SICK);
        Next::KeepAlive
    })
}

/// Reads the body, then answers it.
fn echo() -> Backend {
    Backend::start(|exchange| {
        let body = exchange.read_body();
        exchange.write(format!("HTTP/1.1 200 OK\r\ncontent-length: {}\r\n\r\n", body.len()));
        exchange.write(body);
        Next::KeepAlive
    })
}

#[test]
fn a_small_body_is_kept_however_it_comes_and_a_large_one_is_not() {
    let (sick, good) = (reading(), echo());
    let gateway =
        one_worker(&[&sick, &good], "eject = { failures = 0 }\nretry = { on = [\"503\"], budget = 1 }");
    for length in [1, 1_000, 15_000] {
        let body = "b".repeat(length);
        for parts in [1, 3] {
            for chunked in [false, true] {
                for _ in 0..2 {
                    let mut client = Client::connect(gateway.addr());
                    let framing = match chunked {
                        true => "transfer-encoding: chunked".to_owned(),
                        false => format!("content-length: {length}"),
                    };
                    client.write(format!("PUT / HTTP/1.1\r\nhost: test\r\n{framing}\r\n\r\n"));
                    for part in body.as_bytes().chunks(length.div_ceil(parts)) {
                        if parts > 1 {
                            std::thread::sleep(std::time::Duration::from_millis(20));
                        }
                        match chunked {
                            true => {
                                client.write(format!("{:x}\r\n", part.len()));
                                client.write(part);
                                client.write("\r\n");
                            }
                            false => client.write(part),
                        }
                    }
                    if chunked {
                        client.write("0\r\n\r\n");
                    }
                    assert_eq!(client.read().expect(200).text(), body, "{length} {parts} {chunked}");
                }
            }
        }
    }
    // Half of the requests met the sick server first, and got their answer from the other.
    assert_eq!((sick.count(), good.count()), (12, 24));
    let large =
        format!("PUT / HTTP/1.1\r\nhost: test\r\ncontent-length: 200000\r\n\r\n{}", "b".repeat(200_000));
    let statuses = [(); 2].map(|()| send(gateway.addr(), large.clone()).status);
    assert!(statuses.contains(&503) && statuses.contains(&200), "{statuses:?}");
}

#[test]
fn silence_is_retried_where_the_file_says_so() {
    let hanging = Backend::start(|exchange| {
        exchange.hang();
        Next::Close
    });
    let good = Backend::ok();
    let lines = "eject = { failures = 0 }\nretry = { on = [\"timeout\"] }";
    let file = over_within(&[&hanging, &good], lines, "2s");
    let gateway = Gateway::start(&file.replace("[admin]", ONE_WORKER));
    let mut client = Client::connect(gateway.addr());
    (0..4).for_each(|_| drop(client.get("/", "").expect(200)));
    assert_eq!((hanging.count(), good.count()), (2, 4));
    assert_eq!(retried(&gateway, "timeout"), 2.0);
    let statuses = [(); 2]
        .map(|()| send(gateway.addr(), "POST / HTTP/1.1\r\nhost: test\r\ncontent-length: 0\r\n\r\n").status);
    assert!(statuses.contains(&504), "{statuses:?}");
    assert_eq!(hanging.count(), 3);
}

/// A byte of the response has gone on to the client.
#[test]
fn after_an_interim_response_nothing_is_retried() {
    let sick = Backend::answering(format!("HTTP/1.1 103 Early Hints\r\nlink: </a>\r\n\r\n{SICK}"));
    let good = Backend::ok();
    let gateway = one_worker(&[&sick, &good], "retry = { on = [\"503\"] }");
    for _ in 0..4 {
        drop(gateway.get("/"));
    }
    assert_eq!((sick.count(), good.count()), (2, 2));
}

#[test]
fn the_last_answer_is_passed_on_when_all_servers_are_sick() {
    let servers = [sick(), sick(), sick()];
    let all: Vec<_> = servers.iter().collect();
    let gateway = one_worker(&all, "retry = { attempts = 3, on = [\"5xx\"], budget = 1 }");
    for _ in 0..10 {
        assert_eq!(gateway.get("/").expect(503).text(), "sick");
    }
    assert_eq!(servers.iter().map(Backend::count).collect::<Vec<_>>(), [10, 10, 10]);
}
