//! Who waits for an answer. Places are used again: a call costs no allocation, and a caller that leaves keeps its place until its answer
//! has come, so that no later answer is mistaken for it.

use std::task::{Context, Poll, Waker};

use tokio::time::Instant;

use crate::store::redis::fault::Fault;
use crate::store::redis::resp::Value;

/// What a caller is told, and when that came.
pub(super) type Told = (Result<Value, Fault>, Instant);

/// Where a caller stands. Whoever has it says once that it leaves, or hears once what it is told.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Place(usize);

/// Every place ever needed at once.
#[derive(Debug, Default)]
pub(super) struct Callers {
    places: Vec<Caller>,
    vacant: Vec<Place>,
}

#[derive(Debug)]
enum Caller {
    Waits(Option<Waker>),
    Told(Told),
    /// It left before it was told.
    Gone,
    /// Nobody stands here.
    Vacant,
}

impl Callers {
    /// A place for one that waits.
    pub(super) fn enter(&mut self) -> Place {
        let place = self.vacant.pop().unwrap_or_else(|| {
            self.places.push(Caller::Vacant);
            Place(self.places.len() - 1)
        });
        self.set(place, Caller::Waits(None));
        place
    }

    /// Tells the caller at `place` what it waits for. To be called once.
    pub(super) fn tell(&mut self, place: Place, told: Told) {
        match self.set(place, Caller::Vacant) {
            Caller::Waits(waker) => {
                self.set(place, Caller::Told(told));
                waker.into_iter().for_each(Waker::wake);
            }
            Caller::Told(_) | Caller::Gone | Caller::Vacant => self.vacant.push(place),
        }
    }

    /// What the caller was told, once.
    pub(super) fn poll(&mut self, place: Place, context: &mut Context<'_>) -> Poll<Told> {
        match self.places.get_mut(place.0) {
            Some(Caller::Waits(waker)) => {
                match waker {
                    Some(waker) => waker.clone_from(context.waker()),
                    None => *waker = Some(context.waker().clone()),
                }
                Poll::Pending
            }
            _ => match self.set(place, Caller::Vacant) {
                Caller::Told(told) => {
                    self.vacant.push(place);
                    Poll::Ready(told)
                }
                _ => Poll::Pending,
            },
        }
    }

    /// The caller leaves without an answer.
    pub(super) fn leave(&mut self, place: Place) {
        if let Caller::Told(_) = self.set(place, Caller::Gone) {
            self.set(place, Caller::Vacant);
            self.vacant.push(place);
        }
    }

    fn set(&mut self, place: Place, caller: Caller) -> Caller {
        // A place comes from `enter`, so it is there.
        self.places.get_mut(place.0).map_or(Caller::Vacant, |slot| std::mem::replace(slot, caller))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::clock::deadline::now;

    fn poll(callers: &mut Callers, place: Place) -> Poll<Told> {
        callers.poll(place, &mut Context::from_waker(Waker::noop()))
    }

    #[test]
    fn callers_are_told_once_and_places_are_used_again() {
        let (mut callers, told) = (Callers::default(), (Err(Fault::Lost), now()));
        let (first, second) = (callers.enter(), callers.enter());
        assert!(poll(&mut callers, first).is_pending());
        callers.tell(first, told.clone());
        assert_eq!(poll(&mut callers, first), Poll::Ready(told.clone()));
        assert_eq!(callers.enter(), first);

        // One that left holds its place until the answer comes.
        callers.leave(second);
        assert_ne!(callers.enter(), second);
        callers.tell(second, told.clone());
        assert_eq!(callers.enter(), second);

        // One that was told but does not listen any more leaves at once.
        callers.tell(second, told);
        callers.leave(second);
        assert_eq!(callers.enter(), second);
        assert_eq!(callers.places.len(), 3);
    }
}
