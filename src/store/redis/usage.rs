//! The usage of consumers in a fleet, as one worker of each gateway writes its own and reads that of the others: see
//! `usage.lua`.
//!
//! A process writes the sums of its own rows, and no differences: a call that is lost heals with the next one, and a call
//! that is repeated changes nothing. The server tells the number of the process's call before. If that is another one than
//! the last that was answered, the server has lost data, and all rows are written anew. A process that ends as planned moves
//! its rows to those of all ended processes; the rows of one that crashed stay under its name.

use std::collections::HashMap;
use std::time::Duration;

use tokio::time::sleep;

use super::client::RedisClient;
use super::key;
use super::resp::Integers;
use super::written_usage::WrittenSeries;
use crate::clock;
use crate::limit::units::Fingerprint;
use crate::limit::wall_clock::WallTime;
use crate::store::Unreachable;
use crate::store::usage::{
    RowConsumer, SharedUsage, UsageConsumer, UsageLedger, UsageRow, UsageSettings, UsageSpan, UsageTotals,
};

/// What needs it.
const WHAT: &str = "the usage of consumers";
/// The maximum number of rows in a call.
const ROWS: usize = 250;
/// How often a process tells that it is there, if it has no changes.
const TOLD_EVERY: Duration = Duration::from_secs(3);
/// A process that is silent for longer, in µs, has crashed.
const GONE_AFTER: u64 = 10_000_000;
/// What a process may have recorded after its last call, in µs.
const UNTOLD: u64 = 4_000_000;
/// How often rows are read anew that move meanwhile, and the pause before.
const READS: usize = 20;
const PAUSE: Duration = Duration::from_millis(20);
/// The life of keys beyond that of the windows that are kept.
const MARGIN_MS: u64 = 86_400_000;

/// The processes that have written rows of a limit.
struct UsageIndex {
    now: u64,
    since: u64,
    version: i64,
    lost: u64,
    runs: Vec<UsageRun>,
}

struct UsageRun {
    id: u64,
    last: u64,
    has_ended: bool,
}

/// Rows of a reply.
struct RowsPage {
    version: i64,
    cursor: u64,
    rows: Vec<UsageRow>,
}

impl RedisClient {
    /// Writes the changes of these limits' usage, under the id of this process. To be called about once a second by one
    /// worker. `ends`: the process ends, and nothing is recorded after this.
    ///
    /// # Errors
    ///
    /// The server cannot be asked: everything is written anew by a later call.
    pub(in crate::store) async fn keep_usage<'s>(
        &self,
        ledger: &UsageLedger,
        run: u64,
        limits: impl IntoIterator<Item = &'s UsageSettings>,
        ends: bool,
    ) -> Result<(), Unreachable> {
        for settings in limits {
            let written = self.write_usage(ledger, run, settings, ends).await;
            if written.is_err() {
                ledger.rewrite(settings);
                return written;
            }
        }
        Ok(())
    }

    async fn write_usage(
        &self,
        ledger: &UsageLedger,
        run: u64,
        settings: &UsageSettings,
        ends: bool,
    ) -> Result<(), Unreachable> {
        if ends || !self.usage.0.borrow().contains_key(&settings.id()) {
            ledger.rewrite(settings);
        }
        while let Some((span, rows)) = ledger.take_changed(settings, ROWS) {
            self.write_rows(ledger, run, settings, Some((span, &rows)), false).await?;
        }
        let told = self.usage.0.borrow().get(&settings.id()).and_then(|written| written.told);
        if ends || told.is_none_or(|told| told.elapsed() >= TOLD_EVERY) {
            self.write_rows(ledger, run, settings, None, ends).await?;
        }
        if ends {
            for span in ledger.spans(settings) {
                while self.fold_usage(run, settings, span).await? > 0 {}
            }
        }
        Ok(())
    }

    /// Writes rows of a window; without any, only that this process is there.
    async fn write_rows(
        &self,
        ledger: &UsageLedger,
        run: u64,
        settings: &UsageSettings,
        rows: Option<(UsageSpan, &[UsageRow])>,
        ends: bool,
    ) -> Result<(), Unreachable> {
        let before = self.usage.0.borrow().get(&settings.id()).copied().unwrap_or_default();
        let call = ledger.next_call();
        let (tag, run) = (key::key_hash(Fingerprint(settings.id())), run_id(run));
        let names = [Some(INDEX.to_vec()), rows.map(|(span, _)| rows_name(span, run.as_bytes()))];
        let names: Vec<Vec<u8>> = names.into_iter().flatten().collect();
        let since = ledger.since(settings);
        let answer = self.script.ask_names(WHAT, &names, &tag, |command| {
            command.word(b"usage-write");
            command.word(run.as_bytes());
            command.number(call);
            command.number(ends.into());
            command.number(life_ms(settings));
            command.number(since.0);
            command.number(before.lost);
            for row in rows.into_iter().flat_map(|(_, rows)| rows) {
                command.word(&field(row.consumer.as_consumer()));
                command.word(format!("{}:{}", row.totals.units, row.totals.requests).as_bytes());
            }
        });
        let (known, base) = match answer.await.map_err(|_| Unreachable)?.as_slice() {
            // An older call of this process was on its way for long.
            [_, -2, _] => return Err(Unreachable),
            [_, known, base] => (u64::try_from(*known).ok(), u64::try_from(*base).unwrap_or_default()),
            _ => return Err(Unreachable),
        };
        let mut after = WrittenSeries { call: Some(call), told: Some(clock::now()), base, lost: 0 };
        if known != before.call {
            ledger.rewrite(settings);
            if known.is_none() && before.base > base {
                (after.lost, after.base) = (before.base, before.base);
            }
        }
        self.usage.0.borrow_mut().insert(settings.id(), after);
        Ok(())
    }

    /// Moves rows of this process, which has ended. Returns how many are left.
    async fn fold_usage(
        &self,
        run: u64,
        settings: &UsageSettings,
        span: UsageSpan,
    ) -> Result<i64, Unreachable> {
        let tag = key::key_hash(Fingerprint(settings.id()));
        let names = [INDEX.to_vec(), rows_name(span, run_id(run).as_bytes()), rows_name(span, BASE)];
        let answer = self.script.ask_names(WHAT, &names, &tag, |command| {
            command.word(b"usage-fold");
            command.number(life_ms(settings));
            command.number(span.begin.0);
        });
        match answer.await.map_err(|_| Unreachable)?.as_slice() {
            [_, left] => Ok(*left),
            _ => Err(Unreachable),
        }
    }

    /// Reads the usage of all other processes in a window.
    ///
    /// # Errors
    ///
    /// The server cannot be asked, or its reply is malformed.
    pub(in crate::store) async fn read_usage(
        &self,
        run: u64,
        settings: &UsageSettings,
        span: UsageSpan,
    ) -> Result<SharedUsage, Unreachable> {
        for _ in 0..READS {
            let index = self.read_index(settings).await?;
            let others = index.runs.iter().filter(|other| other.id != run);
            let sources = others.clone().map(|other| run_id(other.id).into_bytes()).chain([BASE.to_vec()]);
            if let Some(rows) = self.read_rows(settings, span, index.version, sources).await? {
                let crashed = others.filter_map(|other| other.lost_in(span, index.now)).min();
                let lost = (index.lost >= span.begin.0).then_some(span.begin);
                let since = (index.since > 0).then_some(WallTime(index.since));
                return Ok(SharedUsage { since, incomplete_since: lost.or(crashed), rows });
            }
            sleep(PAUSE).await;
        }
        Err(Unreachable)
    }

    async fn read_index(&self, settings: &UsageSettings) -> Result<UsageIndex, Unreachable> {
        let tag = key::key_hash(Fingerprint(settings.id()));
        let answer = self
            .script
            .ask_names(WHAT, &[INDEX.to_vec()], &tag, |command| command.word(b"usage-index"))
            .await;
        UsageIndex::read(&answer.map_err(|_| Unreachable)?).ok_or(Unreachable)
    }

    /// All rows of these processes. `None`: some have moved meanwhile.
    async fn read_rows(
        &self,
        settings: &UsageSettings,
        span: UsageSpan,
        version: i64,
        sources: impl Iterator<Item = Vec<u8>>,
    ) -> Result<Option<Vec<UsageRow>>, Unreachable> {
        let tag = key::key_hash(Fingerprint(settings.id()));
        let mut all = Vec::new();
        for source in sources {
            let names = [INDEX.to_vec(), rows_name(span, &source)];
            // A row may come twice while its hash grows.
            let (mut rows, mut cursor) = (HashMap::new(), 0);
            loop {
                let answer = self.script.ask_names(WHAT, &names, &tag, |command| {
                    command.word(b"usage-read");
                    command.number(cursor);
                });
                let page = RowsPage::read(&answer.await.map_err(|_| Unreachable)?).ok_or(Unreachable)?;
                if page.version != version {
                    return Ok(None);
                }
                rows.extend(page.rows.into_iter().map(|row| (row.consumer, row.totals)));
                cursor = page.cursor;
                if cursor == 0 {
                    break;
                }
            }
            all.extend(rows.into_iter().map(|(consumer, totals)| UsageRow { consumer, totals }));
        }
        Ok(Some(all))
    }
}

/// The name of the index.
const INDEX: &[u8] = b"usage";
/// In place of the id of a process: all that have ended.
const BASE: &[u8] = b"ended";

fn run_id(run: u64) -> String {
    format!("{run:016x}")
}

fn rows_name(span: UsageSpan, run: &[u8]) -> Vec<u8> {
    [INDEX, b":", span.begin.seconds().to_string().as_bytes(), b":", run].concat()
}

fn life_ms(settings: &UsageSettings) -> u64 {
    let window = settings.windows().unit().longest().0 / 1_000;
    window * (u64::from(settings.keep_windows()) + 1) + MARGIN_MS
}

fn field(consumer: UsageConsumer<'_>) -> Vec<u8> {
    match consumer {
        UsageConsumer::Named(name) => [b"n", name.as_bytes()].concat(),
        UsageConsumer::Anonymous => b"a".to_vec(),
        UsageConsumer::Other => b"o".to_vec(),
    }
}

fn consumer_of(field: &[u8]) -> Option<RowConsumer> {
    match field {
        [b'n', name @ ..] => Some(RowConsumer::Named(str::from_utf8(name).ok()?.into())),
        b"a" => Some(RowConsumer::Anonymous),
        b"o" => Some(RowConsumer::Other),
        _ => None,
    }
}

impl UsageRun {
    /// From when on records of the window are missing, if the process has crashed.
    fn lost_in(&self, span: UsageSpan, now: u64) -> Option<WallTime> {
        let is_gone = !self.has_ended && now.saturating_sub(self.last) > GONE_AFTER;
        let touches = self.last < span.end.0 && self.last.saturating_add(UNTOLD) >= span.begin.0;
        (is_gone && touches).then(|| WallTime(self.last).max(span.begin))
    }
}

impl UsageIndex {
    /// `None`: the reply is malformed.
    fn read(reply: &Integers) -> Option<Self> {
        let (&[now, since, version, lost], runs) = reply.split_first_chunk::<4>()?;
        let (runs, rest) = runs.as_chunks::<4>();
        let run = |&[high, low, last, ended]: &[i64; 4]| {
            let id = u64::from(u32::try_from(high).ok()?) << 32 | u64::from(u32::try_from(low).ok()?);
            Some(UsageRun { id, last: u64::try_from(last).ok()?, has_ended: ended != 0 })
        };
        let runs = runs.iter().map(run).collect::<Option<_>>()?;
        let [now, since, lost] = [now, since, lost].map(|at| u64::try_from(at).ok());
        rest.is_empty().then_some(Self { now: now?, since: since?, version, lost: lost?, runs })
    }
}

impl RowsPage {
    /// `None`: the reply is malformed.
    fn read(reply: &Integers) -> Option<Self> {
        let (&[_, version, cursor], mut rest) = reply.split_first_chunk::<3>()?;
        let mut rows = Vec::new();
        while let Some((&length, others)) = rest.split_first() {
            let length = usize::try_from(length).ok()?;
            let (words, others) = others.split_at_checked(length.div_ceil(4))?;
            let words: Option<Vec<u32>> = words.iter().map(|word| u32::try_from(*word).ok()).collect();
            let mut name: Vec<u8> = words?.into_iter().flat_map(u32::to_le_bytes).collect();
            name.truncate(length);
            let (&[units, requests], others) = others.split_first_chunk::<2>()?;
            let totals = UsageTotals { units, requests: u64::try_from(requests).ok()? };
            // A later version may have other rows.
            rows.extend(consumer_of(&name).map(|consumer| UsageRow { consumer, totals }));
            rest = others;
        }
        Some(Self { version, cursor: u64::try_from(cursor).ok()?, rows })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn integers(list: &[i64]) -> Integers {
        Integers::from_slice(list)
    }

    #[test]
    fn pages_that_are_cut_or_out_of_range_are_none() {
        // `nanna` with 7 units of 2 requests, and `a` with -1 unit of none.
        let (first, last) = (i64::from(u32::from_le_bytes(*b"nann")), i64::from(b'a'));
        let whole = [9, 4, 6, 5, first, last, 7, 2, 1, last, -1, 0];
        let page = RowsPage::read(&integers(&whole)).unwrap();
        assert_eq!((page.version, page.cursor), (4, 6));
        let row = |consumer, units, requests| UsageRow { consumer, totals: UsageTotals { units, requests } };
        let anna = row(RowConsumer::Named("anna".into()), 7, 2);
        assert_eq!(page.rows, [anna, row(RowConsumer::Anonymous, -1, 0)]);
        for end in 0..whole.len() {
            let is_whole = [3, 8].contains(&end);
            assert_eq!(RowsPage::read(&integers(&whole[..end])).is_some(), is_whole, "{end}");
        }
        for index in [2, 3, 4, 5, 7, 8, 9, 11] {
            let mut other = whole;
            other[index] = -3;
            assert!(RowsPage::read(&integers(&other)).is_none(), "{index}");
        }
        for length in [i64::MAX, 1 << 40, 6] {
            assert!(RowsPage::read(&integers(&[9, 4, 0, length, 1, 1, 1])).is_none());
        }
    }

    #[test]
    fn an_index_that_is_cut_or_out_of_range_is_none() {
        let whole = [90_000_000, 5, 1, 0, 1, 2, 60_000_000, 0, 3, 4, 60_000_000, 1];
        let index = UsageIndex::read(&integers(&whole)).unwrap();
        assert_eq!(index.runs.iter().map(|run| run.id).collect::<Vec<_>>(), [1 << 32 | 2, 3 << 32 | 4]);
        for end in 0..whole.len() {
            assert_eq!(UsageIndex::read(&integers(&whole[..end])).is_some(), [4, 8].contains(&end), "{end}");
        }
        for index in [0, 1, 3, 4, 5, 6, 8, 9, 10] {
            let mut other = whole;
            other[index] = -1;
            assert!(UsageIndex::read(&integers(&other)).is_none(), "{index}");
        }
        let span = |begin, end| UsageSpan { begin: WallTime(begin), end: WallTime(end) };
        let lost = |span| index.runs[0].lost_in(span, index.now);
        assert_eq!(lost(span(50_000_000, 99_000_000)), Some(WallTime(60_000_000)));
        // What it has recorded last may be of the window after.
        assert_eq!(lost(span(63_000_000, 99_000_000)), Some(WallTime(63_000_000)));
        assert_eq!(lost(span(65_000_000, 99_000_000)), None);
        assert_eq!(lost(span(50_000_000, 60_000_000)), None);
        assert_eq!(index.runs[1].lost_in(span(50_000_000, 99_000_000), index.now), None);
    }
}
