//! The responses that docs/api.md shows have all fields of their types, and no other.

use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::Value;
use tollgate::admin_api::bans::BanList;
use tollgate::admin_api::explain::ExplainReport;
use tollgate::admin_api::keys::{KeyList, KeyState};
use tollgate::admin_api::limits::LimitList;
use tollgate::admin_api::refusals::RefusalList;
use tollgate::admin_api::routes::RouteList;
use tollgate::admin_api::samples::SampleList;
use tollgate::admin_api::status::StatusReport;
use tollgate::admin_api::usage::UsageList;

use crate::harness::pages::pages;

/// The responses that a page shows as JSON.
fn shown(path: &str) -> Vec<Value> {
    let pages = pages();
    let page = pages.iter().find(|page| page.path == path).expect("the page");
    let blocks = page.blocks().into_iter().filter(|block| block.info == "json");
    blocks.map(|block| serde_json::from_str(&block.text).expect("JSON")).collect()
}

/// The shown response with this field is one of the type, to the last field.
fn is_a<T: DeserializeOwned + Serialize>(shown: &Value) {
    let name = std::any::type_name::<T>();
    let read: T = serde_json::from_value(shown.clone()).unwrap_or_else(|error| panic!("{name}: {error}"));
    assert_eq!(serde_json::to_value(read).expect("JSON"), *shown, "{name}");
}

#[test]
fn docs_responses_of_the_api_have_the_fields_of_their_types() {
    let shown = shown("docs/api.md");
    let with = |field: &str| {
        // The samples have more than one of these fields, by name.
        let is_it = |value: &&Value| value.get(field).is_some() && value.get("count").is_none();
        let mut found = shown.iter().filter(is_it);
        let first = found.next().unwrap_or_else(|| panic!("no response has `{field}`"));
        assert!(found.next().is_none(), "several responses have `{field}`");
        first
    };
    is_a::<StatusReport>(with("last_reload"));
    is_a::<BanList>(with("total"));
    is_a::<RouteList>(with("routes"));
    is_a::<LimitList>(with("keys_error"));
    is_a::<KeyList>(with("followed"));
    is_a::<KeyState>(with("ban_cause"));
    is_a::<RefusalList>(with("refusals"));
    is_a::<ExplainReport>(with("untold"));
    is_a::<UsageList>(self::shown("docs/usage.md").first().expect("a response"));
    is_a::<SampleList>(shown.iter().find(|value| value.get("count").is_some()).expect("samples"));
}
