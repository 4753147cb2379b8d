//! `mirror` of a route: copies of its requests for another upstream.

mod bodies;
mod bounds;
mod copies;
mod faults;
mod protocols;
mod shares;
mod views;

use crate::harness::{Backend, Gateway, eventually};

/// A route `all` to `api`, whose mirror is `canary`. `more`: further keys of its `mirror`; `route`: lines of the route.
fn file(api: &Backend, canary: &Backend, more: &str, route: &str) -> String {
    with_urls((&api.url(), &canary.url()), (more, route), "")
}

/// The same of these URLs. `upstream`: lines of the table of `canary`.
fn with_urls((api, canary): (&str, &str), (more, route): (&str, &str), upstream: &str) -> String {
    format!(
        "[upstreams]\napi = \"{api}\"\n[upstreams.canary]\nservers = [\"{canary}\"]\n{upstream}\n\
         [admin]\nlisten = \"127.0.0.1:0\"\n\
         [[routes]]\nname = \"all\"\npath = \"/*\"\nupstream = \"api\"\nmirror = {{ upstream = \"canary\"{more} }}\n{route}\n"
    )
}

/// Requests to be copied that had this result.
fn counted(gateway: &Gateway, result: &str) -> f64 {
    let result = format!("result=\"{result}\"");
    gateway.metric("tollgate_mirrored_requests_total", &["route=\"all\"", &result])
}

/// Requests to be copied, whatever became of them.
fn all_counted(gateway: &Gateway) -> f64 {
    gateway.metric("tollgate_mirrored_requests_total", &["route=\"all\""])
}

/// Waits until this number of requests had this result, and no other request had another one.
#[track_caller]
fn wait_for(gateway: &Gateway, result: &str, count: u32) {
    let count = f64::from(count);
    eventually(&format!("{count} of `{result}`"), || (counted(gateway, result) >= count).then_some(()));
    assert_eq!((counted(gateway, result), all_counted(gateway)), (count, count), "`{result}` and all");
}

fn post(path: &str, body: &str) -> String {
    format!("POST {path} HTTP/1.1\r\nhost: test\r\ncontent-length: {}\r\n\r\n{body}", body.len())
}
