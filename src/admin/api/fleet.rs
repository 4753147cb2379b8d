//! `GET fleet`: the gateways that share the store; and what is wrong with them, in sentences.

use super::ApiError;
use super::values::{moment, wall_moment};
use crate::admin_api::fleet::{FleetReport, GatewayReport};
use crate::limit::wall_clock;
use crate::shared::Shared;
use crate::shared::worker_commands::WorkerCommand;
use crate::store::Unreachable;
use crate::store::fleet::{FleetGateway, FleetView};

/// The maximum number of gateways named in one sentence.
const MAX_NAMED: usize = 3;
/// Clocks that are further apart, in ms, are a problem: the same threshold as in `deploy/alerts.yml`.
const APART_MS: u32 = 1_000;

/// Lists the gateways as the store knows them now.
pub(super) async fn get(shared: &Shared) -> Result<FleetReport, ApiError> {
    let read = shared.worker_commands.ask_one(WorkerCommand::Fleet).await;
    let view = read.unwrap_or(Err(Unreachable))?;
    let now = shared.clock.now();
    let (own, is_shared) = (shared.identity(), view.is_some());
    let alone = |view: Option<FleetView>| {
        let last_seen = wall_clock::system().wall_time(now);
        let identity = own.clone();
        let one = FleetGateway { identity, clock_ahead_ms: 0, leased_units: 0, last_seen, is_gone: false };
        view.map_or_else(|| vec![one], |view| view.gateways)
    };
    let gateways = alone(view).iter().map(|one| report(one, own.id)).collect();
    Ok(FleetReport { time: moment(now), shared: is_shared, gateways })
}

fn report(one: &FleetGateway, own: u64) -> GatewayReport {
    let FleetGateway { identity, clock_ahead_ms, leased_units, last_seen, is_gone } = one;
    GatewayReport {
        id: format!("{:016x}", identity.id),
        address: identity.address.clone(),
        version: identity.version.clone(),
        file_hash: hash(identity.file_hash),
        since: wall_moment(identity.since),
        last_seen: wall_moment(*last_seen),
        leased_units: *leased_units,
        clock_ahead_ms: i64::from(*clock_ahead_ms),
        gone: *is_gone,
        this: identity.id == own,
    }
}

/// The problems of the fleet, as this process has read it last: the kind of each, and a sentence.
pub(super) fn problems(shared: &Shared) -> Vec<(&'static str, String)> {
    let Some(store) = shared.store.shared() else { return Vec::new() };
    let view = store.fleet().view();
    [("fleet_files", files(&view)), ("gateway_gone", gone(&view)), ("fleet_clocks", clocks(&view))]
        .into_iter()
        .filter_map(|(kind, text)| Some((kind, text?)))
        .collect()
}

/// Gateways that have different files.
fn files(view: &FleetView) -> Option<String> {
    let files = view.files();
    if files.len() < 2 {
        return None;
    }
    let each = files.iter().map(|(file, gateways)| format!("`{}` ({})", hash(*file), named(gateways)));
    let each: Vec<_> = each.take(MAX_NAMED).collect();
    Some(format!("The gateways of the fleet have {} different files: {}", files.len(), each.join(", ")))
}

/// Gateways that have ended without a word.
fn gone(view: &FleetView) -> Option<String> {
    let gone: Vec<_> = view.gone().collect();
    match gone.as_slice() {
        [] => None,
        [one] => Some(format!(
            "Gateway {} of the fleet is gone: it has stopped without notice, or cannot reach the store",
            named(&[*one])
        )),
        several => Some(format!("{} gateways of the fleet are gone: {}", several.len(), named(several))),
    }
}

/// Clocks that differ.
fn clocks(view: &FleetView) -> Option<String> {
    let (behind, ahead) = view.clocks()?;
    let apart = ahead.clock_ahead_ms.abs_diff(behind.clock_ahead_ms);
    (apart > APART_MS).then(|| {
        format!(
            "The clocks of the fleet are {:.1} s apart: that of {} is ahead of that of {}",
            f64::from(apart) / 1_000.0,
            named(&[ahead]),
            named(&[behind])
        )
    })
}

fn named(gateways: &[&FleetGateway]) -> String {
    let names = gateways.iter().take(MAX_NAMED).map(|one| format!("`{}`", one.identity.address));
    let more = gateways.len().checked_sub(MAX_NAMED + 1).map(|more| format!(" and {} more", more + 1));
    names.collect::<Vec<_>>().join(", ") + &more.unwrap_or_default()
}

fn hash(file: u32) -> String {
    format!("{file:08x}")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::limit::wall_clock::WallTime;
    use crate::store::fleet::GatewayIdentity;

    fn gateway(address: &str, file_hash: u32, clock_ahead_ms: i32, is_gone: bool) -> FleetGateway {
        let (version, since) = ("1.0.0".to_owned(), WallTime(0));
        let identity = GatewayIdentity { id: 1, address: address.to_owned(), version, file_hash, since };
        FleetGateway { identity, clock_ahead_ms, leased_units: 0, last_seen: WallTime(0), is_gone }
    }

    fn view(gateways: &[FleetGateway]) -> FleetView {
        FleetView { gateways: gateways.to_vec(), clock_ahead: None }
    }

    #[test]
    fn each_problem_is_a_sentence_of_its_own() {
        let good = view(&[gateway("a:1", 1, 400, false), gateway("b:1", 1, -600, false)]);
        assert_eq!((files(&good), gone(&good), clocks(&good)), (None, None, None));
        let nobody = view(&[]);
        assert_eq!((files(&nobody), gone(&nobody), clocks(&nobody)), (None, None, None));
        let bad = view(&[
            gateway("a:1", 0xab, 401, false),
            gateway("b:1", 1, -600, false),
            gateway("c:1", 1, 0, false),
            gateway("d:1", 7, 9_000, true),
        ]);
        let words =
            "The gateways of the fleet have 2 different files: `00000001` (`b:1`, `c:1`), `000000ab` (`a:1`)";
        assert_eq!(files(&bad).as_deref(), Some(words));
        let words =
            "Gateway `d:1` of the fleet is gone: it has stopped without notice, or cannot reach the store";
        assert_eq!(gone(&bad).as_deref(), Some(words));
        let words = "The clocks of the fleet are 1.0 s apart: that of `a:1` is ahead of that of `b:1`";
        assert_eq!(clocks(&bad).as_deref(), Some(words));
    }

    #[test]
    fn of_many_gateways_some_are_named() {
        let many: Vec<_> = (1..=5).map(|number| gateway(&format!("a:{number}"), 1, 0, true)).collect();
        let words = "5 gateways of the fleet are gone: `a:1`, `a:2`, `a:3` and 2 more";
        assert_eq!(gone(&view(&many)).as_deref(), Some(words));
    }
}
