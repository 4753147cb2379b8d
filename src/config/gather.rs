//! The files of a configuration: one file with those that it includes, a directory, or standard input. They become one
//! table.
//!
//! Of errors of the text itself, one is reported alone of its file: the text after it cannot be read reliably.

use std::collections::HashMap;
use std::io;
use std::path::{Path, PathBuf};

use toml::Spanned;
use toml::de::{DeTable, DeValue};

use super::diagnostics::Diagnostics;
use super::named_file::NamedFile;
use super::report::{SourceSpan, quoted};
use super::sources::{MAX_FILES, SourceFile};
use super::text::Cursor;
use super::value::ConfigValue;
use super::{MAX_FILE_BYTES, redact, wildcard};

/// The key that names further files.
pub(super) const INCLUDE: &str = "include";
/// The maximum number of files on the way to an included one, the first file counted.
const MAX_DEPTH: usize = 16;

/// A gathering of files.
pub(super) struct FileGatherer<'a> {
    diagnostics: &'a Diagnostics<'a>,
    /// All files so far by their real paths, each with the place that names it.
    read: HashMap<PathBuf, Option<SourceSpan>>,
    /// The files on the way to the present one: real path and name.
    chain: Vec<(PathBuf, String)>,
    all: DeTable<'a>,
    /// Whether every file was read and is TOML.
    is_whole: bool,
}

impl<'a> FileGatherer<'a> {
    pub(super) fn new(diagnostics: &'a Diagnostics<'a>) -> Self {
        Self { diagnostics, read: HashMap::new(), chain: Vec::new(), all: DeTable::new(), is_whole: true }
    }

    /// The keys of all files together, and whether they are complete. Errors are reported.
    pub(super) fn into_table(self) -> (DeTable<'a>, bool) {
        (self.all, self.is_whole)
    }

    /// A file that no other one names, with those that it includes.
    pub(super) fn root(&mut self, name: &str, bytes: &[u8]) {
        let path = real(Path::new(name));
        self.read.entry(path.clone()).or_insert(None);
        self.add(name, path, bytes, SourceSpan::default());
    }

    /// Marks a file as one that will be read as a root.
    pub(super) fn reserve(&mut self, path: &Path) {
        self.read.insert(real(path), None);
    }

    /// Reads the included files at the path, which `span` names.
    fn include(&mut self, path: &Path, span: SourceSpan) {
        let (name, real) = (path.display().to_string(), real(path));
        if let Some(at) = self.chain.iter().position(|(other, _)| *other == real) {
            let names = self.chain[at..].iter().map(|(_, name)| name.as_str());
            let circle: Vec<_> = names.chain([name.as_str()]).map(quoted).collect();
            let message = format!("files include each other in a circle: {}", circle.join(" → "));
            return self.broken(span, message, "leave one of these `include` out");
        }
        if let Some(first) = self.read.get(&real) {
            let first = match first {
                Some(first) => {
                    format!("{} includes it too", quoted(&self.diagnostics.sources().place(*first)))
                }
                None => "it is read without `include`".to_owned(),
            };
            let message = format!("the file {} is included twice: {first}", quoted(&name));
            return self.broken(span, message, "name each file once");
        }
        if self.chain.len() >= MAX_DEPTH {
            let message = format!("{} is included through more than {MAX_DEPTH} files", quoted(&name));
            return self.broken(span, message, "include it from a file nearer to the first one");
        }
        if self.diagnostics.sources().len() >= MAX_FILES {
            let message = format!("the configuration has more than {MAX_FILES} files");
            return self.broken(span, message, "join some of the files");
        }
        self.read.insert(real.clone(), Some(span));
        match self.bytes(path) {
            Ok(bytes) => self.add(&name, real, &bytes, span),
            Err(error) => {
                let (why, help) = match error.kind() {
                    io::ErrorKind::NotFound => {
                        ("there is no such file".to_owned(), "a relative path begins where this file lies")
                    }
                    io::ErrorKind::IsADirectory => {
                        ("it is a directory".to_owned(), "name the files in it, such as `conf.d/*.toml`")
                    }
                    io::ErrorKind::FileTooLarge => {
                        let help = "all files together hold at most 16 MiB: split the gateway";
                        ("the configuration is larger than 16 MiB".to_owned(), help)
                    }
                    _ => (error.to_string(), "the user that tollgate runs as must be able to read it"),
                };
                self.broken(span, format!("cannot read {}: {why}", quoted(&name)), help);
            }
        }
    }

    /// The bytes of an included file, if it fits beside those before it.
    fn bytes(&self, path: &Path) -> io::Result<Vec<u8>> {
        let left = MAX_FILE_BYTES.saturating_sub(self.diagnostics.sources().bytes());
        let metadata =
            std::fs::metadata(path).inspect_err(|_| self.diagnostics.saw(NamedFile::stamped(path)))?;
        if metadata.is_dir() {
            return Err(io::ErrorKind::IsADirectory.into());
        }
        if !metadata.is_file() {
            return Err(io::Error::other("it is not a regular file"));
        }
        let (named, bytes) = NamedFile::read(path.to_owned(), left as u64);
        self.diagnostics.saw(named);
        bytes
    }

    /// Adds a file that was read.
    fn add(&mut self, name: &str, path: PathBuf, bytes: &[u8], span: SourceSpan) {
        let bytes = bytes.strip_prefix("\u{feff}".as_bytes()).unwrap_or(bytes);
        let directory = Path::new(name).parent().unwrap_or(Path::new("")).to_owned();
        let text = String::from_utf8_lossy(bytes).into_owned();
        // A name may come from a directory that others write to: it must not control a terminal.
        let shown: String = name.chars().map(|c| if c.is_control() { '␣' } else { c }).collect();
        let Some(source) = self.diagnostics.sources().add(shown, directory, text) else {
            let message = format!("the configuration has more than {MAX_FILES} files");
            return self.broken(span, message, "join some of the files");
        };
        if let Err(error) = std::str::from_utf8(bytes) {
            not_utf8(&error, source, self.diagnostics);
            self.is_whole = false;
            return;
        }
        let table = match DeTable::parse(&source.text) {
            Ok(document) => document.into_inner(),
            Err(error) => {
                report_syntax(&error, source, self.diagnostics);
                self.is_whole = false;
                return;
            }
        };
        let mut table = moved(table, source.base);
        let included = table.remove(INCLUDE);
        join(&mut self.all, table, self.diagnostics);
        if let Some(included) = included {
            self.chain.push((path, name.to_owned()));
            let value = ConfigValue::of_key(INCLUDE, &included, self.diagnostics);
            for (path, span) in self.paths(&value, source) {
                self.include(&path, span);
            }
            self.chain.pop();
        }
    }

    /// The paths that `include` names, in order.
    fn paths(&mut self, value: &ConfigValue<'_>, source: &SourceFile) -> Vec<(PathBuf, SourceSpan)> {
        let (errors, unknown) = (self.diagnostics.errors(), self.diagnostics.unknown());
        let patterns = if value.is_list() {
            value.each(|item| item.text()).unwrap_or_default()
        } else {
            value.text().into_iter().collect()
        };
        let mut paths = Vec::new();
        for pattern in patterns {
            let found = self.matches(&pattern, source);
            paths.extend(found.into_iter().map(|path| (path, pattern.span())));
        }
        if self.diagnostics.unknown() > unknown {
            self.diagnostics.set_incomplete();
        } else if self.diagnostics.errors() > errors {
            self.is_whole = false;
        }
        paths
    }

    fn matches(&self, pattern: &Cursor<'_>, source: &SourceFile) -> Vec<PathBuf> {
        let fault = |message: String, help: &str| {
            self.diagnostics.fault(pattern.span(), message, help);
            Vec::new()
        };
        let (written, path) = (pattern.quoted(), source.directory.join(pattern.as_str()));
        let Some(name) = path.file_name().map(|name| name.to_string_lossy()).filter(|_| {
            !pattern.as_str().is_empty()
                && !pattern.as_str().ends_with('/')
                && !pattern.as_str().contains('\0')
        }) else {
            return fault(format!("{written} names no file"), "write a path, such as `routes/*.toml`");
        };
        if path.parent().is_some_and(|folder| wildcard::is_pattern(&folder.to_string_lossy())) {
            let help = "name each directory by itself: `[\"a/*.toml\", \"b/*.toml\"]`";
            return fault(format!("{written} has `*` or `?` in the name of a directory"), help);
        }
        if !wildcard::is_pattern(&name) {
            return vec![path.clone()];
        }
        let found = match wildcard::matches(&path) {
            Ok(found) => found,
            Err(error) => {
                let help = "the user that tollgate runs as must be able to list the directory";
                return fault(format!("cannot list the files of {written}: {error}"), help);
            }
        };
        self.diagnostics.saw(NamedFile::pattern(&path, &found));
        if found.is_empty() {
            let help = "look at the path, which begins where this file lies";
            self.diagnostics.warn(pattern.span(), format!("no file matches {written}"), help);
        }
        found
    }

    fn broken(&mut self, span: SourceSpan, message: String, help: &str) {
        self.is_whole = false;
        self.diagnostics.fault(span, message, help);
    }
}

/// The path without symbolic links, if it can be found.
fn real(path: &Path) -> PathBuf {
    std::fs::canonicalize(path).unwrap_or_else(|_| path.to_owned())
}

/// The file is not TOML.
fn report_syntax(error: &toml::de::Error, file: &SourceFile, diagnostics: &Diagnostics<'_>) {
    let span = error.span().unwrap_or(file.text.len()..file.text.len());
    let found = file.text.get(span.clone()).unwrap_or("");
    diagnostics.fault(
        file.span(span.start, span.end),
        format!("this is not TOML: {}", error.message()),
        remedy(error.message(), found),
    );
}

/// The file is not text.
fn not_utf8(error: &std::str::Utf8Error, file: &SourceFile, diagnostics: &Diagnostics<'_>) {
    let at = error.valid_up_to();
    let span = file.span(at, at + char::REPLACEMENT_CHARACTER.len_utf8());
    diagnostics.fault(span, "the file is not UTF-8 text from here on", "save it as UTF-8");
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

/// Arrays of tables that every file may add to, with the section that they stand in.
const APPENDED: [(Option<&str>, &str); 4] =
    [(None, "routes"), (None, "descriptors"), (None, "test"), (Some("server"), "tls")];

/// The table of a file with all spans moved by `base`.
fn moved(table: DeTable<'_>, base: usize) -> DeTable<'_> {
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
fn join<'a>(all: &mut DeTable<'a>, added: DeTable<'a>, diagnostics: &Diagnostics<'_>) {
    join_level(all, added, None, diagnostics);
}

fn join_level<'a>(
    all: &mut DeTable<'a>,
    added: DeTable<'a>,
    section: Option<&str>,
    diagnostics: &Diagnostics<'_>,
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
                join_level(joined, more, Some(name), diagnostics);
            }
            (Some(DeValue::Array(joined)), DeValue::Array(more)) if is_appended => {
                more.into_iter().for_each(|item| joined.push(item));
            }
            // To find the place takes long in a large file.
            _ if !diagnostics.shows_more_errors() => diagnostics.fault(key.span().into(), "", ""),
            _ => {
                let of = section.map(|section| format!(" of `[{section}]`")).unwrap_or_default();
                let first = diagnostics.sources().place(first_span);
                let message = format!("{}{of} stands in {} too", quoted(name), quoted(&first));
                let help =
                    "each key may stand in one file: leave one of the two out, or give one another name";
                diagnostics.fault(key.span().into(), message, help);
            }
        }
    }
}
