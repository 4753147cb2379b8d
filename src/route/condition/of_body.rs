//! Conditions on values of a JSON body, which may be undecided: the body was not read yet, or does not say one thing.

use std::sync::Arc;

use super::{Condition, ValuePatterns};
use crate::measure::JsonPointer;
use crate::route::RouteRequest;
use crate::route::content::{BodyValue, RequestContent, UnreadableBody};

/// Why it cannot be said whether a condition holds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum UndecidedCondition {
    /// The body was not read yet.
    Unread,
    /// The body cannot be read, or has no single value there.
    Unreadable(UnreadableBody),
    /// It has several values there.
    Repeated(Arc<JsonPointer>),
}

pub(super) fn holds_in_body(content: &RequestContent, pointer: &JsonPointer, values: &ValuePatterns) -> bool {
    match content.member(pointer) {
        _ if *content == RequestContent::Unread => true,
        BodyValue::Single(value) => values.match_any(std::iter::once(value)),
        BodyValue::Missing => values.match_any(std::iter::empty::<&[u8]>()),
        BodyValue::Repeated | BodyValue::Unreadable(_) => true,
    }
}

impl Condition {
    /// Why it cannot be said whether the condition holds. `None`: it can.
    pub fn undecided(&self, request: &RouteRequest<'_>) -> Option<UndecidedCondition> {
        match (self, request.content) {
            (Self::Not(inner), _) => inner.undecided(request),
            (Self::Body(..), RequestContent::Unread) => Some(UndecidedCondition::Unread),
            (Self::Body(pointer, _), content) => match content.member(pointer) {
                BodyValue::Repeated => Some(UndecidedCondition::Repeated(Arc::clone(pointer))),
                BodyValue::Unreadable(fault) => Some(UndecidedCondition::Unreadable(fault)),
                BodyValue::Missing | BodyValue::Single(_) => None,
            },
            _ => None,
        }
    }

    /// The pointer into the body that it reads.
    pub fn body_pointer(&self) -> Option<&JsonPointer> {
        match self {
            Self::Body(pointer, _) => Some(pointer),
            Self::Not(inner) => inner.body_pointer(),
            _ => None,
        }
    }
}
