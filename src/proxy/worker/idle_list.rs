//! The connections of one worker. The idle ones are in order: the connection that has been idle longest is evicted
//! first.

use std::cell::RefCell;
use std::rc::Rc;

use slab::Slab;
use tokio::time::Instant;

/// The index of no connection. No list is this long.
pub(crate) const NONE: usize = usize::MAX;

/// All connections of a worker that can be evicted, each at an index that it keeps while it is open. The idle ones are
/// linked in the order in which they became idle. Neither marking a connection nor finding the first depends on the
/// number of connections, or allocates.
#[derive(Debug)]
pub(crate) struct IdleList<T>(RefCell<Links<T>>);

#[derive(Debug)]
struct Links<T> {
    entries: Slab<IdleEntry<T>>,
    first: usize,
    last: usize,
    /// Entries compared to find their order.
    #[cfg(test)]
    steps: u64,
}

#[derive(Debug)]
struct IdleEntry<T> {
    connection: Rc<T>,
    /// Since when the connection is idle. `None`: it is not linked.
    since: Option<Instant>,
    previous: usize,
    next: usize,
}

impl<T> Default for IdleList<T> {
    fn default() -> Self {
        Self(RefCell::new(Links {
            entries: Slab::new(),
            first: NONE,
            last: NONE,
            #[cfg(test)]
            steps: 0,
        }))
    }
}

impl<T> IdleList<T> {
    /// Inserts a connection that is not idle. Returns its index.
    pub(crate) fn insert(&self, connection: Rc<T>) -> usize {
        let entry = IdleEntry { connection, since: None, previous: NONE, next: NONE };
        self.0.borrow_mut().entries.insert(entry)
    }

    /// Removes a closed connection.
    pub(crate) fn remove(&self, index: usize) {
        let list = &mut *self.0.borrow_mut();
        list.unlink(index);
        drop(list.entries.try_remove(index));
    }

    /// Marks the connection as idle since `since`.
    pub(crate) fn link(&self, index: usize, since: Instant) {
        let list = &mut *self.0.borrow_mut();
        list.unlink(index);
        list.link(index, since);
    }

    /// Marks the connection as no longer idle.
    pub(crate) fn unlink(&self, index: usize) {
        self.0.borrow_mut().unlink(index);
    }

    /// The connection that has been idle longest.
    pub(crate) fn longest(&self) -> Option<Rc<T>> {
        let list = self.0.borrow();
        list.entries.get(list.first).map(|entry| Rc::clone(&entry.connection))
    }
}

impl<T> Links<T> {
    /// Links the entry after those that have been idle longer or as long. The newest idle connection nearly always
    /// belongs last, so the search from the end stops at once. It goes on only where clock readings were taken in
    /// another order.
    fn link(&mut self, index: usize, since: Instant) {
        let mut previous = self.last;
        while let Some(entry) = self.entries.get(previous)
            && entry.since > Some(since)
        {
            previous = entry.previous;
            #[cfg(test)]
            {
                self.steps += 1;
            }
        }
        let next = self.entries.get(previous).map_or(self.first, |entry| entry.next);
        let Some(entry) = self.entries.get_mut(index) else { return };
        (entry.since, entry.previous, entry.next) = (Some(since), previous, next);
        *self.next_of(previous) = index;
        *self.previous_of(next) = index;
    }

    fn unlink(&mut self, index: usize) {
        let Some(entry) = self.entries.get_mut(index) else { return };
        if entry.since.take().is_some() {
            let (previous, next) = (entry.previous, entry.next);
            *self.next_of(previous) = next;
            *self.previous_of(next) = previous;
        }
    }

    /// The field with the index of the entry after this one; after none comes the first.
    fn next_of(&mut self, index: usize) -> &mut usize {
        self.entries.get_mut(index).map_or(&mut self.first, |entry| &mut entry.next)
    }

    /// The field with the index of the entry before this one; before none comes the last.
    fn previous_of(&mut self, index: usize) -> &mut usize {
        self.entries.get_mut(index).map_or(&mut self.last, |entry| &mut entry.previous)
    }
}

#[cfg(test)]
mod tests {
    use std::task::{Context, Waker};
    use std::time::Duration;

    use super::super::connection_handle::ConnectionHandle;
    use super::*;
    use crate::clock::now;

    /// Opens `count` connections.
    fn open(list: &Rc<IdleList<ConnectionHandle>>, count: usize) -> Vec<Rc<ConnectionHandle>> {
        let presences: Vec<_> = (0..count).map(|_| ConnectionHandle::new(0)).collect();
        presences.iter().for_each(|handle| handle.enlist(list));
        presences
    }

    fn rest(handle: &ConnectionHandle, since: Instant) {
        handle.mark_idle(since, &Context::from_waker(Waker::noop()));
    }

    /// Evicts the connection that has been idle longest. Returns its number.
    fn evict(list: &IdleList<ConnectionHandle>, presences: &[Rc<ConnectionHandle>]) -> Option<usize> {
        let longest = list.longest()?;
        longest.evict();
        presences.iter().position(|handle| Rc::ptr_eq(handle, &longest))
    }

    fn steps(list: &IdleList<ConnectionHandle>) -> u64 {
        list.0.borrow().steps
    }

    #[test]
    fn exactly_the_longest_idle_makes_room_at_a_cost_that_does_not_grow() {
        for count in [10, 10_000] {
            let (list, begin) = (Rc::new(IdleList::default()), now());
            let presences = open(&list, count);
            assert_eq!(evict(&list, &presences), None, "none is idle");
            let at = |turn: usize| begin + Duration::from_millis(u64::try_from(turn).expect("small"));
            // Each serves three requests, always in another order: 7 has no common factor with their number.
            for turn in 0..3 * count {
                let handle = &presences[turn * 7 % count];
                handle.mark_active();
                rest(handle, at(turn));
                rest(handle, at(turn));
            }
            // Every third is busy with a request.
            let busy = |number: usize| number.is_multiple_of(3);
            presences.iter().step_by(3).for_each(|handle| handle.mark_active());
            let expected =
                (2 * count..3 * count).map(|turn| turn * 7 % count).filter(|number| !busy(*number));
            let evicted: Vec<_> = std::iter::from_fn(|| evict(&list, &presences)).collect();
            assert_eq!(evicted, expected.collect::<Vec<_>>());
            assert_eq!(steps(&list), 0, "of {count}");
        }
    }

    #[test]
    fn an_order_that_the_clock_gives_otherwise_is_kept() {
        let (list, begin) = (Rc::new(IdleList::default()), now());
        let presences = open(&list, 4);
        let after = [3, 1, 2, 1];
        for (handle, seconds) in presences.iter().zip(after) {
            rest(handle, begin + Duration::from_secs(seconds));
        }
        let evicted: Vec<_> = std::iter::from_fn(|| evict(&list, &presences)).collect();
        assert_eq!(evicted, [1, 3, 2, 0]);
        assert_eq!(steps(&list), 1 + 1 + 2);
    }

    #[test]
    fn one_that_was_evicted_or_is_closed_is_not_found_again() {
        let (list, begin) = (Rc::new(IdleList::default()), now());
        let presences = open(&list, 3);
        presences.iter().for_each(|handle| rest(handle, begin));
        assert_eq!(evict(&list, &presences), Some(0));
        rest(&presences[0], begin);
        presences[1].unlist();
        // Its index is reused by the next connection; the removed one changes nothing there any more.
        let late = open(&list, 1);
        rest(&presences[1], begin);
        presences[1].mark_active();
        assert_eq!(evict(&list, &presences), Some(2));
        assert_eq!(evict(&list, &presences), None);
        rest(&late[0], begin);
        assert_eq!(evict(&list, &late), Some(0));
        assert_eq!(list.0.borrow().entries.len(), 3);
    }
}
