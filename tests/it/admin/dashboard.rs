//! The dashboard in headless Chromium: its page before a mock of the API, and the night story before the real gateway.
//!
//! Both are told in Python, whose standard library steers the browser: `tests/dashboard/`. A test here runs some of those there.

use std::io::{BufRead as _, BufReader};
use std::net::SocketAddr;
use std::process::Stdio;

use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::Value;
use tollgate::admin_api::bans::BanList;
use tollgate::admin_api::changes::ShutdownReport;
use tollgate::admin_api::explain::ExplainReport;
use tollgate::admin_api::keys::{KeyList, KeyState};
use tollgate::admin_api::limits::LimitList;
use tollgate::admin_api::refusals::RefusalList;
use tollgate::admin_api::routes::RouteList;
use tollgate::admin_api::samples::SampleList;
use tollgate::admin_api::servers::DrainReport;
use tollgate::admin_api::status::StatusReport;
use tollgate::admin_api::usage::UsageList;

use crate::harness::{binary, send, tools};

fn plays(script: &str, arguments: &[&str]) {
    tools::browser();
    let output = tools::python(&[])
        .arg(format!("tests/dashboard/{script}"))
        .args(arguments)
        .output()
        .expect("it can be run");
    assert!(
        output.status.success(),
        "{script} failed\n{}{}",
        String::from_utf8_lossy(&output.stdout),
        String::from_utf8_lossy(&output.stderr)
    );
}

#[test]
fn the_night_story_in_a_browser() {
    plays("story.py", &["--binary", binary()]);
}

#[test]
fn the_failure_of_a_backend_in_a_browser() {
    plays("backends.py", &["--binary", binary()]);
}

#[test]
fn usage_of_a_real_gateway_in_a_browser() {
    plays("usage.py", &["--binary", binary(), "RealUsage"]);
}

/// Random traffic: the page, `top --once`, the API, the metrics and the access log tell the same of one second.
#[test]
fn no_view_of_the_same_second_contradicts_another() {
    plays("agreement.py", &["--binary", binary()]);
}

/// The value with `null` for all but objects and lists.
fn names(value: &Value) -> Value {
    match value {
        Value::Object(fields) => fields.iter().map(|(name, value)| (name.clone(), names(value))).collect(),
        Value::Array(items) => items.iter().map(names).collect(),
        _ => Value::Null,
    }
}

/// The mock's response to a request is a value of this type, with all fields and no other.
#[track_caller]
fn responds<T: DeserializeOwned + Serialize>(mock: SocketAddr, line: &str, body: &str) {
    let request = format!(
        "{line} HTTP/1.0\r\ncontent-type: application/json\r\ncontent-length: {}\r\n\r\n{body}",
        body.len()
    );
    let told = send(mock, request).json();
    let read: T = serde_json::from_value(told.clone()).unwrap_or_else(|fault| panic!("{line}: {fault}"));
    assert_eq!(names(&told), names(&serde_json::to_value(read).expect("JSON")), "{line}");
}

/// What the page is tested with is what the gateway sends.
#[test]
fn the_mock_responds_with_the_types_of_the_api() {
    let mut mock = tools::python(&[]);
    mock.args(["tests/dashboard/mock.py", "--port", "0"]).stdout(Stdio::piped());
    let mut mock = mock.spawn().expect("it starts");
    let mut url = String::new();
    BufReader::new(mock.stdout.take().expect("piped")).read_line(&mut url).expect("text");
    let address = url.trim().trim_start_matches("http://").trim_end_matches('/').parse().expect("an address");
    let checked = std::panic::catch_unwind(|| {
        responds::<StatusReport>(address, "GET /api/v1/status", "");
        responds::<SampleList>(address, "GET /api/v1/samples", "");
        responds::<RouteList>(address, "GET /api/v1/routes", "");
        responds::<LimitList>(address, "GET /api/v1/limits", "");
        responds::<RefusalList>(address, "GET /api/v1/refusals", "");
        responds::<KeyList>(address, "GET /api/v1/limits/per-plan/keys", "");
        responds::<KeyState>(address, "GET /api/v1/limits/per-client/keys/203.0.113.7", "");
        responds::<KeyState>(
            address,
            "POST /api/v1/limits/per-client/keys/203.0.113.7/ban",
            r#"{"for": "1h"}"#,
        );
        responds::<UsageList>(address, "GET /api/v1/limits/per-plan/usage", "");
        responds::<UsageList>(address, "GET /api/v1/limits/per-plan/usage?window=previous", "");
        responds::<BanList>(address, "GET /api/v1/bans", "");
        for path in ["/search/hats", "/old/hats", "/closed"] {
            responds::<ExplainReport>(address, "POST /api/v1/explain", &format!(r#"{{"url": "{path}"}}"#));
        }
        responds::<DrainReport>(address, "POST /api/v1/upstreams/shop/servers/10.0.0.3:9000/drain", "");
        responds::<ShutdownReport>(address, "POST /api/v1/drain", "");
    });
    mock.kill().and_then(|()| mock.wait()).expect("it ends");
    checked.unwrap_or_else(|fault| std::panic::resume_unwind(fault));
}

/// The tests of the page before a mock of the API: a module for each class of a script, with the names there without `test_`. Each
/// group is one test, which starts one browser.
macro_rules! scenes {
    ($module:ident: $script:literal $class:literal $($group:ident: $($name:ident)*;)*) => {
        mod $module {
            #[test]
            fn each_test_of_the_script_is_run() {
                super::is_all_of($script, $class, &[$($(stringify!($name)),*),*]);
            }

            $(#[test]
            fn $group() {
                super::plays($script, &[$(concat!($class, ".test_", stringify!($name))),*]);
            })*
        }
    };
}

/// These are the tests of the class, without `test_`.
#[track_caller]
fn is_all_of(script: &str, class: &str, names: &[&str]) {
    let text = std::fs::read_to_string(format!("tests/dashboard/{script}")).unwrap();
    let lines = text.lines().skip_while(|line| !line.starts_with(&format!("class {class}(")));
    let lines = lines.skip(1).take_while(|line| line.is_empty() || line.starts_with("    "));
    let tests = lines.filter_map(|line| line.strip_prefix("    def test_")?.split('(').next());
    let (mut tests, mut names) = (tests.collect::<Vec<_>>(), names.to_vec());
    tests.sort_unstable();
    names.sort_unstable();
    assert_eq!(tests, names, "the list in this file is that of {class} in {script}");
}

scenes! { page: "page.py" "Page"
    work:
        the_night_story
        with_the_keyboard_alone
        explain_reload_and_stop
        what_cannot_be_taken_back_asks_first
        the_question_for_the_token_stands_alone
        the_sentence_leads_to_its_section;
    headlines:
        an_attack_with_wrong_keys_is_the_headline
        refusals_of_no_limit_are_no_failures
        an_outage_is_the_headline
        silence_and_failures_are_no_good_news
        silence_and_return
        a_failure_shows_its_server;
    curves:
        numbers_beside_the_curves_are_the_newest
        a_chart_without_values_is_a_line
        times_of_a_short_history_are_whole
        a_delay_by_a_limit_is_no_latency
        hidden_it_rests_and_a_click_stays_on_its_row
        backends_stand_beside_the_limits_above_the_curves;
    limits_and_bans:
        a_shadow_never_stands_above_the_limit_that_refuses
        a_trial_shows_what_it_refused_and_what_it_only_counted
        bans_are_listed_and_lifted
        a_ban_in_shadow_is_marked_and_not_to_be_lifted
        tiers_stand_with_limits_and_keys
        masked_keys_say_how_they_are_revealed;
    routes_and_servers:
        a_server_is_drained_and_undrained
        routes_without_a_backend_are_explained
        routes_are_listed
        what_clients_send_is_text
        backticks_are_code_and_never_markup;
    appearance:
        row_buttons_appear_with_the_pointer_and_the_focus
        a_phone_shows_first_who_it_is
        each_control_has_a_name_and_each_text_its_contrast
        a_colour_has_one_meaning
        one_of_one_up_is_not_red
        rows_are_whole
        a_phone_of_360_pixels;
}

scenes! { usage: "usage.py" "Usage"
    contents:
        consumers_stand_with_units_share_and_forecast
        a_window_is_chosen
        a_limit_is_chosen
        without_usage_nothing_is_shown
        what_is_missing_is_told;
    handling:
        the_csv_is_downloaded_with_the_token
        a_name_is_text_in_its_cell
        a_phone_shows_all_of_it
        with_the_keyboard_alone
        reports_are_asked_for_rarely;
}

scenes! { costs: "costs.py" "Costs"
    settled_costs:
        without_settled_costs_nothing_is_shown
        units_stand_beside_requests
        keys_are_ordered_by_units
        a_phone_shows_all_of_it
        an_explanation_tells_how_the_cost_is_settled
        debt_is_shown;
}
