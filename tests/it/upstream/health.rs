//! Active health checks: the requests, and their effects.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use crate::harness::servers::{failing, is_up, over};
use crate::harness::{Backend, Gateway, Next, eventually};

const OFTEN: &str = "health = { path = \"/up?brief=1\", interval = \"20ms\", timeout = \"200ms\" }";

/// A server that answers `/up` with the status that is set (0: not at all), and all else with 200.
fn server(status: usize) -> (Backend, Arc<AtomicUsize>) {
    let status = Arc::new(AtomicUsize::new(status));
    let answered = Arc::clone(&status);
    let backend = Backend::start(move |exchange| {
        exchange.read_body();
        let status = if exchange.target().starts_with("/up") { answered.load(Ordering::SeqCst) } else { 200 };
        if status == 0 {
            exchange.hang();
            return Next::Close;
        }
        exchange.write(format!("HTTP/1.1 {status} Status\r\ncontent-length: 0\r\n\r\n"));
        Next::KeepAlive
    });
    (backend, status)
}

/// Requests but for health checks.
fn requests(server: &Backend) -> usize {
    server.requests().iter().filter(|request| !request.target().starts_with("/up")).count()
}

/// Waits for lines of the program log, which are written a moment after what they tell of.
fn wait_for_words(gateway: &Gateway, words: &[&str]) {
    for words in words {
        gateway.wait_for_log(words);
    }
}

fn wait_until(gateway: &Gateway, server: &Backend, up: bool) {
    eventually(&format!("the server to be up = {up}"), || (is_up(gateway, server) == up).then_some(()));
}

#[test]
fn an_unhealthy_server_gets_no_requests_until_it_is_well() {
    let ((good, _), (sick, status)) = (server(204), server(500));
    let gateway = Gateway::start(&over(&[&good, &sick], OFTEN));
    wait_until(&gateway, &sick, false);
    let before = requests(&sick);
    (0..20).for_each(|_| _ = gateway.get("/").expect(200));
    assert_eq!((requests(&good), requests(&sick)), (20, before));
    assert!(is_up(&gateway, &good));
    // A redirection is a good answer.
    status.store(302, Ordering::SeqCst);
    wait_until(&gateway, &sick, true);
    (0..20).for_each(|_| _ = gateway.get("/").expect(200));
    assert!(requests(&sick) >= before + 5);
    wait_for_words(&gateway, &["is healthy again"]);
    let told = |words: &str| gateway.stderr_lines().iter().filter(|line| line.contains(words)).count();
    assert_eq!((told("is unhealthy: it answered 500"), told("is healthy again")), (1, 1));
}

#[test]
fn the_question_is_a_plain_get() {
    let (good, _) = server(200);
    let _gateway = Gateway::start(&over(&[&good], &format!("{OFTEN}\nhost = \"search.internal\"")));
    good.wait_for(2);
    let question = good.latest();
    assert_eq!(question.request_line(), "GET /up?brief=1 HTTP/1.1");
    assert_eq!(question.header("host").as_deref(), Some("search.internal"));
    assert_eq!(question.header("connection").as_deref(), Some("close"));
}

#[test]
fn where_none_is_healthy_the_answer_is_503() {
    let ((hanging, status), (closed, _held)) = (server(0), Backend::refusing());
    let file = over(&[&hanging], OFTEN).replace("servers = [", &format!("servers = [\"http://{closed}\", "));
    let gateway = Gateway::start(&file);
    wait_until(&gateway, &hanging, false);
    let answer = eventually("503", || Some(gateway.get("/")).filter(|answer| answer.status == 503));
    assert_eq!(answer.header("content-type"), Some("application/problem+json"));
    let record = eventually("the record of a 503", || {
        gateway.access_log(1).into_iter().find(|record| record["status"] == 503)
    });
    assert_eq!((record["error"].as_str(), record["upstream"].as_str()), (Some("no_healthy_upstream"), None));
    wait_for_words(&gateway, &["is unhealthy: no connection", "is unhealthy: no answer within 200ms"]);
    status.store(200, Ordering::SeqCst);
    wait_until(&gateway, &hanging, true);
    gateway.get("/").expect(200);
}

#[test]
fn garbage_is_no_sign_of_health() {
    let garbage = Backend::answering_once("+PONG\r\n\r\n");
    let (good, _) = server(200);
    let gateway = Gateway::start(&over(&[&garbage, &good], OFTEN));
    wait_until(&gateway, &garbage, false);
    wait_for_words(&gateway, &["is unhealthy: its answer is not HTTP"]);
}

#[test]
fn a_reload_begins_and_ends_checks() {
    let (sick, _) = server(500);
    let gateway = Gateway::start(&over(&[&sick], ""));
    gateway.get("/").expect(200);
    gateway.reload(&over(&[&sick], OFTEN), "reloaded:");
    wait_until(&gateway, &sick, false);
    gateway.get("/").expect(503);
    // The same checks go on, and what is known stays.
    let other = over(&[&sick], OFTEN).replace("\"30s\"", "\"31s\"");
    gateway.reload(&other, "reloaded:");
    gateway.get("/").expect(503);
    gateway.reload(&over(&[&sick], ""), "reloaded:");
    wait_until(&gateway, &sick, true);
    gateway.get("/").expect(200);
}

/// A server that passes its checks but fails requests is ejected all the same.
#[test]
fn health_and_ejection_both_count() {
    let broken = Backend::start(|exchange| {
        if !exchange.target().starts_with("/up") {
            return Next::Reset;
        }
        exchange.write("HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n");
        Next::KeepAlive
    });
    let ((good, _), (sick, _)) = (server(200), server(500));
    let lines = format!("{OFTEN}\neject = {{ failures = 1, for = \"1h\" }}");
    let gateway = Gateway::start(&over(&[&broken, &good, &sick], &lines));
    wait_until(&gateway, &sick, false);
    (0..20).for_each(|_| _ = gateway.get("/").expect(200));
    assert_eq!(requests(&broken), 1);
    assert!(!is_up(&gateway, &broken) && is_up(&gateway, &good));
}

#[test]
fn an_ejected_server_is_asked_before_an_unhealthy_one() {
    let (ejected, broken) = failing();
    let (other, status) = server(200);
    // While it is broken it fails its checks, too, but far too few of them to count.
    let rule = "eject = { failures = 1, for = \"1h\" }\n\
                health = { path = \"/up\", interval = \"20ms\", unhealthy = 1_000_000 }";
    broken.store(false, Ordering::SeqCst);
    let gateway = Gateway::start(&over(&[&ejected, &other], rule));
    // The first check is over when the second comes.
    ejected.wait_for(2);
    broken.store(true, Ordering::SeqCst);
    eventually("its ejection", || {
        gateway.get("/").expect(200);
        (!is_up(&gateway, &ejected)).then_some(())
    });
    broken.store(false, Ordering::SeqCst);
    status.store(500, Ordering::SeqCst);
    // Checks that change begin anew, and the first answer decides.
    gateway.reload(&over(&[&ejected, &other], &rule.replace("20ms", "30ms")), "reloaded:");
    wait_until(&gateway, &other, false);
    let before = requests(&other);
    (0..10).for_each(|_| _ = gateway.get("/").expect(200));
    assert_eq!(requests(&other), before);
    assert!(!is_up(&gateway, &ejected), "it stays ejected, and serves for want of a better one");
}
