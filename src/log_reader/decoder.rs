//! From a line to a request, with what is counted on the way.

use std::net::IpAddr;

use ipnet::IpNet;

use super::field_map::FieldMap;
use super::fields::{KnownFields, LineFields, OwnFields};
use super::format::LineFormat;
use super::head::write_head;
use super::options::{LogCounts, LogOptions};
use super::prefix::without_prefixes;
use super::problems::{LogProblems, ProblemKind};
use super::request::{LinePlace, LoggedRequest, OwnRecord};
use super::spill::LineKey;
use super::text::LoggedText;
use super::time::client;
use crate::limit::units::Timestamp;

/// 1990-01-01.
const MIN_TIME: Timestamp = Timestamp(631_152_000_000_000);
/// 2100-01-01.
const MAX_TIME: Timestamp = Timestamp(4_102_444_800_000_000);

/// How lines are read, and the request that was read last.
#[derive(Debug)]
pub(super) struct LineDecoder {
    /// `None`: found out for each file.
    format: Option<LineFormat>,
    map: Option<FieldMap>,
    host: Option<String>,
    trusted_proxies: Vec<IpNet>,
    from: Option<Timestamp>,
    to: Option<Timestamp>,
    pub(super) request: LoggedRequest,
    pub(super) problems: LogProblems,
    pub(super) known: KnownFields,
    pub(super) counts: LogCounts,
    names: Vec<String>,
    /// The time of the last request.
    last: Timestamp,
}

/// A line whose request is within the window.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct DatedLine {
    pub(super) time: Timestamp,
    pub(super) format: LineFormat,
}

/// Why a line has no request to return.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum LeftOut {
    /// It is empty.
    Empty,
    /// It came at this time, outside of `from` and `to`.
    Outside(Timestamp),
    /// It cannot be read.
    Problem(ProblemKind),
}

impl LineDecoder {
    pub(super) fn new(options: &LogOptions) -> Self {
        let mapped = options.map.as_ref().map(|_| LineFormat::Mapped);
        Self {
            format: mapped.or_else(|| LineFormat::of(options.format)),
            map: options.map.clone(),
            host: options.host.clone(),
            trusted_proxies: options.trusted_proxies.clone(),
            from: options.from,
            to: options.to,
            request: LoggedRequest::default(),
            problems: LogProblems::default(),
            known: KnownFields::default(),
            counts: LogCounts::default(),
            names: options.inputs.iter().map(super::options::LogInput::name).collect(),
            last: Timestamp(0),
        }
    }

    /// When the request of a line arrived. `of_file` is the format of the lines before it, which the first line that can
    /// be read decides.
    ///
    /// # Errors
    ///
    /// The line is left out.
    pub(super) fn date(&self, line: &[u8], of_file: &mut Option<LineFormat>) -> Result<DatedLine, LeftOut> {
        let line = without_prefixes(line);
        if line.trim_ascii().is_empty() {
            return Err(LeftOut::Empty);
        }
        let (time, format) = self.arrival(line, of_file).map_err(LeftOut::Problem)?;
        if !(MIN_TIME..MAX_TIME).contains(&time) {
            return Err(LeftOut::Problem(ProblemKind::TimeOutOfRange));
        }
        let is_inside = self.from.is_none_or(|from| from <= time) && self.to.is_none_or(|to| time < to);
        if is_inside { Ok(DatedLine { time, format }) } else { Err(LeftOut::Outside(time)) }
    }

    fn arrival(
        &self,
        line: &[u8],
        of_file: &mut Option<LineFormat>,
    ) -> Result<(Timestamp, LineFormat), ProblemKind> {
        let map = self.map.as_ref();
        let first = match self.format.or(*of_file) {
            Some(format) => match format.arrival(line, map) {
                Ok(time) => return Ok((time, format)),
                Err(kind) => kind,
            },
            None => ProblemKind::NotReadable,
        };
        // Where no format reads a line, its time does not count.
        let (found, first) = match (first, self.format) {
            (ProblemKind::NotReadable | ProblemKind::NoTime, None) => {
                (LineFormat::detect(line), ProblemKind::NotReadable)
            }
            _ => (None, first),
        };
        // Lines of text have no NUL.
        let is_binary = found.is_none() && memchr::memchr(0, line).is_some();
        let format = found.ok_or(if is_binary { ProblemKind::Binary } else { first })?;
        of_file.get_or_insert(format);
        Ok((format.arrival(line, map)?, format))
    }

    /// Reads a line into [`Self::request`]. Returns whether there is a request.
    pub(super) fn decode(&mut self, line: &[u8], key: LineKey, format: LineFormat) -> bool {
        match self.read(line, key, format) {
            Ok(()) => {
                self.counts.requests += 1;
                true
            }
            Err(kind) => {
                self.note(kind, key.place, line);
                false
            }
        }
    }

    /// The name of a log.
    pub(super) fn name(&self, file: usize) -> &str {
        self.names.get(file).map_or("", String::as_str)
    }

    /// When the request of a line ended, if the line tells.
    pub(super) fn end(&self, line: &[u8], dated: DatedLine) -> Option<Timestamp> {
        let mut fields = LineFields::default();
        dated.format.read(without_prefixes(line), self.map.as_ref(), &mut fields).ok()?;
        fields.duration.map(|duration| dated.time.plus(duration))
    }

    /// Counts a problem of a line.
    pub(super) fn note(&mut self, kind: ProblemKind, place: LinePlace, text: &[u8]) {
        let name = self.names.get(place.file as usize).map_or("", String::as_str);
        self.problems.add(kind, name, place, text);
    }

    fn read(&mut self, line: &[u8], key: LineKey, format: LineFormat) -> Result<(), ProblemKind> {
        let line = without_prefixes(line);
        let mut fields = LineFields::default();
        let mut result = format.read(line, self.map.as_ref(), &mut fields);
        // A line that breaks off after its time, or one whose time two formats spell alike.
        if result.is_err()
            && self.format.is_none()
            && let Some(other) = LineFormat::detect(line)
        {
            fields = LineFields::default();
            result = other.read(line, None, &mut fields);
        }
        result?;
        if let Some(hops) = fields.hops {
            fields.client = last_untrusted(hops, &self.trusted_proxies).or(fields.client);
        }
        let request = &mut self.request;
        write_head(&mut request.head, &fields, self.host.as_deref())?;
        // In these formats the operator chooses the fields, and Envoy's text has only what proxies wrote of clients; a log
        // without clients can be read.
        let may_lack_clients =
            matches!(format, LineFormat::Tollgate | LineFormat::Mapped | LineFormat::Envoy);
        let is_optional = may_lack_clients && !self.known.client;
        if fields.client.is_none() && !is_optional {
            return Err(ProblemKind::NoClient);
        }
        self.known.note(&fields);
        if key.time < self.last {
            self.counts.late += 1;
        }
        self.last = self.last.max(key.time);
        request.time = self.last;
        request.place = key.place;
        fill(request, &fields);
        Ok(())
    }
}

/// The client of a list of addresses, as the gateway finds it: the last that is not a trusted proxy. The walk ends before an
/// item that is not an address. `None`: the last item is none.
fn last_untrusted(hops: &[u8], trusted_proxies: &[IpNet]) -> Option<IpAddr> {
    let is_trusted = |address: &IpAddr| trusted_proxies.iter().any(|network| network.contains(address));
    let mut last = None;
    for hop in hops.rsplit(|byte| *byte == b',') {
        let Some(address) = client(hop) else { break };
        last = Some(address);
        if !is_trusted(&address) {
            break;
        }
    }
    last
}

/// Everything but time, place and head.
fn fill(request: &mut LoggedRequest, fields: &LineFields<'_>) {
    request.duration = fields.duration;
    request.client = fields.client.unwrap_or(std::net::IpAddr::V4(std::net::Ipv4Addr::UNSPECIFIED));
    request.status = fields.status;
    request.bytes_in = fields.bytes_in;
    request.bytes_out = fields.bytes_out;
    match fields.consumer.and_then(LoggedText::known) {
        Some(consumer) => consumer.assign_to(&mut request.consumer),
        None => request.consumer.clear(),
    }
    match &fields.own {
        Some(own) => fill_own(request.own.get_or_insert_default(), own),
        None => request.own = None,
    }
}

fn fill_own(record: &mut OwnRecord, own: &OwnFields<'_>) {
    own.route.assign_to(&mut record.route);
    own.tier.assign_to(&mut record.tier);
    own.limit.assign_to(&mut record.limit);
    own.decision.assign_to(&mut record.decision);
    own.error.assign_to(&mut record.error);
    record.remaining = own.remaining;
    record.cost = own.cost;
    record.settled = own.settled;
}
