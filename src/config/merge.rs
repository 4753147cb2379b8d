//! Several files as one table.

use toml::Spanned;
use toml::de::{DeTable, DeValue};

use super::diagnostics::Diagnostics;
use super::report::{SourceSpan, quoted};

/// Arrays of tables that every file may add to, with the section that they stand in.
const APPENDED: [(Option<&str>, &str); 2] = [(None, "routes"), (Some("server"), "tls")];

/// The table of a file with all spans moved by `base`.
pub(super) fn moved(table: DeTable<'_>, base: usize) -> DeTable<'_> {
    if base == 0 {
        return table;
    }
    table.into_iter().map(|(key, value)| (moved_key(key, base), moved_value(value, base))).collect()
}

fn moved_key<T>(key: Spanned<T>, base: usize) -> Spanned<T> {
    let span = key.span();
    Spanned::new(span.start + base..span.end + base, key.into_inner())
}

/// The parser bounds how deep values are nested.
fn moved_value(value: Spanned<DeValue<'_>>, base: usize) -> Spanned<DeValue<'_>> {
    let span = value.span();
    let inner = match value.into_inner() {
        DeValue::Array(items) => {
            DeValue::Array(items.into_iter().map(|item| moved_value(item, base)).collect())
        }
        DeValue::Table(table) => DeValue::Table(moved(table, base)),
        scalar => scalar,
    };
    Spanned::new(span.start + base..span.end + base, inner)
}

/// Adds the table of another file. Sections are joined; a key in them that both files have is an error.
pub(super) fn join<'a>(all: &mut DeTable<'a>, added: DeTable<'a>, reader: &Diagnostics<'_>) {
    join_level(all, added, None, reader);
}

fn join_level<'a>(
    all: &mut DeTable<'a>,
    added: DeTable<'a>,
    section: Option<&str>,
    reader: &Diagnostics<'_>,
) {
    for (key, value) in added {
        let name: &str = key.get_ref();
        let Some(first_span) = all.get_key_value(name).map(|(first, _)| SourceSpan::from(first.span()))
        else {
            all.insert(key, value);
            continue;
        };
        let is_appended = APPENDED.contains(&(section, name));
        match (all.get_mut(name).map(Spanned::get_mut), value.into_inner()) {
            (Some(DeValue::Table(joined)), DeValue::Table(more)) if section.is_none() => {
                join_level(joined, more, Some(name), reader);
            }
            (Some(DeValue::Array(joined)), DeValue::Array(more)) if is_appended => {
                more.into_iter().for_each(|item| joined.push(item));
            }
            // To find the place takes long in a large file.
            _ if !reader.shows_more_errors() => reader.fault(key.span().into(), "", ""),
            _ => {
                let of = section.map(|section| format!(" of `[{section}]`")).unwrap_or_default();
                let first = reader.sources().place(first_span);
                let message = format!("{}{of} stands in {} too", quoted(name), quoted(&first));
                let help =
                    "each key may stand in one file: leave one of the two out, or give one another name";
                reader.fault(key.span().into(), message, help);
            }
        }
    }
}
