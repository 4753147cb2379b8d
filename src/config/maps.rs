//! `[maps.NAME]`, and `tier` of a limit, which looks a value of the request up in one.

use std::sync::Arc;

use csv::{ReaderBuilder, Trim};

use super::keys::{Schema, keys};
use super::name::{self, Directory};
use super::named_file::MAX_TABLE_BYTES;
use super::report::{OtherLine, SourceSpan, quoted};
use super::text::{Cursor, SyntaxError};
use super::value::{ConfigValue, Entry};
use crate::plan::MappedTier;
use crate::route::key::Part;
use crate::route::tier_map::{TierMap, network};

keys! {
    /// Tiers by network or by another value of a request.
    pub(super) MAP: MapKeys = "[maps.NAME]" {
        /// A CSV file of two columns: a network, an address or another value, and its tier. # begins a comment line.
        /// Read again on reload. A relative path begins where this file lies.
        file = Schema::Name, required "\"rates.csv\"";
    }
}

/// The name of the second column, if the file has a header line.
const TIER: &str = "tier";
/// The maximum number of rows.
const MAX_ROWS: usize = 20_000_000;

/// A map of the file.
pub(super) struct MapDraft {
    pub(super) name: Arc<str>,
    pub(super) span: SourceSpan,
    /// The first row that is no network.
    pub(super) first_other: Option<OtherLine>,
    /// `None` if it has faults.
    pub(super) map: Option<Arc<TierMap>>,
}

/// Reads one entry of `[maps]`.
pub(super) fn read(entry: &Entry<'_>) -> MapDraft {
    name::check_label(entry.key, entry.key_span, entry.value.diagnostics());
    let mut draft = MapDraft { name: entry.key.into(), span: entry.key_span, first_other: None, map: None };
    let Some(mut table) = entry.value.table(&quoted(&format!("[maps.{}]", entry.key))) else { return draft };
    let map = table.require(&MAP.file, |value| rows(&value));
    if let (true, Some((map, first_other))) = (table.finish(), map) {
        draft.map = Some(Arc::new(map));
        draft.first_other = first_other;
    }
    draft
}

/// The rows of a file, and the first that is no network.
fn rows(value: &ConfigValue<'_>) -> Option<(TierMap, Option<OtherLine>)> {
    let path = value.text()?;
    let bytes = value.file_at(&path, MAX_TABLE_BYTES)?;
    let bytes = bytes.strip_prefix("\u{feff}".as_bytes()).unwrap_or(&bytes);
    let errors_before = value.diagnostics().errors();
    let mut reader = ReaderBuilder::new()
        .has_headers(false)
        .flexible(true)
        .trim(Trim::All)
        .comment(Some(b'#'))
        .from_reader(bytes);
    let other = |line: u64| OtherLine { file: path.as_str().to_owned(), line };
    let fault = |line: u64, message: &str, help: &str| {
        value.diagnostics().fault_in(value.span(), other(line), message, help);
    };
    let (mut map, mut first_other) = (TierMap::default(), None);
    for (number, row) in reader.records().enumerate() {
        // Not the line itself: by mistake the file may be one of secrets.
        let Ok(row) = row else {
            fault(number as u64 + 1, "this line is not UTF-8", "save the file as UTF-8");
            break;
        };
        let line = row.position().map_or(0, csv::Position::line);
        let (Some(key), Some(tier), None) = (row.get(0), row.get(1), row.get(2)) else {
            fault(line, "this line has no two values", "write a network or a value, a comma and its tier");
            continue;
        };
        if number == 0 && tier == TIER {
            continue;
        }
        if number >= MAX_ROWS {
            fault(line, "the file has too many rows", &format!("keep to {MAX_ROWS}"));
            break;
        }
        if key.is_empty()
            || tier.is_empty()
            || [key, tier].iter().any(|text| text.contains(['\n', '\r', '"']))
        {
            fault(
                line,
                "a value of this line is empty, or has a line break or a quote",
                "write `VALUE,TIER`",
            );
            continue;
        }
        if first_other.is_none() && network(key).is_none() {
            first_other = Some(other(line));
        }
        if let Err(tier) = map.insert(key, tier) {
            let message = format!("this value has the tier {} already", quoted(tier));
            fault(line, &message, "leave one of the two lines out");
        }
    }
    if map.is_empty() && value.diagnostics().errors() == errors_before {
        let message = "the map is empty, so that no request has a tier";
        value.diagnostics().warn_in(value.span(), other(1), message, "add a line for each network or value");
    }
    (value.diagnostics().errors() == errors_before).then_some((map, first_other))
}

/// Reads `tier` of a limit: `map:NAME(PART)`.
pub(super) fn tier(value: &ConfigValue<'_>, maps: &[MapDraft]) -> Option<MappedTier> {
    const HELP: &str = "write `map:NAME(ip)`, with the name of a `[maps.NAME]`";
    let text = value.text()?;
    let (name, part) = text.parse("a tier", |text| {
        let inner = text.strip_prefix("map:").and_then(|rest| rest.strip_suffix(')')?.split_once('('));
        let Some((name, part)) = inner else {
            return Err(SyntaxError::new(format!("{} is not a map of tiers", quoted(text)), HELP));
        };
        match Part::parse(part) {
            Ok(part) => Ok((name.to_owned(), part)),
            Err(fault) => Err(SyntaxError::new(fault.message, fault.help)),
        }
    })?;
    if let Some(why) = never_maps(&part) {
        value.fault(
            format!("a map cannot look `{part}` up: {why}"),
            "write `ip`, `host`, `header:NAME` or `consumer`",
        );
        return None;
    }
    if part.invented_by_client() {
        let message = format!("any client can send `{part}` and choose its tier");
        value.diagnostics().warn(
            value.span(),
            message,
            "look up `ip` or `consumer`, or let a proxy in front set it",
        );
    }
    let found = find(&text.with(name), maps)?;
    let map = Arc::clone(found.map.as_ref()?);
    Some(MappedTier { name: Arc::clone(&found.name), map, part })
}

fn find<'m>(name: &Cursor<'_>, maps: &'m [MapDraft]) -> Option<&'m MapDraft> {
    let names = Directory::new("map", maps.iter().map(|map| &*map.name));
    maps.get(names.find(name)?)
}

/// Why a part has no tier.
fn never_maps(part: &Part) -> Option<&'static str> {
    match part {
        _ if part.is_of_body() => Some("the body is read later"),
        Part::Network(_) => Some("the networks are those of the map"),
        Part::Upstream => Some("the upstream is known later"),
        Part::Global => Some("it is the same for all requests"),
        Part::Descriptor(_) => Some("no request has it"),
        _ => None,
    }
}
