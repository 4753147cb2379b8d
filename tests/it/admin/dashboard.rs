//! The dashboard in headless Chromium: its page before a mock of the API, and the night story before the real gateway.
//!
//! Both are told in Python, whose standard library steers the browser: `tests/dashboard/`. Each test there is one here, so that they run
//! beside each other and each has its own time limit.

use crate::harness::{binary, tools};

fn plays(script: &str, arguments: &[&str]) {
    tools::assert_browser();
    let output = tools::needed("python3")
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
fn settled_costs_in_a_browser() {
    plays("costs.py", &["Costs"]);
}

/// Random traffic: the page, `top --once`, the API, the metrics and the access log tell the same of one second.
#[test]
fn no_view_of_the_same_second_contradicts_another() {
    plays("agreement.py", &["--binary", binary()]);
}

/// The tests of the page before a mock of the API, by their names in `page.py` without `test_`.
macro_rules! page {
    ($($name:ident),* $(,)?) => {
        const PAGE: &[&str] = &[$(stringify!($name)),*];
        mod page {
            $(#[test]
            fn $name() {
                super::plays("page.py", &[concat!("Page.test_", stringify!($name))]);
            })*
        }
    };
}

page![
    the_night_story,
    an_attack_with_wrong_keys_is_the_headline,
    refusals_of_no_limit_are_no_failures,
    an_outage_is_the_headline,
    silence_and_failures_are_no_good_news,
    a_server_is_drained_and_undrained,
    what_clients_send_is_text,
    numbers_beside_the_curves_are_the_newest,
    with_the_keyboard_alone,
    explain_reload_and_stop,
    routes_without_a_backend_are_explained,
    silence_and_return,
    the_question_for_the_token_stands_alone,
    hidden_it_rests_and_a_click_stays_on_its_row,
    a_shadow_never_stands_above_the_limit_that_refuses,
    a_trial_shows_what_it_refused_and_what_it_only_counted,
    a_colour_has_one_meaning,
    a_delay_by_a_limit_is_no_latency,
    one_of_one_up_is_not_red,
    rows_are_whole,
    a_phone_of_360_pixels,
    bans_are_listed_and_lifted,
    a_ban_in_shadow_is_marked_and_not_to_be_lifted,
    tiers_stand_with_limits_and_keys,
    routes_are_listed,
    what_cannot_be_taken_back_asks_first,
    backticks_are_code_and_never_markup,
];

#[test]
fn every_test_of_the_page_is_run() {
    let script = std::fs::read_to_string("tests/dashboard/page.py").unwrap();
    let names = script.lines().filter_map(|line| line.trim().strip_prefix("def test_")?.split('(').next());
    assert_eq!(names.collect::<Vec<_>>(), PAGE, "the list in this file is that of page.py");
}
