//! `[log]`.

use std::path::PathBuf;

use tracing_subscriber::EnvFilter;

use super::report::{listed, quoted};
use super::suggest::did_you_mean;
use super::table::ConfigTable;
use super::text::SyntaxError;
use super::value::ConfigValue;
use crate::plan::log::{AccessLog, Log, LogField, Sample};
use crate::telemetry::access_log::Output;

/// The formats of the access log.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Form {
    Json,
    Combined,
    Off,
}

const FORMS: [(&str, Form); 3] = [("json", Form::Json), ("combined", Form::Combined), ("off", Form::Off)];
const LEVELS: [&str; 6] = ["off", "error", "warn", "info", "debug", "trace"];

/// Reads `[log]`.
pub(super) fn read(mut table: ConfigTable<'_>) -> Log {
    let form = table.or("access", Form::Json, |value| value.choice(&FORMS));
    let file = table.optional("file", |value| file(&value));
    let sample = table.or("sample", Sample::ALL, |value| value.share().map(Sample::new));
    let fields = read_fields(&mut table, form);
    let level = table.optional("level", |value| value.text()?.parse("a level", level));
    table.finish();
    let access = match form {
        Form::Json => fields.map_or_else(AccessLog::json, |fields| AccessLog::Json(fields.into())),
        Form::Combined => AccessLog::Combined,
        Form::Off => AccessLog::Off,
    };
    Log { access, file, sample, level: level.unwrap_or_else(|| "info".to_owned()) }
}

/// The access log's file. It is created when it is opened, not here, so that `check` leaves no file behind.
fn file(value: &ConfigValue<'_>) -> Option<PathBuf> {
    let written = value.text()?;
    let path = value.reader().path(written.as_str());
    match Output::check(&path) {
        Ok(()) => Some(path),
        Err(error) => {
            let help = "its folder must be there, and the user that tollgate runs as must be able to write to it; a relative \
                        path begins where `gateway.toml` lies; without `file`, the log goes to standard output";
            value.fault(format!("can not open {}: {error}", written.quoted()), help);
            None
        }
    }
}

fn read_fields(table: &mut ConfigTable<'_>, form: Form) -> Option<Vec<LogField>> {
    if form == Form::Combined {
        table.misplaced(
            "fields",
            "`fields` has no meaning with `access = \"combined\"`, whose fields are Apache's",
            "leave it out, or write `access = \"json\"`",
        );
        return None;
    }
    let mut seen = Vec::new();
    table.optional("fields", |value| value.some_of(|item| field(&item, &mut seen)))
}

/// A field by name, which is not among those `seen` before.
fn field(item: &ConfigValue<'_>, seen: &mut Vec<LogField>) -> Option<LogField> {
    let name = item.text()?;
    let Some(field) = LogField::ALL.into_iter().find(|field| field.as_str() == name.as_str()) else {
        let names = || LogField::ALL.into_iter().map(LogField::as_str);
        let help = did_you_mean(name.as_str(), names(), &format!("the fields are {}", listed(names())));
        item.fault(format!("{} is not a field of the access log", name.quoted()), help);
        return None;
    };
    if seen.contains(&field) {
        item.fault(format!("{} is named twice", name.quoted()), "a field stands on a line once");
        return None;
    }
    seen.push(field);
    Some(field)
}

/// A level, or directives such as `info,tollgate=debug`. (The filter itself would take a mistyped level for a module's
/// name.)
fn level(text: &str) -> Result<String, SyntaxError> {
    let is_sound =
        |directive: &str| directive.contains('=') || LEVELS.contains(&directive.to_lowercase().as_str());
    let help = format!("the levels are {}", listed(LEVELS));
    if let Some(wrong) = text.split(',').map(str::trim).find(|directive| !is_sound(directive)) {
        return Err(SyntaxError::new(
            format!("{} is not a level", quoted(wrong)),
            did_you_mean(wrong, LEVELS, &help),
        ));
    }
    match EnvFilter::try_new(text) {
        Ok(_) => Ok(text.to_owned()),
        Err(_) => Err(SyntaxError::new(format!("{} is not a level", quoted(text)), help)),
    }
}
