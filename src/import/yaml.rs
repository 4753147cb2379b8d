//! A YAML document as a tree of values with their places, bounded in bytes, depth and number.
//!
//! An alias leads to the value of its anchor, which is stored once: a file of nested aliases ("billion laughs") takes no
//! more memory than its text. Readers of the tree bound what they visit ([`MAX_VISITS`]).

use std::borrow::Cow;
use std::cell::Cell;
use std::collections::{HashMap, HashSet};

use granit_parser::{ErrorKind, Event, Parser, ScalarStyle, ScanError, Span};

use super::remark::quoted;

/// The maximum number of bytes of a file.
pub(super) const MAX_BYTES: usize = 4 << 20;
/// The maximum number of collections within each other.
const MAX_DEPTH: usize = 64;
/// The maximum number of values and of aliases.
const MAX_VALUES: usize = 250_000;
/// The maximum number of entries of mappings that are visited, each as often as an alias names it.
const MAX_VISITS: usize = 500_000;
/// The maximum number of merges (`<<`) within each other.
const MAX_MERGES: usize = 16;

/// The index of a value.
pub(super) type YamlIndex = usize;

/// A document.
pub(super) struct YamlTree<'t> {
    values: Vec<YamlValue<'t>>,
    pub(super) root: YamlIndex,
    /// Where a second document begins.
    pub(super) second: Option<(usize, usize)>,
    visits: Cell<usize>,
}

/// A value with its place.
pub(super) struct YamlValue<'t> {
    pub(super) kind: YamlKind<'t>,
    /// The offsets of its first byte and behind its last; of a collection, those of its first character.
    pub(super) place: (usize, usize),
}

/// The kinds of values.
pub(super) enum YamlKind<'t> {
    /// A text, and whether it has no quotes: only then it may be a number, a boolean or null.
    Scalar {
        text: Cow<'t, str>,
        is_plain: bool,
    },
    Sequence(Vec<YamlIndex>),
    /// Keys with values, in order. No two scalar keys are equal.
    Mapping(Vec<(YamlIndex, YamlIndex)>),
}

/// Why a text has no tree.
pub(super) struct YamlFault {
    pub(super) message: String,
    pub(super) help: &'static str,
    pub(super) place: (usize, usize),
}

impl YamlFault {
    fn new(place: (usize, usize), message: impl Into<String>, help: &'static str) -> Self {
        Self { message: message.into(), help, place }
    }
}

/// Reads the first document of a text.
pub(super) fn parse(text: &str) -> Result<YamlTree<'_>, YamlFault> {
    if text.len() > MAX_BYTES {
        let message = format!("the file has more than {} MiB", MAX_BYTES >> 20);
        return Err(YamlFault::new((0, 0), message, "split it: several files are read together"));
    }
    let options = granit_parser::options! { flow_nesting_limit: MAX_DEPTH, block_nesting_limit: MAX_DEPTH };
    let (mut builder, mut second) = (YamlBuilder::default(), None);
    for event in Parser::new_from_str_with_options(text, options) {
        let (event, span) = event.map_err(|error| not_yaml(text, &error))?;
        let place = place_of(&span, text.len());
        if matches!(event, Event::DocumentStart(..)) && builder.root.is_some() {
            second = Some(place);
            break;
        }
        builder.add(event, place)?;
    }
    let empty = || YamlFault::new((0, 0), "the file is empty", "name a file with `domain` and `descriptors`");
    let root = builder.root.ok_or_else(empty)?;
    Ok(YamlTree { values: builder.values, root, second, visits: Cell::new(0) })
}

/// A fault of the syntax. The parser names the begin of a text with a tab in it; users look for the tab.
fn not_yaml(text: &str, error: &ScanError) -> YamlFault {
    let begin = error.marker().byte_offset().unwrap_or(0).min(text.len());
    let has_tab = matches!(
        error.kind(),
        ErrorKind::TabInPlainScalar
            | ErrorKind::TabInBlockIndentation
            | ErrorKind::TabInIndentation
            | ErrorKind::TabNotAllowed
            | ErrorKind::TabAtBlockScalarStart
    );
    let tab = text.get(begin..).and_then(|rest| rest.find('\t')).filter(|_| has_tab);
    let at = begin + tab.unwrap_or(0);
    let help = if has_tab { "indent with blanks" } else { "this is not YAML: mend it at this place" };
    YamlFault::new((at, at), error.info(), help)
}

fn place_of(span: &Span, length: usize) -> (usize, usize) {
    let at = |offset: Option<usize>| offset.unwrap_or(0).min(length);
    let (start, end) = (at(span.start.byte_offset()), at(span.end.byte_offset()));
    (start, end.max(start))
}

/// A collection whose end was not read yet.
struct OpenCollection {
    index: YamlIndex,
    /// The values so far; of a mapping keys and values by turns.
    items: Vec<YamlIndex>,
    is_mapping: bool,
}

#[derive(Default)]
struct YamlBuilder<'t> {
    values: Vec<YamlValue<'t>>,
    open: Vec<OpenCollection>,
    anchors: HashMap<usize, YamlIndex>,
    aliases: usize,
    root: Option<YamlIndex>,
}

impl<'t> YamlBuilder<'t> {
    fn add(&mut self, event: Event<'t>, place: (usize, usize)) -> Result<(), YamlFault> {
        match event {
            Event::Scalar(text, style, anchor, _) => {
                let is_plain = style == ScalarStyle::Plain;
                let index = self.push(YamlKind::Scalar { text, is_plain }, place, anchor)?;
                self.attach(index);
            }
            Event::SequenceStart(_, anchor, _) => self.open(false, place, anchor)?,
            Event::MappingStart(_, anchor, _) => self.open(true, place, anchor)?,
            Event::SequenceEnd | Event::MappingEnd => self.close()?,
            Event::Alias(id) => {
                self.aliases += 1;
                let index = self.anchors.get(&id).copied();
                let is_open = self.open.iter().any(|open| Some(open.index) == index);
                let index = index.filter(|_| !is_open && self.aliases <= MAX_VALUES).ok_or_else(|| {
                    let message = if is_open { "an alias within its own anchor" } else { "too many aliases" };
                    YamlFault::new(place, message, "write the value itself")
                })?;
                self.attach(index);
            }
            _ => {}
        }
        Ok(())
    }

    fn open(&mut self, is_mapping: bool, place: (usize, usize), anchor: usize) -> Result<(), YamlFault> {
        if self.open.len() >= MAX_DEPTH {
            let message = format!("more than {MAX_DEPTH} levels within each other");
            return Err(YamlFault::new(place, message, "a file of that service has few levels"));
        }
        let index = self.push(YamlKind::Sequence(Vec::new()), place, anchor)?;
        self.open.push(OpenCollection { index, items: Vec::new(), is_mapping });
        Ok(())
    }

    fn close(&mut self) -> Result<(), YamlFault> {
        // The parser pairs the events; without a collection there is nothing to close.
        let Some(OpenCollection { index, items, is_mapping }) = self.open.pop() else { return Ok(()) };
        let kind = match is_mapping {
            false => YamlKind::Sequence(items),
            true => {
                let pairs = items.chunks_exact(2);
                let pairs: Vec<_> = pairs.filter_map(|pair| Some((*pair.first()?, *pair.last()?))).collect();
                self.refuse_equal_keys(&pairs)?;
                YamlKind::Mapping(pairs)
            }
        };
        if let Some(value) = self.values.get_mut(index) {
            value.kind = kind;
        }
        self.attach(index);
        Ok(())
    }

    fn refuse_equal_keys(&self, pairs: &[(YamlIndex, YamlIndex)]) -> Result<(), YamlFault> {
        let mut seen = HashSet::with_capacity(pairs.len());
        for key in pairs.iter().filter_map(|(key, _)| self.values.get(*key)) {
            if let YamlKind::Scalar { text, .. } = &key.kind
                && !seen.insert(text.as_ref())
            {
                let message = format!("the key {} is written twice", quoted(text));
                return Err(YamlFault::new(key.place, message, "remove one of the two"));
            }
        }
        Ok(())
    }

    /// Stores a value.
    fn push(
        &mut self,
        kind: YamlKind<'t>,
        place: (usize, usize),
        anchor: usize,
    ) -> Result<YamlIndex, YamlFault> {
        if self.values.len() >= MAX_VALUES {
            let message = format!("the file has more than {MAX_VALUES} values");
            return Err(YamlFault::new(place, message, "split it: several files are read together"));
        }
        let index = self.values.len();
        self.values.push(YamlValue { kind, place });
        if anchor != 0 {
            self.anchors.insert(anchor, index);
        }
        Ok(index)
    }

    /// Makes a value part of the innermost open collection, or the root.
    fn attach(&mut self, index: YamlIndex) {
        match self.open.last_mut() {
            Some(open) => open.items.push(index),
            None => self.root = self.root.or(Some(index)),
        }
    }
}

impl<'t> YamlTree<'t> {
    /// A value of the tree.
    pub(super) fn value(&self, index: YamlIndex) -> Option<&YamlValue<'t>> {
        self.values.get(index)
    }

    /// The entries of a mapping, those of its merges (`<<`) included: an own entry wins, then the first one merged. `None`
    /// if it is no mapping.
    pub(super) fn entries(&self, index: YamlIndex) -> Option<Result<Vec<YamlEntry<'_>>, YamlFault>> {
        matches!(self.value(index)?.kind, YamlKind::Mapping(_)).then(|| {
            let (mut entries, mut seen) = (Vec::new(), HashSet::new());
            self.collect(index, 0, &mut entries, &mut seen).map(|()| entries)
        })
    }

    fn collect<'a>(
        &'a self,
        index: YamlIndex,
        depth: usize,
        entries: &mut Vec<YamlEntry<'a>>,
        seen: &mut HashSet<&'a str>,
    ) -> Result<(), YamlFault> {
        let Some(YamlValue { kind: YamlKind::Mapping(pairs), place }) = self.value(index) else {
            let place = self.value(index).map_or((0, 0), |value| value.place);
            return Err(YamlFault::new(place, "`<<` merges mappings only", "name an anchor of a mapping"));
        };
        self.visits.set(self.visits.get() + 1 + pairs.len());
        if self.visits.get() > MAX_VISITS || depth > MAX_MERGES {
            let help = "write values themselves in place of aliases";
            return Err(YamlFault::new(*place, "aliases and merges make the file too large", help));
        }
        let mut merged = Vec::new();
        for (key, value) in pairs {
            match self.value(*key).map(|key| (&key.kind, key.place)) {
                Some((YamlKind::Scalar { text, is_plain: true }, _)) if text == "<<" => merged.push(*value),
                Some((YamlKind::Scalar { text, .. }, key_place)) if seen.insert(text) => {
                    entries.push(YamlEntry { key: text, key_place, value: *value });
                }
                Some((YamlKind::Scalar { .. }, _)) | None => {}
                Some((_, place)) => {
                    return Err(YamlFault::new(
                        place,
                        "a key is not a text",
                        "write a word before the colon",
                    ));
                }
            }
        }
        for value in merged {
            match self.value(value).map(|value| &value.kind) {
                Some(YamlKind::Sequence(items)) => {
                    for item in items {
                        self.collect(*item, depth + 1, entries, seen)?;
                    }
                }
                _ => self.collect(value, depth + 1, entries, seen)?,
            }
        }
        Ok(())
    }
}

/// An entry of a mapping.
pub(super) struct YamlEntry<'a> {
    pub(super) key: &'a str,
    pub(super) key_place: (usize, usize),
    pub(super) value: YamlIndex,
}
