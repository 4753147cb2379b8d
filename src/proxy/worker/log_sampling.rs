//! Decides whether a request is logged, and provides its record.
//!
//! Whether a request is refused or fails is known only at its end, when the client's bytes are gone. So each request
//! has a record. The record of a request that is not logged is reused with the memory of its texts: it costs copies of
//! a few short texts, no allocation.

use std::cell::{Cell, RefCell};

use crate::plan::log::Sample;
use crate::telemetry::access_log::Record;

/// Records that a worker keeps for the next request.
const MAX_SPARE: usize = 64;
/// A record is not kept if its client-sent texts have together grown beyond this; bytes.
const MAX_KEPT: usize = 4 << 10;

/// One worker's records.
#[derive(Debug)]
pub(crate) struct LogSampling {
    phase: Cell<u64>,
    #[expect(
        clippy::vec_box,
        reason = "a record changes hands twice a request: a pointer moves, not 400 bytes"
    )]
    spare: RefCell<Vec<Box<Record>>>,
}

impl LogSampling {
    /// Workers start at different points, so that not all of them sample their first request.
    pub(crate) fn new() -> Self {
        Self { phase: Cell::new(fastrand::u64(..)), spare: RefCell::default() }
    }

    /// Whether the next request belongs to the sample.
    pub(crate) fn chooses(&self, sample: Sample) -> bool {
        let mut phase = self.phase.get();
        let chosen = sample.chooses(&mut phase);
        self.phase.set(phase);
        chosen
    }

    /// A record with any content: all of it is to be overwritten.
    pub(crate) fn take(&self) -> Box<Record> {
        self.spare.borrow_mut().pop().unwrap_or_default()
    }

    /// Keeps an unlogged record for a later request.
    pub(crate) fn put(&self, record: Box<Record>) {
        let mut spare = self.spare.borrow_mut();
        if spare.len() < MAX_SPARE && sent_by_client(&record) <= MAX_KEPT {
            spare.push(record);
        }
    }
}

/// The memory of the texts that can be long.
fn sent_by_client(record: &Record) -> usize {
    let texts = [&record.request.host, &record.request.path, &record.request_id].map(String::capacity);
    let fields = [&record.request.referer, &record.request.user_agent].map(Vec::capacity);
    texts.iter().chain(&fields).sum::<usize>() + record.headers.capacity() + record.decision.key.capacity()
}
