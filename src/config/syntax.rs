//! Errors of the text itself. One is reported alone of its file: the text after it cannot be read reliably.

use super::diagnostics::Diagnostics;
use super::redact;
use super::sources::SourceFile;

/// The file is not TOML.
pub(super) fn report(error: &toml::de::Error, file: &SourceFile, reader: &Diagnostics<'_>) {
    let span = error.span().unwrap_or(file.text.len()..file.text.len());
    let found = file.text.get(span.clone()).unwrap_or("");
    reader.fault(
        file.span(span.start, span.end),
        format!("this is not TOML: {}", error.message()),
        remedy(error.message(), found),
    );
}

/// The file is not text.
pub(super) fn not_utf8(error: &std::str::Utf8Error, file: &SourceFile, reader: &Diagnostics<'_>) {
    let at = error.valid_up_to();
    let span = file.span(at, at + char::REPLACEMENT_CHARACTER.len_utf8());
    reader.fault(span, "the file is not UTF-8 text from here on", "save it as UTF-8");
}

fn remedy(message: &str, found: &str) -> String {
    if message.contains("duplicate key") {
        return "leave one of the two out, or move both into one; routes are written `[[routes]]`, each with its own".into();
    }
    if message.contains("must be quoted") {
        return match found.trim() {
            "" => "write a value after the `=`".into(),
            bare => format!("write `\"{}\"`", redact::without_users(bare).escape_debug()),
        };
    }
    if message.contains("recur") {
        return "nothing in this file is nested so deeply: look for a bracket that was never closed".into();
    }
    if message.contains("unclosed")
        || message.contains("invalid basic string")
        || message.contains("literal string")
    {
        return "close what was opened: `\"…\"`, `[…]`, `{ … }`".into();
    }
    "a line is `key = value`, `[table]`, `[[routes]]` or `# comment`; texts stand in quotes".into()
}
