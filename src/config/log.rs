//! `[log]`.

use std::path::PathBuf;

use http::HeaderName;
use tracing_subscriber::EnvFilter;

use super::auth::AuthDraft;
use super::keys::{ANY, SOME, Schema, choice, keys, share, words};
use super::remedies::did_you_mean;
use super::report::{listed, quoted};
use super::table::ConfigTable;
use super::text::{Cursor, SyntaxError};
use super::value::ConfigValue;
use crate::plan::log::{
    AccessLog, HeaderColumn, Log, LogColumn, LogField, LogFields, MAX_HEADER_COLUMNS, ProgramFormat, Sample,
    SecretHeaders,
};
use crate::telemetry::access_log::Output;

keys! {
    /// What is logged: requests to standard output or to a file, the program's own doings to standard error.
    pub(super) LOG: LogKeys = "[log]" {
        /// The records of the access log: json (named fields), combined (Apache's format), off. Default: records
        /// with named fields, in the form that `format` says.
        access: RecordForm = choice(&FORMS);
        /// The form of records with named fields: pretty (aligned lines for a reader) or json (one object a line).
        /// Default: pretty if the access log goes to a terminal, else json.
        format: RecordFormat = choice(&FORMATS);
        /// Where the access log goes; made with mode 0640, and opened again on SIGUSR1. Default: standard output. A
        /// relative path begins where this file lies.
        file = Schema::Text;
        /// The share of ordinary requests that the access log tells of, 0 to 1. Refused and failed ones are always
        /// told of.
        sample: f64 = share() => 1.0;
        /// The fields of a record, in this order. header:NAME is a header of the client's request,
        /// response_header:NAME one of the response to the client; never one with credentials. Default: all but
        /// trace_id, user_agent, referer, protocol, key and headers.
        fields = Schema::Set(SOME, &Schema::Either(&[Schema::Words(&words(&LogField::WORDS)), Schema::Matching(r"^(response_)?header:[!#$%&'*+.^_`|~0-9A-Za-z-]+$")]));
        /// The level of the program log, which -q and -v overrule: off, error, warn, info, debug, trace; or
        /// directives such as "info,tollgate=debug". Default "info".
        level = Schema::Text;
        /// The form of the program log: text, or json (one object a line, also for each fault of a reloaded file).
        program: ProgramFormat = choice(&ProgramFormat::WORDS) => ProgramFormat::Text;
        /// Headers with credentials, which `fields` must not name, beside the built-in list and the headers of
        /// [auth].
        secret_headers = Schema::Set(ANY, &Schema::Name);
    }
}

/// The records of the access log.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum RecordForm {
    Json,
    Combined,
    Off,
}

/// The format of records with named fields.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum RecordFormat {
    Pretty,
    Json,
}

const FORMS: [(&str, RecordForm); 3] =
    [("json", RecordForm::Json), ("combined", RecordForm::Combined), ("off", RecordForm::Off)];
const FORMATS: [(&str, RecordFormat); 2] = [("pretty", RecordFormat::Pretty), ("json", RecordFormat::Json)];
const LEVELS: [&str; 6] = ["off", "error", "warn", "info", "debug", "trace"];
const REQUEST_HEADER: &str = "header:";
const RESPONSE_HEADER: &str = "response_header:";

/// Reads `[log]`. Headers with credentials of `auths` are never logged.
pub(super) fn read(mut table: ConfigTable<'_>, auths: &[AuthDraft]) -> Log {
    let access = table.optional(&LOG.access, |value| value.choice(&FORMS).or(Some(RecordForm::Json)));
    let form = access.unwrap_or(RecordForm::Json);
    let format = read_format(&mut table, access);
    let file = table.optional(&LOG.file, |value| file(&value));
    let sample = Sample::new(table.value(&LOG.sample));
    let own = table.optional(&LOG.secret_headers, |value| value.each(|item| secret_header(&item)));
    let sources = auths.iter().filter_map(|draft| Some(&draft.auth.as_ref()?.source));
    let secrets = SecretHeaders::new(own.iter().flatten(), sources);
    let fields = read_fields(&mut table, form, &secrets).map_or_else(LogFields::default, LogFields::new);
    let level = table.optional(&LOG.level, |value| value.text()?.parse("a level", level));
    let program = table.value(&LOG.program);
    table.finish();
    let access = match (form, format) {
        (RecordForm::Combined, _) => AccessLog::Combined,
        (RecordForm::Off, _) => AccessLog::Off,
        (RecordForm::Json, Some(RecordFormat::Pretty)) => AccessLog::Pretty(fields),
        (RecordForm::Json, Some(RecordFormat::Json)) => AccessLog::Json(fields),
        // A file that asks for JSON gets it on a terminal, too.
        (RecordForm::Json, None) if access.is_some() => AccessLog::Json(fields),
        (RecordForm::Json, None) => AccessLog::Auto(fields),
    };
    Log { access, file, sample, level: level.unwrap_or_else(|| "info".to_owned()), program, secrets }
}

/// `format`, which has a meaning only for records with named fields.
fn read_format(table: &mut ConfigTable<'_>, access: Option<RecordForm>) -> Option<RecordFormat> {
    let help = "leave one of the two out";
    match access {
        Some(RecordForm::Combined) => {
            let message =
                "`format` has no meaning with `access = \"combined\"`, which is a format of its own";
            table.misplaced("format", message, help);
            None
        }
        Some(RecordForm::Off) => {
            table.misplaced("format", "`format` has no meaning with `access = \"off\"`", help);
            None
        }
        Some(RecordForm::Json) | None => table.optional(&LOG.format, |value| {
            let format = value.choice(&FORMATS)?;
            if access.is_some() && format == RecordFormat::Pretty {
                value.fault("`format = \"pretty\"` contradicts `access = \"json\"`", help);
            }
            Some(format)
        }),
    }
}

/// The access log's file. It is created when it is opened, not here, so that `check` leaves no file behind.
fn file(value: &ConfigValue<'_>) -> Option<PathBuf> {
    let written = value.text()?;
    if is_no_file(&written) {
        return None;
    }
    let path = value.diagnostics().path(written.as_str(), value.span());
    match Output::check(&path) {
        Ok(()) => Some(path),
        Err(_) if value.diagnostics().is_without_environment() => {
            let why = format!("the file {} cannot be opened here", written.quoted());
            value.diagnostics().skip(value.span(), &why);
            None
        }
        Err(error) => {
            let help = "its folder must be there, and the user that tollgate runs as must be able to write to it; a relative \
                        path begins where `gateway.toml` lies; without `file`, the log goes to standard output";
            value.fault(format!("cannot open {}: {error}", written.quoted()), help);
            None
        }
    }
}

/// Reports a `file` of the access log that is not a file. Returns whether it is a fault.
fn is_no_file(text: &Cursor<'_>) -> bool {
    const WORDS: [&str; 9] =
        ["-", "console", "journal", "journald", "none", "off", "stderr", "stdout", "syslog"];
    let written = text.as_str();
    let is_service = written.starts_with("syslog:") || written.contains("://");
    let name = written.to_ascii_lowercase();
    if is_service {
        let message =
            format!("{} is not a file: the access log goes to a file or to standard output", text.quoted());
        let help = "leave `file` out, and let the service manager or a log shipper read standard output";
        text.diagnostics().fault(text.span(), message, help);
    } else if WORDS.contains(&&*name) {
        let message = format!("the access log goes to a file that is called {}", text.quoted());
        let help = match &*name {
            "off" | "none" => "write `access = \"off\"` for no log, or `./` before the name of a file",
            _ => "leave `file` out for standard output, or write `./` before the name of a file",
        };
        text.diagnostics().warn(text.span(), message, help);
    }
    is_service
}

fn read_fields(
    table: &mut ConfigTable<'_>,
    form: RecordForm,
    secrets: &SecretHeaders,
) -> Option<Vec<LogColumn>> {
    if form == RecordForm::Combined && !table.is_uncertain("access") {
        table.misplaced(
            "fields",
            "`fields` has no meaning with `access = \"combined\"`, whose fields are Apache's",
            "leave it out, or write `access = \"json\"`",
        );
        return None;
    }
    let mut seen = Vec::new();
    table.optional(&LOG.fields, |value| value.some_of(|item| column(&item, &mut seen, secrets)))
}

/// A field by name, which is not among those `seen` before.
fn column(item: &ConfigValue<'_>, seen: &mut Vec<LogColumn>, secrets: &SecretHeaders) -> Option<LogColumn> {
    let name = item.text()?;
    let column = match name.as_str() {
        text if let Some(header) = text.strip_prefix(REQUEST_HEADER) => {
            LogColumn::RequestHeader(header_column(item, text, header, secrets)?)
        }
        text if let Some(header) = text.strip_prefix(RESPONSE_HEADER) => {
            LogColumn::ResponseHeader(header_column(item, text, header, secrets)?)
        }
        text => LogColumn::Field(field(item, text)?),
    };
    if seen.contains(&column) {
        item.fault(format!("{} is named twice", name.quoted()), "a field stands on a line once");
        return None;
    }
    let is_header = |column: &&LogColumn| !matches!(column, LogColumn::Field(_));
    if is_header(&&column) && seen.iter().filter(is_header).count() == MAX_HEADER_COLUMNS {
        item.fault(
            format!("{} is one header too many", name.quoted()),
            format!("the access log has at most {MAX_HEADER_COLUMNS} headers a line"),
        );
        return None;
    }
    seen.push(column.clone());
    Some(column)
}

fn field(item: &ConfigValue<'_>, text: &str) -> Option<LogField> {
    let field = LogField::ALL.into_iter().find(|field| field.as_str() == text);
    if field.is_none() {
        let names = || LogField::ALL.into_iter().map(LogField::as_str);
        let all = format!("the fields are {}, `header:NAME`, `response_header:NAME`", listed(names()));
        let help = did_you_mean(text, names(), &all);
        item.fault(format!("{} is not a field of the access log", quoted(text)), help);
    }
    field
}

/// `header:NAME` or `response_header:NAME`, written as `text`.
fn header_column(
    item: &ConfigValue<'_>,
    text: &str,
    name: &str,
    secrets: &SecretHeaders,
) -> Option<HeaderColumn> {
    let Ok(header) = HeaderName::from_bytes(name.as_bytes()) else {
        let help = "write the header's name: `header:x-tenant`";
        item.fault(format!("{} does not name a header", quoted(text)), help);
        return None;
    };
    if secrets.has(&header) {
        item.fault(
            format!("{} holds credentials, which are never logged", quoted(header.as_str())),
            "leave it out; `consumer` names the consumer, and `key` the masked key of the limit that decided",
        );
        return None;
    }
    Some(HeaderColumn { label: text.into(), name: header })
}

/// A header that is never logged.
fn secret_header(item: &ConfigValue<'_>) -> Option<HeaderName> {
    let name = item.text()?;
    let header = HeaderName::from_bytes(name.as_str().as_bytes()).ok();
    if header.is_none() {
        let help = "write the header's name: `x-session`";
        item.fault(format!("{} is not the name of a header", name.quoted()), help);
    }
    header
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
