//! When the authority suggests to renew a certificate (ARI, RFC 9773).

use std::time::Duration;

use serde::Deserialize;

use super::http::{AuthorityClient, AuthorityFault, retry_after};
use crate::limit::units::Micros;
use crate::limit::wall_clock::WallTime;

/// How often it is asked where it does not say.
pub const ASKED_EVERY: Duration = Duration::from_secs(6 * 3_600);
/// The range of what it says (RFC 9773 §4.3.2).
const RANGE: [Duration; 2] = [Duration::from_secs(60), Duration::from_secs(86_400)];

#[derive(Deserialize)]
struct RenewalAnswer {
    #[serde(rename = "suggestedWindow")]
    window: RenewalWindow,
}

#[derive(Deserialize)]
struct RenewalWindow {
    start: String,
    end: String,
}

/// A moment in the window that the authority suggests for the certificate `id`, chosen by `draw` (0 to 1), and after how
/// long it is asked again.
///
/// # Errors
///
/// There is no such answer.
pub async fn suggested(
    client: &AuthorityClient,
    url: &str,
    id: &str,
    draw: f64,
) -> Result<(WallTime, Duration), AuthorityFault> {
    let response = client.get(&format!("{}/{id}", url.trim_end_matches('/'))).await?;
    if !response.status().is_success() {
        return Err(AuthorityFault::Status(response.status()));
    }
    let moment = moment(response.body(), draw).ok_or(AuthorityFault::Body)?;
    let [least, most] = RANGE;
    Ok((moment, retry_after(response.headers()).map_or(ASKED_EVERY, |wish| wish.clamp(least, most))))
}

fn moment(body: &[u8], draw: f64) -> Option<WallTime> {
    let RenewalAnswer { window: RenewalWindow { start, end } } = serde_json::from_slice(body).ok()?;
    let seconds = |text: &str| u64::try_from(text.parse::<jiff::Timestamp>().ok()?.as_second()).ok();
    let (start, end) = (seconds(&start)?, seconds(&end)?);
    #[expect(
        clippy::cast_precision_loss,
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "a share of a span"
    )]
    let into = (end.checked_sub(start)? as f64 * draw.clamp(0.0, 1.0)) as u64;
    Some(WallTime(start.saturating_add(into).saturating_mul(Micros::SECOND.0)))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_moment_of_the_window_is_drawn() {
        let body = br#"{"suggestedWindow":{"start":"2026-01-02T04:00:00Z","end":"2026-01-03T04:00:00Z"},"explanationURL":"x"}"#;
        let at = |draw| moment(body, draw).unwrap().seconds();
        assert_eq!((at(0.0), at(0.5), at(1.0)), (1_767_326_400, 1_767_369_600, 1_767_412_800));
        let faulty: [&[u8]; 5] = [
            b"{}",
            b"",
            br#"{"suggestedWindow":{"start":"2026-01-03T04:00:00Z","end":"2026-01-02T04:00:00Z"}}"#,
            br#"{"suggestedWindow":{"start":"soon","end":"later"}}"#,
            br#"{"suggestedWindow":{"start":7,"end":8}}"#,
        ];
        for body in faulty {
            assert_eq!(moment(body, 0.5), None, "{}", String::from_utf8_lossy(body));
        }
    }

    proptest! {
        #[test]
        fn any_answer_is_read_without_a_panic(bytes: Vec<u8>, start in "\\PC{0,40}", end in "\\PC{0,40}", draw: f64) {
            moment(&bytes, draw);
            let window = serde_json::json!({ "suggestedWindow": { "start": start, "end": end } });
            moment(window.to_string().as_bytes(), draw);
        }

        #[test]
        fn a_moment_is_within_its_window(start in 0_i64..253_402_207_200, length in 0_i64..40_000_000, draw: f64) {
            let text = |at: i64| jiff::Timestamp::from_second(at.min(253_402_207_200)).unwrap().to_string();
            let (begin, end) = (start, start.saturating_add(length).min(253_402_207_200));
            let window = serde_json::json!({ "suggestedWindow": { "start": text(begin), "end": text(end) } });
            let drawn = moment(window.to_string().as_bytes(), draw).unwrap().seconds();
            prop_assert!((begin.cast_unsigned()..=end.cast_unsigned()).contains(&drawn));
        }
    }
}
