//! Where a mirror is shown: `explain`, the admin API, `check`.

use serde_json::json;

use super::file;
use crate::harness::api::{api, ask};
use crate::harness::{Backend, Gateway};

#[test]
fn explain_and_routes_tell_of_it() {
    let (api_server, canary) = (Backend::ok(), Backend::ok());
    let all = Gateway::start(&file(&api_server, &canary, ", max_body = \"1KiB\"", ""));
    let (status, explained) = ask(&all, "POST explain", "{\"url\": \"/a\"}");
    assert_eq!(
        (status, &explained["route"]["mirror"]),
        (200, &json!({ "upstream": "canary", "share": 1.0, "copied": true }))
    );
    let expected = json!({ "upstream": "canary", "share": 1.0, "key": ["consumer"], "max_body": 1024 });
    assert_eq!(api(&all, "routes")["routes"][0]["mirror"], expected);
    let few = Gateway::start(&file(&api_server, &canary, ", share = 0.000001, key = [\"ip\", \"host\"]", ""));
    let (_, explained) = ask(&few, "POST explain", "{\"url\": \"/a\"}");
    assert_eq!(explained["route"]["mirror"]["copied"], false);
    assert_eq!(api(&few, "routes")["routes"][0]["mirror"]["key"], json!(["ip", "host"]));
    assert_eq!(canary.count(), 0, "to explain copies nothing");
}
