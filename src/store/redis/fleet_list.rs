//! The gateways of a fleet, as one worker of each gateway tells of its own and reads the others: see `fleet.lua`.

use std::time::Duration;

use super::client::RedisClient;
use crate::clock::{self, micros};
use crate::limit::units::{Micros, Timestamp};
use crate::limit::wall_clock::{self, WallTime};
use crate::store::Unreachable;
use crate::store::fleet::{FleetGateway, FleetView, GatewayIdentity};

/// Name and hash tag of the list.
const NAME: &[u8] = b"fleet";
/// What needs it.
const WHAT: &str = "the lists of the fleet's gateways";
/// How often a gateway tells of itself; at once if it has something new to tell.
const TOLD_EVERY: Duration = Duration::from_secs(5);
/// A gateway that is silent for longer is gone, as in `fleet.lua`.
const GONE_AFTER: Micros = Micros(15_000_000);
/// A change of the clock, in ms, that is told at once: the time of a call moves it by less.
const TOLD_STEP: u32 = 250;
/// The maximum number of gateways in one reply, as in `fleet.lua`.
const PAGE: usize = 100;
/// The maximum number of gateways that are read.
const MAX_GATEWAYS: usize = 1_000;

/// The form of a record.
const FORMAT: u8 = 1;
/// Its bytes before the texts: form, the lengths of both texts, nothing; id, since, file and clock.
const HEAD: usize = 28;

impl RedisClient {
    /// Tells of this gateway when it is time, and reads the others if they have changed. To be called about once a second
    /// by one worker.
    ///
    /// # Errors
    ///
    /// The server cannot be asked: what was read last stays.
    pub(in crate::store) async fn keep_fleet(
        &self,
        own: &GatewayIdentity,
        now: Timestamp,
    ) -> Result<(), Unreachable> {
        let member = &self.member;
        let record = encoded(own, member.clock_ahead_ms.get());
        let is_told = member.record.borrow().starts_with(&record)
            && member.told.get().is_some_and(|told| told.elapsed() < TOLD_EVERY);
        if member.has_left.get() || is_told {
            return Ok(());
        }
        let record = with_leased_units(record, self.leased_units(now));
        let asked = clock::now();
        let mut past = member.predecessors.borrow().clone();
        let former = member.record.replace(record.clone());
        past.extend((former != record && !former.is_empty()).then_some(former));
        let (there, read) = self.tell_fleet(&record, &past).await?;
        let half = Micros(micros(asked.elapsed()).0 / 2);
        let here = wall_clock::system().wall_time(now.plus(half));
        let ahead = here.0.cast_signed() - there;
        self.fleet.set_clock_ahead(ahead);
        let ahead_ms = i32::try_from(ahead / 1_000).unwrap_or(if ahead < 0 { i32::MIN } else { i32::MAX });
        if ahead_ms.abs_diff(member.clock_ahead_ms.get()) >= TOLD_STEP {
            // The next call tells it.
            member.clock_ahead_ms.set(ahead_ms);
        }
        member.told.set(Some(asked));
        if member.read.get() != Some(read) {
            self.read_fleet(own).await?;
            member.read.set(Some(read));
        }
        Ok(())
    }

    /// This gateway ends, or uses another store: the others need not wait for a word of it.
    pub(in crate::store) async fn leave_fleet(&self) {
        self.member.has_left.set(true);
        let record = self.member.record.take();
        if !record.is_empty() {
            // Without a reply it is gone for the others, until they forget it.
            let _ = self.tell_fleet(&[], &[record]).await;
        }
    }

    /// The time of the server; the version of the list, and how many gateways are gone.
    async fn tell_fleet(&self, record: &[u8], past: &[Vec<u8>]) -> Result<(i64, (i64, i64)), Unreachable> {
        let answer = self.script.ask_list(WHAT, NAME, NAME, |command| {
            command.word(b"gateway");
            command.word(record);
            past.iter().for_each(|record| command.word(record));
        });
        match answer.await.map_err(|_| Unreachable)?.as_slice() {
            [there, version, gone] => Ok((*there, (*version, *gone))),
            _ => Err(Unreachable),
        }
    }

    /// Reads all gateways.
    ///
    /// # Errors
    ///
    /// The server cannot be asked, or its list is malformed.
    pub(in crate::store) async fn read_fleet(&self, own: &GatewayIdentity) -> Result<FleetView, Unreachable> {
        let (mut gateways, mut predecessors) = (Vec::<FleetGateway>::new(), Vec::new());
        for first in (0..MAX_GATEWAYS).step_by(PAGE) {
            let page = self.script.ask_list(WHAT, NAME, NAME, |command| {
                command.word(b"gateways");
                command.number(first as u64);
            });
            let page = page.await.map_err(|_| Unreachable)?;
            let Some((&[there, _], records)) = page.split_first_chunk::<2>() else {
                return Err(Unreachable);
            };
            let records = records_of(records).ok_or(Unreachable)?;
            let count = records.len();
            for (last_seen, record) in records {
                // Another version of the program may write another form.
                let Some((identity, clock_ahead_ms)) = decoded(&record) else { continue };
                let leased_units = leased_units_of(&record);
                let is_gone = there.saturating_sub_unsigned(GONE_AFTER.0) > last_seen.0.cast_signed();
                if is_gone && identity.address == own.address && identity.id != own.id {
                    predecessors.push(record);
                } else if gateways.iter().all(|one| one.identity.id != identity.id) {
                    // Of several, the first was heard of last.
                    gateways.push(FleetGateway {
                        identity,
                        clock_ahead_ms,
                        leased_units,
                        last_seen,
                        is_gone,
                    });
                }
            }
            if count < PAGE {
                break;
            }
        }
        self.member.predecessors.replace(predecessors);
        self.fleet.set_gateways(gateways);
        Ok(self.fleet.view())
    }
}

/// The record of a gateway: whole words of 32 bits.
fn encoded(gateway: &GatewayIdentity, clock_ahead_ms: i32) -> Vec<u8> {
    let (version, address) = (short(&gateway.version), short(&gateway.address));
    let mut record = vec![FORMAT, length(version), length(address), 0];
    record.extend(gateway.id.to_le_bytes());
    record.extend(gateway.since.0.to_le_bytes());
    record.extend(gateway.file_hash.to_le_bytes());
    record.extend(clock_ahead_ms.to_le_bytes());
    record.extend(version.bytes().chain(address.bytes()));
    record.resize(record.len().next_multiple_of(4), 0);
    record
}

/// The record with the gateway's units in advance.
fn with_leased_units(mut record: Vec<u8>, units: u64) -> Vec<u8> {
    record.extend(units.to_le_bytes());
    record
}

/// The units in advance of a record's gateway; 0 if it tells none.
fn leased_units_of(record: &[u8]) -> u64 {
    let lengths = || Some(usize::from(*record.get(1)?) + usize::from(*record.get(2)?));
    let begin = (HEAD + lengths().unwrap_or_default()).next_multiple_of(4);
    let units = record.get(begin..).and_then(|rest| rest.first_chunk::<8>());
    units.map_or(0, |units| u64::from_le_bytes(*units))
}

/// As much of a text as a record has room for.
fn short(text: &str) -> &str {
    text.get(..text.floor_char_boundary(usize::from(u8::MAX))).unwrap_or_default()
}

fn length(text: &str) -> u8 {
    u8::try_from(text.len()).unwrap_or(u8::MAX)
}

/// The gateway of a record. `None`: it has another form. Bytes after those that are known are those of a later version.
fn decoded(record: &[u8]) -> Option<(GatewayIdentity, i32)> {
    let (head, texts) = record.split_first_chunk::<HEAD>()?;
    let (&[FORMAT, version, address, _], numbers) = head.split_first_chunk::<4>()? else { return None };
    let (id, numbers) = numbers.split_first_chunk::<8>()?;
    let (since, numbers) = numbers.split_first_chunk::<8>()?;
    let (file_hash, numbers) = numbers.split_first_chunk::<4>()?;
    let (clock_ahead_ms, _) = numbers.split_first_chunk::<4>()?;
    let (version, texts) = texts.split_at_checked(usize::from(version))?;
    let address = texts.get(..usize::from(address))?;
    let identity = GatewayIdentity {
        id: u64::from_le_bytes(*id),
        address: str::from_utf8(address).ok()?.to_owned(),
        version: str::from_utf8(version).ok()?.to_owned(),
        file_hash: u32::from_le_bytes(*file_hash),
        since: WallTime(u64::from_le_bytes(*since)),
    };
    Some((identity, i32::from_le_bytes(*clock_ahead_ms)))
}

/// The records of a reply, with the time at which the server heard of each. `None`: it is malformed.
fn records_of(mut integers: &[i64]) -> Option<Vec<(WallTime, Vec<u8>)>> {
    let mut records = Vec::new();
    while let Some((&[last_seen, words], rest)) = integers.split_first_chunk::<2>() {
        let (words, others) = rest.split_at_checked(usize::try_from(words).ok()?)?;
        let words: Option<Vec<u32>> = words.iter().map(|word| u32::try_from(*word).ok()).collect();
        let record = words?.into_iter().flat_map(u32::to_le_bytes).collect();
        records.push((WallTime(u64::try_from(last_seen).ok()?), record));
        integers = others;
    }
    integers.is_empty().then_some(records)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn gateway(address: &str) -> GatewayIdentity {
        GatewayIdentity {
            id: 0x0102_0304_0506_0708,
            address: address.to_owned(),
            version: "1.2.3".to_owned(),
            file_hash: 0xdead_beef,
            since: WallTime(1_700_000_000_000_000),
        }
    }

    #[test]
    fn a_record_is_read_as_it_was_written_and_no_cut_one_is() {
        for address in ["edge-1:8080", "[2001:db8::1]:80", "", "ümlaut:1", &"é".repeat(300)] {
            let written = gateway(address);
            let record = encoded(&written, -7);
            assert_eq!(record.len() % 4, 0);
            let (read, ahead) = decoded(&record).unwrap();
            assert_eq!((read.address.as_str(), ahead), (short(address), -7));
            assert_eq!(leased_units_of(&record), 0);
            let with_units = with_leased_units(record.clone(), 1 << 40);
            assert_eq!((decoded(&with_units).unwrap().1, leased_units_of(&with_units)), (-7, 1 << 40));
            assert_eq!(GatewayIdentity { address: written.address.clone(), ..read }, written);
            let texts = HEAD + written.version.len() + short(address).len();
            for end in 0..record.len() {
                assert_eq!(decoded(&record[..end]).is_some(), end >= texts, "{address} to {end}");
            }
        }
        let mut other = encoded(&gateway("a:1"), 0);
        other[0] = 2;
        assert_eq!(decoded(&other), None);
    }

    #[test]
    fn replies_that_are_cut_or_out_of_range_are_none() {
        let whole = [5, 2, 1, 0xffff_ffff, 6, 0, 7, 1, 9];
        let records = records_of(&whole).unwrap();
        assert_eq!(records[0], (WallTime(5), vec![1, 0, 0, 0, 255, 255, 255, 255]));
        assert_eq!((records[1].1.len(), records[2].1.len()), (0, 4));
        for end in 0..whole.len() {
            assert_eq!(records_of(&whole[..end]).is_some(), [0, 4, 6].contains(&end), "{end}");
        }
        for index in 0..whole.len() {
            let mut other = whole;
            other[index] = -1;
            assert_eq!(records_of(&other), None, "{index}");
            other[index] = i64::from(u32::MAX) + 1;
            let is_time = [0, 4, 6].contains(&index);
            assert_eq!(records_of(&other).is_some(), is_time, "{index}");
        }
    }
}
