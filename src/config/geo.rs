//! `geo` of `[server]`: files with the countries and autonomous systems of addresses.

use std::collections::HashMap;
use std::num::NonZeroU32;

use ipnet::IpNet;
use maxminddb::{MaxMindDbError, Reader, WithinOptions};
use serde::Deserialize;
use serde::de::IgnoredAny;

use super::keys::{SOME, Schema, keys};
use super::named_file::MAX_TABLE_BYTES;
use super::value::ConfigValue;
use crate::route::locations::{AutonomousSystem, ClientLocation, Country, Locations, NetworkValues};

keys! {
    /// The countries and autonomous systems of clients.
    pub(super) GEO: GeoKeys = "geo" {
        /// A file in MaxMind's format, or a list of them: the first that knows the country, or the autonomous system, of
        /// an address counts. Read again on reload. A relative path begins where this file lies.
        file = Schema::Either(&[Schema::Name, Schema::List(SOME, &Schema::Name)]), required "\"country.mmdb\"";
    }
}

/// The maximum number of networks of a file; those of cities have about five million.
const MAX_NETWORKS: usize = 20_000_000;

/// Reads `geo`.
pub(super) fn read(value: &ConfigValue<'_>) -> Option<Locations> {
    let mut table = value.table("`geo`")?;
    let locations = table.require(&GEO.file, |value| {
        let mut all = GeoFiles::default();
        let mut hasher = blake3::Hasher::new();
        match value.is_text() {
            true => all.add(&value, &mut hasher)?,
            false => {
                value.some_of(|item| all.add(&item, &mut hasher))?;
            }
        }
        Some(Locations::new(all.countries, all.systems, hasher.finalize().into()))
    });
    table.finish().then_some(locations).flatten()
}

/// The networks of all files, in their order.
#[derive(Default)]
struct GeoFiles {
    countries: Vec<NetworkValues<Country>>,
    systems: Vec<NetworkValues<AutonomousSystem>>,
}

impl GeoFiles {
    /// Adds those of a file. `None`: it has faults.
    fn add(&mut self, value: &ConfigValue<'_>, hasher: &mut blake3::Hasher) -> Option<()> {
        let path = value.text()?;
        let bytes = value.file_at(&path, MAX_TABLE_BYTES)?;
        hasher.update(blake3::hash(&bytes).as_bytes());
        match networks(&bytes) {
            Ok((countries, systems)) if countries.is_empty() && systems.is_empty() => {
                let message = format!("{} has neither countries nor autonomous systems", path.quoted());
                value.fault(message, "name a file of countries or ASNs, such as `GeoLite2-Country.mmdb`");
                None
            }
            Ok((countries, systems)) => {
                self.countries.extend((!countries.is_empty()).then_some(countries));
                self.systems.extend((!systems.is_empty()).then_some(systems));
                Some(())
            }
            Err(error) => {
                let message =
                    format!("{} is no file in MaxMind's format, or damaged: {error}", path.quoted());
                value.fault(message, "fetch it again: its name ends in `.mmdb`");
                None
            }
        }
    }
}

/// The networks of a file: their countries, and their autonomous systems.
type FileNetworks = (NetworkValues<Country>, NetworkValues<AutonomousSystem>);

fn networks(bytes: &[u8]) -> Result<FileNetworks, MaxMindDbError> {
    let reader = Reader::from_source(bytes)?;
    let (mut countries, mut systems) = (Vec::new(), Vec::new());
    // Thousands of networks have one record.
    let mut known: HashMap<usize, ClientLocation> = HashMap::new();
    // A tree has one leaf more than nodes. One whose nodes are met again and again has no end: those without data count, too.
    let leaves = (reader.metadata().node_count as usize).saturating_add(1).min(MAX_NETWORKS);
    let all = WithinOptions::default().include_networks_without_data();
    for (number, found) in reader.networks(all)?.enumerate() {
        if number >= leaves {
            return Err(MaxMindDbError::invalid_database(format!("more than {leaves} networks")));
        }
        let found = found?;
        let Some(offset) = found.offset() else { continue };
        let location = match known.get(&offset) {
            Some(location) => *location,
            None => {
                let record: Option<GeoRecord<'_>> = found.decode()?;
                let location = record.map(|record| record.location()).unwrap_or_default();
                known.insert(offset, location);
                location
            }
        };
        let network = found.network()?;
        // The prefix is one of the address.
        let Ok(network) = IpNet::new(network.ip(), network.prefix()) else { continue };
        countries.extend(location.country.map(|country| (network, country)));
        systems.extend(location.system.map(|system| (network, system)));
    }
    Ok((countries, systems))
}

/// What is read of a record, in the forms of MaxMind (DB-IP has the same) and of IPinfo.
#[derive(Default, Deserialize)]
#[serde(default)]
struct GeoRecord<'a> {
    #[serde(borrow)]
    country: Option<CountryField<'a>>,
    #[serde(borrow)]
    country_code: Option<CountryField<'a>>,
    autonomous_system_number: Option<SystemField<'a>>,
    #[serde(borrow)]
    asn: Option<SystemField<'a>>,
}

#[derive(Deserialize)]
#[serde(untagged)]
enum CountryField<'a> {
    Code(&'a str),
    Record { iso_code: Option<&'a str> },
    Other(IgnoredAny),
}

#[derive(Deserialize)]
#[serde(untagged)]
enum SystemField<'a> {
    Number(NonZeroU32),
    Text(&'a str),
    Other(IgnoredAny),
}

impl GeoRecord<'_> {
    fn location(&self) -> ClientLocation {
        let country =
            [&self.country_code, &self.country].into_iter().flatten().find_map(CountryField::country);
        let systems = [&self.autonomous_system_number, &self.asn];
        ClientLocation { country, system: systems.into_iter().flatten().find_map(SystemField::system) }
    }
}

impl CountryField<'_> {
    fn country(&self) -> Option<Country> {
        match self {
            Self::Code(code) => Country::new(code),
            Self::Record { iso_code } => iso_code.and_then(Country::new),
            Self::Other(IgnoredAny) => None,
        }
    }
}

impl SystemField<'_> {
    fn system(&self) -> Option<AutonomousSystem> {
        match self {
            Self::Number(number) => Some(AutonomousSystem(*number)),
            Self::Text(text) => AutonomousSystem::parse(text),
            Self::Other(IgnoredAny) => None,
        }
    }
}
