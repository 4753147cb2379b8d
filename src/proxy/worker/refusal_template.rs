//! The usual refusals, kept as text.
//!
//! Two refusals by one policy differ in the request id, the date and two numbers: the seconds to wait and the units that
//! remain. So a flood's refusals are copies of one text, in which the values that changed are replaced where they are.
//! A refusal whose numbers have more digits or fewer is written field by field, and is the next text.
//!
//! `LocalResponseWriter` alone knows the form of a refusal: a text is what it has written.

use std::cell::RefCell;

use bytes::BytesMut;
use memchr::memmem;
use smallvec::SmallVec;

use crate::plan::Policy;

/// Texts that a worker keeps: one for each of the policies that refused last.
const MAX_KEPT: usize = 8;

/// The texts before the seconds to wait. A response has some of them, each at most once.
const BEFORE_SECONDS: [&str; 5] =
    ["\r\nretry-after: ", ";t=", "\r\nx-ratelimit-reset: ", "retry after ", "\"retry_after\":"];
/// The texts before the units that remain.
const BEFORE_REMAINING: [&str; 2] = [";r=", "\r\nx-ratelimit-remaining: "];

/// The texts of a plan's usual refusals.
#[derive(Debug, Default)]
pub(crate) struct RefusalTemplates(RefCell<SmallVec<[Box<RefusalTemplate>; 1]>>);

/// What distinguishes a usual refusal from the others of its plan.
#[derive(Clone, Copy, Debug)]
pub(crate) struct UsualRefusal<'a> {
    /// The policy that refuses.
    pub(crate) policy: &'a Policy,
    /// The seconds to wait.
    pub(crate) seconds: u64,
    /// The units that remain.
    pub(crate) remaining: u64,
    /// The value of `date`.
    pub(crate) date: &'a [u8],
    /// The value of `x-request-id`; empty: there is none.
    pub(crate) request_id: &'a [u8],
}

/// The text of a refusal, with the places of its values.
#[derive(Debug)]
struct RefusalTemplate {
    /// The address of the policy, which lives as long as the plan.
    policy: *const Policy,
    /// The whole response as it was sent last.
    text: Vec<u8>,
    body_length: usize,
    seconds: Number,
    remaining: Number,
    date: Place,
    request_id: Place,
}

/// A number of a text, at each of its places.
#[derive(Debug)]
struct Number {
    value: u64,
    places: SmallVec<[Place; 5]>,
}

/// A value has no place of its own in a text.
struct Uncertain;

/// A part of a text.
#[derive(Clone, Copy, Debug, Default)]
struct Place {
    at: usize,
    length: usize,
}

impl RefusalTemplates {
    /// Writes the refusal, if its text is kept. Returns the length of its body.
    pub(crate) fn put(&self, refusal: &UsualRefusal<'_>, out: &mut BytesMut) -> Option<usize> {
        let mut kept = self.0.borrow_mut();
        let template = kept.iter_mut().find(|template| std::ptr::eq(template.policy, refusal.policy))?;
        template.fill_in(refusal)?;
        out.extend_from_slice(&template.text);
        Some(template.body_length)
    }

    /// Keeps the text of a refusal that was written field by field.
    #[cold]
    pub(crate) fn keep(&self, refusal: &UsualRefusal<'_>, text: &[u8], body_length: usize) {
        let mut kept = self.0.borrow_mut();
        kept.retain(|template| !std::ptr::eq(template.policy, refusal.policy));
        if let Ok(template) = RefusalTemplate::of(refusal, text, body_length) {
            kept.truncate(MAX_KEPT - 1);
            kept.insert(0, Box::new(template));
        }
    }
}

impl RefusalTemplate {
    fn of(refusal: &UsualRefusal<'_>, text: &[u8], body_length: usize) -> Result<Self, Uncertain> {
        let UsualRefusal { policy, seconds, remaining, date, request_id } = *refusal;
        // Another id, which a trusted proxy has sent, may look like a number's place.
        if !request_id.iter().all(u8::is_ascii_alphanumeric) {
            return Err(Uncertain);
        }
        let place = |before, value: &[u8]| match value {
            [] => Ok(Place::default()),
            value => Place::of(text, before, value)?.ok_or(Uncertain),
        };
        Ok(Self {
            policy,
            text: text.to_vec(),
            body_length,
            seconds: Number::of(text, &BEFORE_SECONDS, seconds)?,
            remaining: Number::of(text, &BEFORE_REMAINING, remaining)?,
            date: place("\r\ndate: ", date)?,
            request_id: place("\r\nx-request-id: ", request_id)?,
        })
    }

    /// Gives the text the values of this refusal. `None` if one of them has another length.
    fn fill_in(&mut self, refusal: &UsualRefusal<'_>) -> Option<()> {
        let Self { text, seconds, remaining, date, request_id, .. } = self;
        seconds.set(refusal.seconds, text)?;
        remaining.set(refusal.remaining, text)?;
        date.set(refusal.date, text)?;
        request_id.set(refusal.request_id, text)
    }
}

impl Number {
    fn of(text: &[u8], before: &[&str], value: u64) -> Result<Self, Uncertain> {
        let mut buffer = itoa::Buffer::new();
        let digits = buffer.format(value).as_bytes();
        let places = before.iter().filter_map(|before| Place::of(text, before, digits).transpose());
        Ok(Self { value, places: places.collect::<Result<_, _>>()? })
    }

    /// `None` if the number has more digits than the one before it, or fewer.
    #[inline]
    fn set(&mut self, value: u64, text: &mut [u8]) -> Option<()> {
        if value != self.value {
            let mut buffer = itoa::Buffer::new();
            let digits = buffer.format(value).as_bytes();
            self.places.iter().try_for_each(|place| place.set(digits, text))?;
            self.value = value;
        }
        Some(())
    }
}

impl Place {
    /// The place of a value after the text `before`; `None`: the text does not have it.
    fn of(text: &[u8], before: &str, value: &[u8]) -> Result<Option<Self>, Uncertain> {
        let mut found = memmem::find_iter(text, before);
        let Some(at) = found.next().map(|at| at + before.len()) else { return Ok(None) };
        let rest = text.get(at..).unwrap_or_default();
        let ends = !rest.get(value.len()).is_some_and(u8::is_ascii_digit);
        let is_certain = found.next().is_none() && ends && rest.starts_with(value);
        if is_certain { Ok(Some(Self { at, length: value.len() })) } else { Err(Uncertain) }
    }

    /// `None` if the value has another length.
    #[inline]
    fn set(self, value: &[u8], text: &mut [u8]) -> Option<()> {
        let place =
            text.get_mut(self.at..self.at + self.length).filter(|place| place.len() == value.len())?;
        place.copy_from_slice(value);
        Some(())
    }
}
