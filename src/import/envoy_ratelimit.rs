//! Files of Envoy's rate limit service (`envoyproxy/ratelimit`), as limits and descriptors.
//!
//! That service answers a call of Envoy, which names a domain and lists of entries (`key` with `value`), by a tree of
//! rules. It counts in fixed windows aligned to the clock. For each list it walks the tree from level to level: at a
//! level an equal `value` wins, then the first `value` with `*` that fits, then the key without a value; it never goes
//! back. A rule decides only if the list ends at its level, and each list of values has a counter of its own.
//!
//! - [`reader`] reads the tree ([`rules`]) and refuses what the service refuses.
//! - [`matching`] turns it into `[[descriptors]]`, of which the one with most literals applies.
//! - [`limits`] writes `[limits]` and `[[descriptors]]`, with remarks about what differs.

mod limits;
mod matching;
mod reader;
mod rules;

use super::remark::ImportReport;
use super::{ImportFile, Imported};

/// Translates the files, which are read together.
pub fn import(files: &[ImportFile]) -> Imported {
    let mut report = ImportReport::new(files);
    let tree = reader::read(files, &mut report);
    let toml = match report.has_errors() {
        true => None,
        false => matching::descriptors(&tree, &mut report)
            .and_then(|matchings| limits::write(files, &tree, &matchings, &mut report)),
    };
    report.sort();
    Imported { toml, report }
}
