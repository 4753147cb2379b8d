//! Paths as automata: whether some normalised path is matched by one route and by none of others.
//!
//! Each [`PathAutomaton`] reads a path byte by byte, in the two forms that routes compare: as spelled, and bare, without
//! the parameters of segments and with or without the trailing slash (see [`Path`](crate::route::path::Path)).
//! [`NormalPaths`] says which paths are normalised at all, and what stays of them in the bare form. A search in breadth
//! through all of these together finds the shortest path wanted, or proves that there is none: `~^login$` matches no
//! path, since paths begin with `/`. The search is bounded; beyond the bound the answer is unknown.

use std::collections::HashSet;

use regex_automata::hybrid::LazyStateID;
use regex_automata::hybrid::dfa::{Builder, Cache, Config, DFA};
use regex_automata::util::syntax;
use regex_automata::{Anchored, Input};

use crate::route::path::PathMatching;
use crate::route::pattern::{PathMatcher, PathPattern};

/// Maximum bytes of the states of one automaton.
const MAX_CACHE: usize = 1 << 20;
/// Maximum number of states of all automata together.
const MAX_STATES: usize = 1 << 14;
/// Maximum number of steps of one search, each of one automaton.
const MAX_STEPS: usize = 1 << 18;
/// The digits of an escape in normal form.
const HEX: &[u8; 16] = b"0123456789ABCDEF";

/// A path matcher that is read byte by byte.
pub(super) struct PathAutomaton {
    dfa: DFA,
    cache: Cache,
    start: LazyStateID,
    reads_spelled: bool,
    bare: BareForm,
}

/// How the bare form of a path is read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum BareForm {
    Unread,
    WithoutSlash,
    /// Without the trailing slash, and with it.
    Both,
}

/// The position of one automaton in one form of the path.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Run {
    Unread,
    At(LazyStateID),
    /// It matches, whatever follows.
    Matches,
    /// It matches nothing, whatever follows.
    Fails,
}

/// An automaton has become too large.
struct TooLarge;

/// The result of a search.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum PathSearch {
    /// The shortest path wanted.
    Found(String),
    /// There is no such path.
    Nothing,
    /// The search has ended at its bound.
    Unknown,
}

impl PathAutomaton {
    /// Of a route's path, in the form that requests are compared with. `None`: it is too large.
    pub(super) fn of_route(path: &PathMatcher, matching: PathMatching) -> Option<Self> {
        let is_lenient = matching == PathMatching::Lenient;
        match path {
            PathMatcher::Regex(regex) => {
                let bare = if is_lenient { BareForm::Both } else { BareForm::Unread };
                Self::new(regex.to_string().strip_prefix('~')?, is_lenient, (true, bare))
            }
            PathMatcher::Pattern(pattern) if is_lenient => {
                Self::new(&expression_of(pattern), true, (false, BareForm::WithoutSlash))
            }
            PathMatcher::Pattern(pattern) => Self::of_spelled(pattern),
        }
    }

    /// Of a pattern that paths are compared with as they are spelled.
    pub(super) fn of_spelled(pattern: &PathPattern) -> Option<Self> {
        Self::new(&expression_of(pattern), false, (true, BareForm::Unread))
    }

    fn new(expression: &str, ignores_case: bool, (reads_spelled, bare): (bool, BareForm)) -> Option<Self> {
        let syntax = syntax::Config::new().unicode(false).utf8(false).case_insensitive(ignores_case);
        let bounds = Config::new()
            .cache_capacity(MAX_CACHE)
            .skip_cache_capacity_check(true)
            .minimum_cache_clear_count(Some(0));
        let dfa = Builder::new().configure(bounds).syntax(syntax).build(expression).ok()?;
        let mut cache = dfa.create_cache();
        let start = dfa.start_state_forward(&mut cache, &Input::new("").anchored(Anchored::No)).ok()?;
        Some(Self { dfa, cache, start, reads_spelled, bare })
    }

    fn step(&mut self, run: Run, byte: u8) -> Result<Run, TooLarge> {
        let Run::At(state) = run else { return Ok(run) };
        let next = self.dfa.next_state(&mut self.cache, state, byte).map_err(|_| TooLarge)?;
        // A match is told one byte late.
        Ok(match () {
            () if next.is_match() => Run::Matches,
            () if next.is_dead() => Run::Fails,
            () if next.is_quit() => return Err(TooLarge),
            () => Run::At(next),
        })
    }

    fn matches_at_end(&mut self, run: Run) -> Result<bool, TooLarge> {
        match run {
            Run::At(state) => {
                let end = self.dfa.next_eoi_state(&mut self.cache, state).map_err(|_| TooLarge)?;
                Ok(end.is_match())
            }
            Run::Matches => Ok(true),
            Run::Unread | Run::Fails => Ok(false),
        }
    }

    fn begin(&self) -> Runs {
        let at = |is_read| if is_read { Run::At(self.start) } else { Run::Unread };
        Runs { spelled: at(self.reads_spelled), bare: at(self.bare != BareForm::Unread) }
    }

    fn steps(&mut self, runs: Runs, byte: u8, bare: BareBytes) -> Result<Runs, TooLarge> {
        let spelled = self.step(runs.spelled, byte)?;
        let mut rest = runs.bare;
        if matches!(bare, BareBytes::Slash | BareBytes::SlashAndByte) {
            rest = self.step(rest, b'/')?;
        }
        if matches!(bare, BareBytes::Byte | BareBytes::SlashAndByte) {
            rest = self.step(rest, byte)?;
        }
        Ok(Runs { spelled, bare: rest })
    }

    /// Whether the path that ends here is matched.
    fn is_match(&mut self, runs: Runs, shape: Shape) -> Result<bool, TooLarge> {
        if self.matches_at_end(runs.spelled)? {
            return Ok(true);
        }
        // A bare path of nothing is the root.
        let without = if shape.is_bare_empty { self.step(runs.bare, b'/')? } else { runs.bare };
        if self.matches_at_end(without)? {
            return Ok(true);
        }
        if self.bare != BareForm::Both || !shape.slash_is_due {
            return Ok(false);
        }
        let with_slash = self.step(runs.bare, b'/')?;
        self.matches_at_end(with_slash)
    }
}

/// The positions of one automaton in both forms.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Runs {
    spelled: Run,
    bare: Run,
}

impl Runs {
    fn fail(self) -> bool {
        [self.spelled, self.bare].iter().all(|run| matches!(run, Run::Unread | Run::Fails))
    }

    fn match_all(self) -> bool {
        self.spelled == Run::Matches || self.bare == Run::Matches
    }
}

/// A pattern as a regular expression.
fn expression_of(pattern: &PathPattern) -> String {
    let text = pattern.to_string();
    let (text, is_prefix) = text.strip_suffix("/*").map_or((&*text, false), |text| (text, true));
    let mut expression = String::from("^");
    for segment in text.split('/').skip(1) {
        expression.push('/');
        match segment.starts_with('{') {
            true => expression.push_str("[^/]+"),
            false => expression.push_str(&regex_syntax::escape(segment)),
        }
    }
    expression.push_str(if is_prefix { "(?:/|$)" } else { "$" });
    expression
}

/// The paths that routes are compared with: as [`Path`](crate::route::path::Path) normalises those of requests.
#[derive(Clone, Copy, Debug)]
pub(super) struct NormalPaths {
    /// Whether `//` counts as `/`.
    pub(super) merge_slashes: bool,
    /// Whether paths with encoded dot segments are refused.
    pub(super) refuses_encoded_dots: bool,
    /// A rule that is left out, to find out whether it is the reason that nothing matches.
    pub(super) without: Option<PathRule>,
}

/// A rule of normalised paths.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PathRule {
    /// A path begins with `/`.
    BeginsWithSlash,
    /// Duplicate slashes are merged.
    MergesSlashes,
    /// The query is not part of the path.
    EndsBeforeQuery,
    /// Escapes are decoded or written in capitals.
    DecodesEscapes,
    /// Blanks, controls and characters beyond ASCII are percent-encoded.
    IsEncoded,
    /// Dot segments are resolved.
    ResolvesDots,
    /// Paths with encoded dot segments are refused, where they are.
    HasNoEncodedDots,
}

impl PathRule {
    /// All rules, the ones that are broken most often first.
    pub(super) const ALL: [Self; 7] = [
        Self::BeginsWithSlash,
        Self::EndsBeforeQuery,
        Self::MergesSlashes,
        Self::IsEncoded,
        Self::HasNoEncodedDots,
        Self::DecodesEscapes,
        Self::ResolvesDots,
    ];
}

/// The part of a path that was read, as far as it matters for the rest.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Shape {
    place: Place,
    in_parameters: bool,
    /// A slash was read that the bare form does not have yet.
    slash_is_due: bool,
    is_bare_empty: bool,
}

/// The place inside a segment.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Place {
    /// Before the path.
    Start,
    /// After a slash.
    Slash,
    /// After an encoded separator, where encoded dot segments are refused.
    Separator,
    Dot,
    TwoDots,
    Name,
    /// In a segment that begins with dots and `;`, which keeps its parameters.
    Whole,
    Percent(Before),
    Digit(Before, u8),
}

/// The place before an escape.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Before {
    Dots,
    Whole,
    Name,
}

/// The part of a byte that the bare form has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum BareBytes {
    Nothing,
    Slash,
    Byte,
    SlashAndByte,
}

impl NormalPaths {
    const BEGIN: Shape =
        Shape { place: Place::Start, in_parameters: false, slash_is_due: false, is_bare_empty: true };

    /// The shape after a further byte, and what the bare form has of it. `None`: no normalised path goes on so.
    fn step(self, shape: Shape, byte: u8) -> Option<(Shape, BareBytes)> {
        let place = self.place(shape.place, byte)?;
        if byte == b'/' {
            let is_kept = shape.slash_is_due && !self.merges_slashes();
            let bare = if is_kept { BareBytes::Slash } else { BareBytes::Nothing };
            let is_bare_empty = shape.is_bare_empty && !is_kept;
            return Some((Shape { place, in_parameters: false, slash_is_due: true, is_bare_empty }, bare));
        }
        let begins_parameters = byte == b';' && place == Place::Name;
        if shape.in_parameters || begins_parameters {
            return Some((Shape { place, in_parameters: true, ..shape }, BareBytes::Nothing));
        }
        let bare = if shape.slash_is_due { BareBytes::SlashAndByte } else { BareBytes::Byte };
        Some((Shape { place, in_parameters: false, slash_is_due: false, is_bare_empty: false }, bare))
    }

    fn place(self, place: Place, byte: u8) -> Option<Place> {
        match place {
            Place::Percent(before) => return Some(Place::Digit(before, digit(byte)?)),
            Place::Digit(before, high) => return self.after_escape(before, high << 4 | digit(byte)?),
            _ if !self.may_contain(byte) => return None,
            _ => {}
        }
        let resolves_dots = self.without != Some(PathRule::ResolvesDots);
        Some(match (place, byte) {
            (Place::Start, b'/') => Place::Slash,
            (Place::Start, _) if self.without != Some(PathRule::BeginsWithSlash) => return None,
            (Place::Slash, b'/') if self.merges_slashes() => return None,
            (Place::Dot | Place::TwoDots, b'/') if resolves_dots => return None,
            (_, b'/') => Place::Slash,
            (_, b'%') if self.without == Some(PathRule::DecodesEscapes) => Place::Name,
            (Place::Dot | Place::TwoDots, b'%') => Place::Percent(Before::Dots),
            (Place::Whole, b'%') => Place::Percent(Before::Whole),
            (_, b'%') => Place::Percent(Before::Name),
            (Place::Slash | Place::Separator, b'.') => Place::Dot,
            (Place::Dot, b'.') => Place::TwoDots,
            (Place::Dot | Place::TwoDots, b';') if self.refuses_dots() => return None,
            (Place::Dot | Place::TwoDots, b';') | (Place::Whole, _) => Place::Whole,
            _ => Place::Name,
        })
    }

    /// After the escape of `byte`: unreserved characters are decoded before.
    fn after_escape(self, before: Before, byte: u8) -> Option<Place> {
        let is_decoded = byte.is_ascii_alphanumeric() || b"-._~\0".contains(&byte);
        let separates = matches!(byte, b'/' | b'\\') && self.refuses_dots();
        let ends_dots = separates || byte == b';' && self.refuses_dots();
        match before {
            _ if is_decoded => None,
            Before::Dots if ends_dots => None,
            _ if separates => Some(Place::Separator),
            Before::Whole => Some(Place::Whole),
            Before::Dots | Before::Name => Some(Place::Name),
        }
    }

    fn merges_slashes(self) -> bool {
        self.merge_slashes && self.without != Some(PathRule::MergesSlashes)
    }

    fn refuses_dots(self) -> bool {
        self.refuses_encoded_dots && self.without != Some(PathRule::HasNoEncodedDots)
    }

    fn may_contain(self, byte: u8) -> bool {
        match byte {
            b'?' | b'#' => self.without == Some(PathRule::EndsBeforeQuery),
            0..=b' ' | b'\\' | 0x7f.. => self.without == Some(PathRule::IsEncoded),
            _ => true,
        }
    }

    /// Whether a path may end here.
    fn is_end(self, shape: Shape) -> bool {
        match shape.place {
            Place::Slash | Place::Separator | Place::Name | Place::Whole => true,
            Place::Dot | Place::TwoDots => self.without == Some(PathRule::ResolvesDots),
            Place::Start => self.without == Some(PathRule::BeginsWithSlash),
            Place::Percent(_) | Place::Digit(..) => false,
        }
    }

    /// Searches the shortest normalised path that all `wanted` match and none of `others` does. Takes the steps it makes
    /// from `steps_left`.
    pub(super) fn search(
        self,
        wanted: &mut [PathAutomaton],
        others: &mut [PathAutomaton],
        steps_left: &mut usize,
    ) -> PathSearch {
        let mut search = Search { paths: self, wanted, others, reached: Vec::new(), known: HashSet::new() };
        search.run(steps_left).unwrap_or(PathSearch::Unknown)
    }
}

/// The value of a digit of an escape in normal form.
fn digit(byte: u8) -> Option<u8> {
    HEX.iter().position(|digit| *digit == byte).and_then(|value| u8::try_from(value).ok())
}

/// A search in breadth.
struct Search<'a> {
    paths: NormalPaths,
    wanted: &'a mut [PathAutomaton],
    others: &'a mut [PathAutomaton],
    /// The states reached, in order, each with the one before it and the byte that led here.
    reached: Vec<(AutomatonState, Option<(usize, u8)>)>,
    known: HashSet<AutomatonState>,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct AutomatonState {
    shape: Shape,
    /// Of the wanted ones, then of the others.
    runs: Box<[Runs]>,
}

impl Search<'_> {
    fn run(&mut self, steps_left: &mut usize) -> Result<PathSearch, TooLarge> {
        let bytes = self.representatives();
        let runs = self.wanted.iter().chain(self.others.iter()).map(PathAutomaton::begin).collect();
        self.add(AutomatonState { shape: NormalPaths::BEGIN, runs }, None);
        let (mut at, bound) = (0, steps_left.saturating_sub(MAX_STEPS));
        while let Some((state, _)) = self.reached.get(at) {
            let state = state.clone();
            if self.paths.is_end(state.shape) && self.is_wanted(&state)? {
                return Ok(PathSearch::Found(self.path_to(at)));
            }
            let is_escape = matches!(state.shape.place, Place::Percent(_) | Place::Digit(..));
            let next_bytes = if is_escape { HEX.as_slice() } else { bytes.as_slice() };
            for &byte in next_bytes {
                *steps_left = steps_left.saturating_sub(state.runs.len());
                if *steps_left <= bound || self.reached.len() > MAX_STATES {
                    return Err(TooLarge);
                }
                if let Some(next) = self.step(&state, byte)? {
                    self.add(next, Some((at, byte)));
                }
            }
            at += 1;
        }
        Ok(PathSearch::Nothing)
    }

    /// The state after a byte; `None`: no path wanted goes on so.
    fn step(&mut self, state: &AutomatonState, byte: u8) -> Result<Option<AutomatonState>, TooLarge> {
        let Some((shape, bare)) = self.paths.step(state.shape, byte) else { return Ok(None) };
        let mut runs = Vec::with_capacity(state.runs.len());
        let wanted = self.wanted.len();
        let automata = self.wanted.iter_mut().chain(self.others.iter_mut());
        for (index, (automaton, run)) in automata.zip(&state.runs).enumerate() {
            let next = automaton.steps(*run, byte, bare)?;
            if index < wanted && next.fail() || index >= wanted && next.match_all() {
                return Ok(None);
            }
            runs.push(next);
        }
        Ok(Some(AutomatonState { shape, runs: runs.into() }))
    }

    fn is_wanted(&mut self, state: &AutomatonState) -> Result<bool, TooLarge> {
        let (wanted, others) = state.runs.split_at(self.wanted.len());
        for (automaton, runs) in self.wanted.iter_mut().zip(wanted) {
            if !automaton.is_match(*runs, state.shape)? {
                return Ok(false);
            }
        }
        for (automaton, runs) in self.others.iter_mut().zip(others) {
            if automaton.is_match(*runs, state.shape)? {
                return Ok(false);
            }
        }
        Ok(true)
    }

    fn add(&mut self, state: AutomatonState, from: Option<(usize, u8)>) {
        if self.known.insert(state.clone()) {
            self.reached.push((state, from));
        }
    }

    fn path_to(&self, mut at: usize) -> String {
        let mut bytes = Vec::new();
        while let Some((_, Some((before, byte)))) = self.reached.get(at) {
            bytes.push(*byte);
            at = *before;
        }
        bytes.reverse();
        String::from_utf8_lossy(&bytes).into_owned()
    }

    /// One byte of each kind that neither paths nor automata tell apart, letters first.
    fn representatives(&self) -> Vec<u8> {
        let signs = (0..=u8::MAX).filter(|byte| !byte.is_ascii_lowercase());
        let mut kinds = HashSet::new();
        let mut bytes = Vec::new();
        for byte in (b'a'..=b'z').chain(signs).filter(|byte| self.paths.may_contain(*byte)) {
            let own = b"/.;%".contains(&byte).then_some(byte);
            let automata = self.wanted.iter().chain(self.others.iter());
            let classes: Vec<u8> = automata.map(|automaton| automaton.dfa.byte_classes().get(byte)).collect();
            if kinds.insert((own, classes)) {
                bytes.push(byte);
            }
        }
        bytes
    }
}

#[cfg(test)]
mod tests;
