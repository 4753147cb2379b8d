//! The cost of a request: fixed, measured in the request, or reserved and settled when the response has ended.

use std::fmt::{self, Display, Formatter, Write as _};
use std::num::NonZeroU64;
use std::sync::Arc;

use http::{HeaderName, StatusCode};

use crate::http1::fields::Fields;
use crate::http1::request::Body;
use crate::limit::units::Cost;
use crate::measure::{BodyFormat, BodySource, JsonPointer, Reading, TerminalEvents, number};
use crate::route::RouteRequest;
use crate::route::content::BodyValue;

/// The cost of a request to a route, or of one for a limit there.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CostRule {
    /// 0: nothing is charged.
    Free,
    /// The same for each request.
    Fixed(Cost),
    /// A number in the request.
    Measured(Arc<MeasuredCost>),
    /// A reservation, which is corrected when the response has ended.
    Settled(Arc<SettledCost>),
}

/// `cost = { from = … }`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MeasuredCost {
    /// Where the number is.
    pub from: RequestSource,
    /// From the number to units.
    pub scale: CostScale,
    /// The units where the number is absent or unreadable.
    pub missing: MissingNumber,
}

/// The units of a request without a number.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum MissingNumber {
    /// The same for each request.
    Units(u32),
    /// Another number in the request.
    Measured(Box<MeasuredCost>),
}

/// Where a number is in a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RequestSource {
    /// `header:NAME`.
    Header(HeaderName),
    /// `query:NAME`.
    Query(Box<str>),
    /// `json:POINTER`: in its body, which is read before the decision.
    Json(JsonPointer),
    /// `body-bytes`: the length of the body, where it is known before the body, or the body was read.
    BodyBytes,
}

/// `cost = { reserve = …, settle = … }`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SettledCost {
    /// The units charged on admission.
    pub reserve: Reserve,
    /// What the cost is in the end.
    pub settle: Settle,
    /// The units where no value was found; `None`: those that were reserved.
    pub missing: Option<u32>,
}

/// The units that are reserved: 0 to 10^9. A request that reserves nothing is refused only while its key is in debt.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Reserve {
    /// The same for each request.
    Fixed(u32),
    /// A number in the request.
    Measured(MeasuredCost),
}

/// What a reserved cost is in the end.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Settle {
    /// The units of the response's status.
    Status(StatusCosts),
    /// The sum of values: one to four.
    Values {
        /// Where they are.
        sources: Vec<SettleSource>,
        /// Those in the body of an event stream, in the same order.
        in_events: Arc<[BodySource]>,
        /// Those in any other body, in the same order.
        in_document: Arc<[BodySource]>,
        /// The events that end the measurement of a stream.
        ends: TerminalEvents,
        /// From the sum to units.
        scale: CostScale,
    },
}

/// Where a value is in a response.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SettleSource {
    /// `header:NAME`.
    Header(HeaderName),
    /// `trailer:NAME`.
    Trailer(HeaderName),
    /// `json:POINTER`, `sse:POINTER`.
    Body(BodySource),
    /// `bytes`: the length of its body.
    Bytes,
    /// `duration`: the time from the forwarding of the request to the end of the response, in ms.
    Duration,
}

/// From a measured number to units: divided, rounded up, and kept within bounds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CostScale {
    /// Of what one unit is made.
    pub per: NonZeroU64,
    /// The least number of units.
    pub min: u32,
    /// The largest: at least `min`, at most 10^9.
    pub max: u32,
}

/// `status = { 401 = 5, "2xx" = 0 }`: units by status.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct StatusCosts {
    /// Of single statuses.
    pub exact: Vec<(StatusCode, u32)>,
    /// Of the classes `1xx` to `5xx`.
    pub classes: [Option<u32>; 5],
}

impl CostRule {
    /// What is charged when the request is admitted. `None`: nothing, and the limit is not asked.
    #[inline]
    pub fn on_admission<'r>(&'r self, request: &RouteRequest<'r>) -> Option<Cost> {
        match self {
            Self::Free => None,
            Self::Fixed(cost) => Some(*cost),
            Self::Measured(measured) => Cost::new(measured.units(request)),
            Self::Settled(settled) => Some(Cost::new(settled.reserve.units(request)).unwrap_or(Cost::ZERO)),
        }
    }

    /// The least that a request to the route is charged on admission.
    pub fn least(&self) -> u32 {
        match self {
            Self::Free => 0,
            Self::Fixed(cost) => cost.units(),
            Self::Measured(measured) => measured.least(),
            Self::Settled(settled) => match &settled.reserve {
                Reserve::Fixed(units) => *units,
                Reserve::Measured(measured) => measured.least(),
            },
        }
    }

    /// The units of a request without the number that its cost is measured by. `None`: the cost is the same for all.
    pub fn without_number(&self) -> Option<u32> {
        let mut measured = self.measured()?;
        loop {
            match &measured.missing {
                MissingNumber::Units(units) => return Some(*units),
                MissingNumber::Measured(next) => measured = next,
            }
        }
    }

    /// The number that a request is measured by. `None`: it is the same for all.
    pub fn measured(&self) -> Option<&MeasuredCost> {
        match self {
            Self::Measured(measured) => Some(measured),
            Self::Settled(settled) => match &settled.reserve {
                Reserve::Measured(measured) => Some(measured),
                Reserve::Fixed(_) => None,
            },
            Self::Free | Self::Fixed(_) => None,
        }
    }

    /// The pointers of numbers in the request's body.
    pub fn json_pointers(&self) -> impl Iterator<Item = &JsonPointer> {
        self.measured().into_iter().flat_map(MeasuredCost::sources).filter_map(|source| match source {
            RequestSource::Json(pointer) => Some(pointer),
            _ => None,
        })
    }

    /// The rule by which it is corrected later.
    #[inline]
    pub fn settled(&self) -> Option<&Arc<SettledCost>> {
        if let Self::Settled(settled) = self { Some(settled) } else { None }
    }
}

impl MeasuredCost {
    /// The number that a request has.
    pub fn reading<'r>(&'r self, request: &RouteRequest<'r>) -> Reading {
        match (&self.from, request.body) {
            (RequestSource::Header(name), _) => header(request.headers, name),
            (RequestSource::Query(name), _) => {
                let mut values = request.query_values(name);
                match (values.next(), values.next()) {
                    (Some(value), None) => number(&value),
                    (None, _) => Reading::Absent,
                    (Some(_), Some(_)) => Reading::Unreadable,
                }
            }
            (RequestSource::Json(pointer), _) => match request.content.member(pointer) {
                BodyValue::Single(value) => number(&value),
                BodyValue::Missing => Reading::Absent,
                BodyValue::Repeated | BodyValue::Unreadable(_) => Reading::Unreadable,
            },
            (RequestSource::BodyBytes, body) => match (request.content.length(), body) {
                (Some(length), _) => Reading::Value(length as u64), // usize has at most 64 bits
                (None, Body::Length(length)) => Reading::Value(length),
                (None, Body::Chunked) => Reading::Absent,
            },
        }
    }

    /// Where its numbers are: the first, and those that stand in for a missing one.
    pub fn sources(&self) -> impl Iterator<Item = &RequestSource> {
        std::iter::successors(Some(self), |cost| cost.stand_in()).map(|cost| &cost.from)
    }

    /// The number that stands in for a missing one.
    fn stand_in(&self) -> Option<&Self> {
        if let MissingNumber::Measured(next) = &self.missing { Some(next) } else { None }
    }

    /// The units of a request.
    pub fn units<'r>(&'r self, request: &RouteRequest<'r>) -> u32 {
        match self.reading(request) {
            Reading::Value(value) => self.scale.units(value),
            Reading::Absent | Reading::Unreadable => match &self.missing {
                MissingNumber::Units(units) => *units,
                MissingNumber::Measured(next) => next.units(request),
            },
        }
    }
}

impl MeasuredCost {
    /// The least units of a request.
    fn least(&self) -> u32 {
        self.scale.min.min(match &self.missing {
            MissingNumber::Units(units) => *units,
            MissingNumber::Measured(next) => next.least(),
        })
    }
}

impl Reserve {
    /// The units of a request.
    fn units<'r>(&'r self, request: &RouteRequest<'r>) -> u32 {
        match self {
            Self::Fixed(units) => *units,
            Self::Measured(measured) => measured.units(request),
        }
    }
}

impl SettledCost {
    /// The places of its values, as written in the file.
    pub fn sources(&self) -> Vec<String> {
        match &self.settle {
            Settle::Status(_) => vec!["status".to_owned()],
            Settle::Values { sources, .. } => sources.iter().map(ToString::to_string).collect(),
        }
    }

    /// How the cost is found, as text: `json:/usage/total_tokens, at most 100000`.
    pub fn settled_by(&self) -> String {
        let mut text = self.sources().join(" + ");
        match &self.settle {
            // Writing to a string cannot fail.
            Settle::Values { scale, .. } => _ = write!(text, "{scale}"),
            Settle::Status(costs) => _ = write!(text, " ({costs})"),
        }
        if let Some(missing) = self.missing.filter(|missing| self.reserve != Reserve::Fixed(*missing)) {
            _ = write!(text, ", or {missing} where it is missing");
        }
        if let Settle::Values { ends, .. } = &self.settle
            && !ends.more().is_empty()
        {
            _ = write!(text, "; a stream also ends at `{}`", ends.more().join("`, `"));
        }
        text
    }
}

impl Settle {
    /// The sum of these values.
    pub fn values(sources: Vec<SettleSource>, ends: TerminalEvents, scale: CostScale) -> Self {
        let (mut in_events, mut in_document) = (Vec::new(), Vec::new());
        for source in &sources {
            match source {
                SettleSource::Body(source @ BodySource::Sse(_)) => in_events.push(source.clone()),
                SettleSource::Body(source @ BodySource::Json(_)) => in_document.push(source.clone()),
                _ => {}
            }
        }
        Self::Values { sources, in_events: in_events.into(), in_document: in_document.into(), ends, scale }
    }
}

impl SettleSource {
    /// Whether a response may have the value: `sse:` is for event streams, and `json:` for all others.
    pub fn fits(&self, format: BodyFormat) -> bool {
        match self {
            Self::Body(BodySource::Sse(_)) => format == BodyFormat::Events,
            Self::Body(BodySource::Json(_)) => format != BodyFormat::Events,
            Self::Header(_) | Self::Trailer(_) | Self::Bytes | Self::Duration => true,
        }
    }
}

impl CostScale {
    /// The units of a measured number.
    pub fn units(&self, measured: u64) -> u32 {
        let units = u32::try_from(measured.div_ceil(self.per.get())).unwrap_or(u32::MAX);
        // Not `clamp`, which panics where the bounds are crossed.
        units.max(self.min).min(self.max)
    }
}

impl StatusCosts {
    /// The units of a response with this status; `None`: the status is not listed.
    pub fn units(&self, status: StatusCode) -> Option<u32> {
        let exact = self.exact.iter().find(|(listed, _)| *listed == status).map(|(_, units)| *units);
        let class = usize::from(status.as_u16() / 100).checked_sub(1);
        exact.or_else(|| class.and_then(|class| self.classes.get(class).copied().flatten()))
    }
}

/// The number in a header. Two fields of the name are no number.
pub fn header(fields: Fields<'_>, name: &HeaderName) -> Reading {
    let mut values = fields.all(name).iter();
    match (values.next(), values.next()) {
        (Some(value), None) => number(value),
        (None, _) => Reading::Absent,
        (Some(_), Some(_)) => Reading::Unreadable,
    }
}

impl Display for CostRule {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        match self {
            Self::Free => f.write_str("0"),
            Self::Fixed(cost) => write!(f, "{}", cost.units()),
            Self::Measured(measured) => measured.fmt(f),
            Self::Settled(settled) => {
                write!(f, "{} reserved, settled by {}", settled.reserve, settled.settled_by())
            }
        }
    }
}

impl Display for MeasuredCost {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let Self { from, scale, missing } = self;
        match missing {
            MissingNumber::Units(units) => write!(f, "{from}{scale}, or {units} where it is missing"),
            MissingNumber::Measured(next) => write!(f, "{from}{scale}, or where it is missing {next}"),
        }
    }
}

impl Display for Reserve {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        match self {
            Self::Fixed(units) => units.fmt(f),
            Self::Measured(measured) => write!(f, "({measured})"),
        }
    }
}

impl Display for StatusCosts {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let exact = self.exact.iter().map(|(status, units)| (status.as_str().to_owned(), *units));
        let class = |(class, units): (u16, &Option<u32>)| Some((format!("{class}xx"), (*units)?));
        let classes = (1..).zip(&self.classes).filter_map(class);
        for (index, (status, units)) in exact.chain(classes).enumerate() {
            write!(f, "{}{status}: {units}", if index == 0 { "" } else { ", " })?;
        }
        Ok(())
    }
}

impl Display for CostScale {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        if self.per.get() > 1 {
            write!(f, " per {}", self.per)?;
        }
        match (self.min, self.max) {
            (0, Cost::MAX) => Ok(()),
            (min, Cost::MAX) => write!(f, ", at least {min}"),
            (0, max) => write!(f, ", at most {max}"),
            (min, max) => write!(f, ", {min} to {max}"),
        }
    }
}

impl Display for RequestSource {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        match self {
            Self::Header(name) => write!(f, "header:{name}"),
            Self::Query(name) => write!(f, "query:{name}"),
            Self::Json(pointer) => write!(f, "json:{pointer}"),
            Self::BodyBytes => f.write_str("body-bytes"),
        }
    }
}

impl Display for SettleSource {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        match self {
            Self::Header(name) => write!(f, "header:{name}"),
            Self::Trailer(name) => write!(f, "trailer:{name}"),
            Self::Body(BodySource::Json(pointer)) => write!(f, "json:{pointer}"),
            Self::Body(BodySource::Sse(pointer)) => write!(f, "sse:{pointer}"),
            Self::Bytes => f.write_str("bytes"),
            Self::Duration => f.write_str("duration"),
        }
    }
}
