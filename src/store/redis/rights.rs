//! What the servers refuse beside deciding: the user has not the rights, a key is another program's, or the memory is full.

use parking_lot::Mutex;

/// What the servers have refused so far: it is off, and logged once. One for the process.
#[derive(Debug, Default)]
pub(super) struct MissingRights(Mutex<Vec<&'static str>>);

impl MissingRights {
    /// The servers refuse what this needs.
    pub(super) fn refused(&self, what: &'static str) {
        let mut known = self.0.lock();
        if !known.contains(&what) {
            known.push(what);
            tracing::warn!(
                "the store refuses what {what} need: they are off until it does not, and limits go on\n  = help: its \
                 user lacks commands that docs/shared-limits.md lists, or its memory is full"
            );
        }
    }
}
