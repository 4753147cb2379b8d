//! `[log]`.

use tracing_subscriber::EnvFilter;

use super::nearest::did_you_mean;
use super::report::{listed, quoted};
use super::table::Table;
use super::text::Refusal;
use crate::gateway::{AccessLog, Log};

const ACCESS: [(&str, AccessLog); 3] =
    [("json", AccessLog::Json), ("combined", AccessLog::Combined), ("off", AccessLog::Off)];
const LEVELS: [&str; 6] = ["off", "error", "warn", "info", "debug", "trace"];

/// Reads `[log]`.
pub(super) fn read(mut table: Table<'_>) -> Log {
    table.later("file", "file");
    table.later("sample", "sample");
    table.later("fields", "fields");
    let access = table.or("access", AccessLog::Json, |value| value.choice(&ACCESS));
    let level = table.optional("level", |value| value.text()?.parse("a level", level));
    table.finish();
    Log { access, level: level.unwrap_or_else(|| "info".to_owned()) }
}

/// A level, or directives such as `info,tollgate=debug`. (The filter itself would take a mistyped level for a module's name.)
fn level(text: &str) -> Result<String, Refusal> {
    let is_sound =
        |directive: &str| directive.contains('=') || LEVELS.contains(&directive.to_lowercase().as_str());
    let help = format!("the levels are {}", listed(LEVELS));
    if let Some(wrong) = text.split(',').map(str::trim).find(|directive| !is_sound(directive)) {
        return Err(Refusal::new(
            format!("{} is not a level", quoted(wrong)),
            did_you_mean(wrong, LEVELS, &help),
        ));
    }
    match EnvFilter::try_new(text) {
        Ok(_) => Ok(text.to_owned()),
        Err(_) => Err(Refusal::new(format!("{} is not a level", quoted(text)), help)),
    }
}
