//! The files that make up one configuration, and places in their text. Each file begins at an offset of its own, so
//! that a span names file and place.

use std::cell::{Cell, OnceCell};
use std::path::PathBuf;

/// A range of a file: byte offsets, the end not included. The offsets of each file begin at a base of its own.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct SourceSpan {
    start: usize,
    end: usize,
}

impl SourceSpan {
    /// Its first byte.
    pub(super) fn start(self) -> usize {
        self.start
    }

    /// The end of it.
    pub(super) fn end(self) -> usize {
        self.end
    }
}

impl From<std::ops::Range<usize>> for SourceSpan {
    fn from(range: std::ops::Range<usize>) -> Self {
        Self { start: range.start, end: range.end }
    }
}

/// The maximum number of files of one configuration.
pub(super) const MAX_FILES: usize = 1_000;

/// All files, in the order in which they are read. Files are only added, so that their texts can be borrowed meanwhile.
pub(super) struct Sources {
    files: Vec<OnceCell<Box<SourceFile>>>,
    count: Cell<usize>,
}

/// One file.
pub(super) struct SourceFile {
    /// Its name in reports.
    pub(super) name: String,
    /// The directory for relative paths in it.
    pub(super) directory: PathBuf,
    /// Its text.
    pub(super) text: String,
    /// The offset of its first byte: the lengths of all earlier files, and one for each of them.
    pub(super) base: usize,
}

impl SourceFile {
    /// A span of this file's text as a span of the configuration.
    pub(super) fn span(&self, start: usize, end: usize) -> SourceSpan {
        SourceSpan::from(self.base + start..self.base + end)
    }
}

impl Default for Sources {
    fn default() -> Self {
        Self { files: (0..MAX_FILES).map(|_| OnceCell::new()).collect(), count: Cell::new(0) }
    }
}

impl Sources {
    /// Adds a file; `None` if there are [`MAX_FILES`].
    pub(super) fn add(&self, name: String, directory: PathBuf, text: String) -> Option<&SourceFile> {
        let base = self.iter().last().map_or(0, |last| last.base + last.text.len() + 1);
        let cell = self.files.get(self.count.get())?;
        self.count.set(self.count.get() + 1);
        Some(cell.get_or_init(|| Box::new(SourceFile { name, directory, text, base })))
    }

    /// All files so far.
    pub(super) fn iter(&self) -> impl Iterator<Item = &SourceFile> {
        self.files.iter().map_while(|cell| cell.get().map(|file| &**file))
    }

    /// The number of files so far.
    pub(super) fn len(&self) -> usize {
        self.count.get()
    }

    /// The number of bytes so far.
    pub(super) fn bytes(&self) -> usize {
        self.iter().map(|file| file.text.len()).sum()
    }

    /// The file in which a span lies.
    pub(super) fn at(&self, span: SourceSpan) -> Option<&SourceFile> {
        let files = self.files.get(..self.len())?;
        let after = files.partition_point(|cell| cell.get().is_some_and(|file| file.base <= span.start()));
        files.get(after.checked_sub(1)?)?.get().map(|file| &**file)
    }

    /// The file and the line of a span: `routes/a.toml:12`.
    pub(super) fn place(&self, span: SourceSpan) -> String {
        let Some(file) = self.at(span) else { return String::new() };
        let end = file.text.floor_char_boundary(span.start() - file.base);
        format!("{}:{}", file.name, file.text[..end].matches('\n').count() + 1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_offset_belongs_to_one_file() {
        let sources = Sources::default();
        for (name, text) in [("a", "1\n2\n"), ("b", ""), ("c", "ä\nx")] {
            sources.add(name.to_owned(), PathBuf::new(), text.to_owned()).unwrap();
        }
        let bases: Vec<usize> = sources.iter().map(|file| file.base).collect();
        assert_eq!((bases, sources.len(), sources.bytes()), (vec![0, 5, 6], 3, 8));
        for (offset, place) in
            [(0, "a:1"), (2, "a:2"), (4, "a:3"), (5, "b:1"), (6, "c:1"), (7, "c:1"), (9, "c:2"), (99, "c:2")]
        {
            assert_eq!(sources.place(SourceSpan::from(offset..offset)), place, "{offset}");
        }
    }

    #[test]
    fn the_number_of_files_is_bounded() {
        let sources = Sources::default();
        let add = || sources.add(String::new(), PathBuf::new(), "x".to_owned()).is_some();
        assert_eq!((0..MAX_FILES + 5).filter(|_| add()).count(), MAX_FILES);
        assert_eq!((sources.len(), sources.bytes()), (MAX_FILES, MAX_FILES));
    }
}
