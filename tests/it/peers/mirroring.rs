//! nginx as a mirror that stands still in the middle of a load: behind tollgate, and behind nginx's own `mirror`.

use std::time::Duration;

use rustix::process::Signal;

use crate::harness::{Client, Front, Gateway, eventually, tools};

/// nginx that answers `ok` itself.
fn server() -> Front {
    Front::nginx_file(|address, _| {
        format!("events {{}}\nhttp {{ server {{ listen {address}; location / {{ return 200 ok; }} }} }}\n")
    })
}

const REQUESTS: &str = "60000";

#[test]
fn no_request_fails_while_the_mirror_is_stopped_under_load() {
    let (api, canary) = (server(), server());
    let gateway = Gateway::start(&format!(
        "[upstreams]\napi = \"http://{}\"\ncanary = \"http://{}\"\n[admin]\nlisten = \"127.0.0.1:0\"\n[log]\naccess = \"off\"\n\
         [[routes]]\nname = \"all\"\npath = \"/*\"\nupstream = \"api\"\nmirror = {{ upstream = \"canary\" }}\ntimeout = \"2s\"\n",
        api.addr(),
        canary.addr()
    ));
    let counted =
        |result: &str| gateway.metric("tollgate_mirrored_requests_total", &[&format!("result=\"{result}\"")]);
    let mut load = tools::needed("h2load");
    load.args(["--h1", "-n", REQUESTS, "-c", "16", &format!("http://{}/", gateway.addr())]);
    let said = std::thread::scope(|scope| {
        let load = scope.spawn(move || load.output().expect("h2load runs"));
        eventually("copies", || (counted("sent") > 2_000.0).then_some(()));
        canary.signal(Signal::STOP);
        eventually("copies that find no place", || (counted("busy") > 500.0).then_some(()));
        canary.signal(Signal::CONT);
        String::from_utf8_lossy(&load.join().expect("no panic").stdout).into_owned()
    });
    let all = format!("{REQUESTS} succeeded, 0 failed, 0 errored, 0 timeout");
    assert!(said.contains(&all), "{said}");
    let total = || gateway.metric("tollgate_mirrored_requests_total", &[]);
    eventually("each is counted once", || (total() >= 60_000.0).then_some(()));
    assert_eq!(total(), 60_000.0);
    let before = counted("sent");
    let mut client = Client::connect(gateway.addr());
    eventually("copies are sent again", || {
        client.get("/", "").expect(200);
        (counted("sent") > before).then_some(())
    });
}

/// What docs/mirroring.md says of nginx: the next request of a kept connection waits.
#[test]
fn nginx_waits_for_its_mirror_on_a_kept_connection() {
    let (api, canary) = (server(), server());
    let (target, copies) = (api.addr(), canary.addr());
    let front = Front::nginx_file(|address, _| {
        format!(
            "events {{}}\nhttp {{ server {{ listen {address};\n\
             location / {{ mirror /copy; proxy_pass http://{target}; }}\n\
             location = /copy {{ internal; proxy_pass http://{copies}; }} }} }}\n"
        )
    });
    let mut client = Client::connect(front.addr());
    client.get("/", "").expect(200);
    client.get("/", "").expect(200);
    canary.signal(Signal::STOP);
    // Another connection: the copy of the last request may still be on its way.
    let mut client = Client::connect(front.addr());
    client.get("/", "").expect(200);
    client.write("GET / HTTP/1.1\r\nhost: test\r\n\r\n");
    assert!(client.silent_for(Duration::from_millis(500)), "it waits for the copy of the request before");
    canary.signal(Signal::CONT);
    client.read().expect(200);
}
