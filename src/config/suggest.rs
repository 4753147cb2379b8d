//! "Did you mean …?"

use super::report::quoted;

/// Longer texts than this are not compared: typing errors occur in short ones.
const MAX_COMPARED: usize = 64;
/// The maximum number of candidates compared.
const MAX_CANDIDATES: usize = 1_000;

/// The candidate that differs least from `text`, if it differs by a third of its letters or less.
pub(super) fn nearest<'a>(text: &str, candidates: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    let letters = text.chars().count();
    let allowed = (letters / 3).max(1).min(letters.saturating_sub(1));
    let lower = text.to_lowercase();
    let distance = |candidate: &str| strsim::damerau_levenshtein(&lower, candidate);
    candidates
        .into_iter()
        .take(MAX_CANDIDATES)
        .filter(|candidate| text.len().max(candidate.len()) <= MAX_COMPARED)
        .map(|candidate| (distance(candidate), !begins_alike(text, candidate), candidate))
        .filter(|&(distance, ..)| distance <= allowed)
        .min()
        .map(|(.., candidate)| candidate)
}

/// The remedy for a name that is not among `candidates`: the nearest of them, if any is near, then `otherwise`.
pub(super) fn did_you_mean<'a>(
    text: &str,
    candidates: impl IntoIterator<Item = &'a str>,
    otherwise: &str,
) -> String {
    match nearest(text, candidates) {
        Some(candidate) => format!("did you mean {}? {otherwise}", quoted(candidate)),
        None => otherwise.to_owned(),
    }
}

/// Of two equally near candidates, the one that begins alike is suggested: `hosts` and not `cost` for `host`.
fn begins_alike(text: &str, candidate: &str) -> bool {
    text.chars().next() == candidate.chars().next()
}
