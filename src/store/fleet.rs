//! The gateways that share a store: what each tells of itself, and what this process has read of all.

use std::collections::BTreeMap;

use parking_lot::Mutex;

use crate::limit::wall_clock::WallTime;

/// A gateway, as it tells the others of itself.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GatewayIdentity {
    /// Random: another one for each process.
    pub id: u64,
    /// `host:port` of its first listener, with the name of its machine if it listens on all addresses.
    pub address: String,
    /// The version of the program.
    pub version: String,
    /// A hash of its configuration file, as eight hexadecimal digits show it.
    pub file_hash: u32,
    /// When it began to serve, by its clock.
    pub since: WallTime,
}

/// A gateway, as the store knows it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FleetGateway {
    /// What it tells of itself.
    pub identity: GatewayIdentity,
    /// By how many ms its clock is ahead of the store's, as it told last.
    pub clock_ahead_ms: i32,
    /// The units in advance that it had not spent, as it told last.
    pub leased_units: u64,
    /// When the store heard of it last, by the store's clock.
    pub last_seen: WallTime,
    /// It tells no more, and has not left.
    pub is_gone: bool,
}

/// The gateways that share the store, as this process has read them last.
#[derive(Debug, Default)]
pub struct Fleet(Mutex<FleetView>);

/// What was read.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FleetView {
    /// All gateways, by address.
    pub gateways: Vec<FleetGateway>,
    /// By how many µs the clock of this process is ahead of the store's. `None`: not known yet.
    pub clock_ahead: Option<i64>,
}

impl Fleet {
    /// What was read last.
    pub fn view(&self) -> FleetView {
        self.0.lock().clone()
    }

    /// Replaces what is known of the gateways.
    pub fn set_gateways(&self, mut gateways: Vec<FleetGateway>) {
        gateways.sort_by(|one, other| {
            (&one.identity.address, one.identity.id).cmp(&(&other.identity.address, other.identity.id))
        });
        self.0.lock().gateways = gateways;
    }

    /// This process's clock is ahead of the store's by so many µs.
    pub fn set_clock_ahead(&self, ahead: i64) {
        self.0.lock().clock_ahead = Some(ahead);
    }
}

impl FleetView {
    /// Those that tell of themselves.
    pub fn live(&self) -> impl Iterator<Item = &FleetGateway> {
        self.gateways.iter().filter(|one| !one.is_gone)
    }

    /// Those that have ended without a word.
    pub fn gone(&self) -> impl Iterator<Item = &FleetGateway> {
        self.gateways.iter().filter(|one| one.is_gone)
    }

    /// The files of live gateways: hash and gateways of each.
    pub fn files(&self) -> BTreeMap<u32, Vec<&FleetGateway>> {
        let mut files: BTreeMap<_, Vec<_>> = BTreeMap::new();
        self.live().for_each(|one| files.entry(one.identity.file_hash).or_default().push(one));
        files
    }

    /// The live gateways whose clocks are furthest back and furthest ahead; `None` without one.
    pub fn clocks(&self) -> Option<(&FleetGateway, &FleetGateway)> {
        let first = self.live().min_by_key(|one| one.clock_ahead_ms)?;
        Some((first, self.live().max_by_key(|one| one.clock_ahead_ms)?))
    }
}
