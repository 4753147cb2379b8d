//! Logs the automatic bans that have begun, a few a second: a flood of bans must not become a flood of lines.

use super::refusal_sample::time_of_day;
use crate::plan::{Limit, Mode, Plan};
use crate::route::key::LABEL_END;
use crate::store::bans::{BanCause, Bans, BegunBan};

/// Logs the bans that have begun since the last call.
pub(super) fn log_begun(bans: &Bans, plan: &Plan) {
    let (begun, more) = bans.take_begun();
    for ban in begun {
        // A reload may have removed the limit.
        if let Some(limit) = plan.limits.iter().find(|limit| limit.identity() == ban.banned.limit) {
            log(limit, &ban, bans);
        }
    }
    if more > 0 {
        tracing::warn!("{more} more bans in the same second: `GET /api/v1/bans` lists them");
    }
}

fn log(limit: &Limit, ban: &BegunBan, bans: &Bans) {
    let key = match bans.label(ban.banned) {
        Some(label) => label
            .split_terminator(LABEL_END)
            .map(|part| part.escape_debug().to_string())
            .collect::<Vec<_>>()
            .join(", "),
        None => format!("id:{:032x}", ban.banned.owner.0),
    };
    let (cause, until) = (limit.ban_cause(BanCause::Refusals), time_of_day(ban.until));
    let verb = match limit.mode {
        Mode::Enforce => "banned",
        Mode::Shadow => "would be banned",
    };
    tracing::warn!("{verb} by limit `{}`: {key}, {cause}, until {until} UTC", limit.name);
}
