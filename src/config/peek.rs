//! A few values of a configuration, whatever else is wrong with it.

use std::net::SocketAddr;
use std::path::Path;

use toml::de::{DeArray, DeTable, DeValue};
use toml::{Table, Value};

use super::diagnostics::Diagnostics;
use super::gather::FileGatherer;
use super::sources::Sources;
use super::{Report, read_path, text};

/// The sections that are read.
const SECTIONS: [&str; 2] = ["admin", "server"];

/// The sections `[admin]` and `[server]` of the configuration at `path`, with variables filled in. Errors elsewhere are
/// passed over: while an operator edits the files, the running gateway must still be found.
///
/// # Errors
///
/// The files cannot be read, or the first of them is not TOML; for users.
pub fn peek(path: &Path) -> Result<Table, String> {
    let environment = |variable: &str| std::env::var(variable).ok();
    let sources = Sources::default();
    let diagnostics = Diagnostics::new(&environment, &sources, false);
    let mut files = FileGatherer::new(&diagnostics);
    let first = |report: &Report| report.error_lines().into_iter().next().unwrap_or_default();
    read_path(path, &mut files, &diagnostics).map_err(|report| first(&report))?;
    let (table, is_whole) = files.into_table();
    let mut sections = section_values(&table);
    resolve_certificate(&table, &mut sections, &diagnostics);
    if table.is_empty() && !is_whole {
        drop(table);
        return Err(first(&Report::new(&sources, diagnostics.into_findings(), Vec::new())));
    }
    Ok(sections)
}

fn section_values(table: &DeTable<'_>) -> Table {
    let section = |name: &str| Some((name.to_owned(), value(table.get(name)?.get_ref())?));
    SECTIONS.into_iter().filter_map(section).collect()
}

/// Puts the whole path of `cert` of `[admin] tls` in the place of what is written: variables are filled in, and a relative
/// path begins where its file lies.
fn resolve_certificate(table: &DeTable<'_>, sections: &mut Table, diagnostics: &Diagnostics<'_>) {
    let cert = table.get("admin").and_then(|admin| admin.get_ref().as_table()?.get("tls"));
    let Some(cert) = cert.and_then(|tls| tls.get_ref().as_table()?.get("cert")) else { return };
    let Some(written) = cert.get_ref().as_str() else { return };
    let environment = |variable: &str| std::env::var(variable).ok();
    let Some(path) = text::expanded(written, &environment) else { return };
    let path = diagnostics.path(&path, cert.span().into()).display().to_string();
    let tls = sections.get_mut("admin").and_then(|admin| admin.get_mut("tls"));
    if let Some(tls) = tls.and_then(Value::as_table_mut) {
        tls.insert("cert".to_owned(), Value::String(path));
    }
}

/// A value, if it can stand in an address: numbers other than whole ones and dates are left out.
fn value(written: &DeValue<'_>) -> Option<Value> {
    let items = |items: &DeArray<'_>| items.iter().filter_map(|item| value(item.get_ref())).collect();
    let fields = |table: &DeTable<'_>| {
        let field =
            |(key, inner): (&toml::Spanned<std::borrow::Cow<'_, str>>, &toml::Spanned<DeValue<'_>>)| {
                Some((key.get_ref().to_string(), value(inner.get_ref())?))
            };
        table.iter().filter_map(field).collect()
    };
    Some(match written {
        DeValue::String(written) => {
            let environment = |variable: &str| std::env::var(variable).ok();
            // Other values are shown in messages, so that they stay as they are written.
            let is_plain = |text: &String| text.parse::<SocketAddr>().is_ok() || text::is_variable(text);
            let filled_in = text::expanded(written, &environment).filter(is_plain);
            Value::String(filled_in.unwrap_or_else(|| written.to_string()))
        }
        DeValue::Integer(number) => Value::Integer(number.as_str().parse().ok()?),
        DeValue::Boolean(is_true) => Value::Boolean(*is_true),
        DeValue::Array(list) => Value::Array(items(list)),
        DeValue::Table(table) => Value::Table(fields(table)),
        DeValue::Float(_) | DeValue::Datetime(_) => return None,
    })
}
