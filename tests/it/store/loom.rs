//! The guard of a set under every order of events that the memory model admits, as far as loom can tell.

use std::sync::atomic::{AtomicU32, Ordering};

use loom::sync::Arc;
use loom::thread;
use tollgate::limit::Packed;
use tollgate::limit::units::{Fingerprint, Timestamp};
use tollgate::store::ParamsId;

use set::{Set, WORDS};
use slot::{Content, CounterSlot, Tag};

/// The file itself, upon loom's atomics.
#[path = "../../../src/store/memory/set.rs"]
#[allow(dead_code, reason = "the store uses more of it")]
mod set;
#[path = "../../../src/store/memory/slot.rs"]
#[allow(dead_code, reason = "the store uses more of it")]
mod slot;

mod atomic {
    pub(super) use loom::hint::spin_loop;
    pub(super) use loom::sync::atomic::{AtomicU64, Ordering, fence};
    pub(super) use loom::thread::yield_now;
}

type Words = [atomic::AtomicU64; WORDS];

/// Moment and use are always written as the same number: a reader that sees two has seen a torn slot.
fn slot(number: u64) -> CounterSlot {
    let state = Packed { at: Timestamp(number), used: number };
    CounterSlot::new(Tag::of(Fingerprint(7)), ParamsId(7), Content::State(state))
}

fn words() -> Arc<Words> {
    let words = Arc::new(std::array::from_fn(|_| atomic::AtomicU64::new(0)));
    Set(&words).lock().put(0, slot(1));
    words
}

/// The number in the slot, as far as it can be seen without waiting.
fn number(slot: &CounterSlot) -> u64 {
    let Content::State(state) = slot.content() else { panic!("a log") };
    assert_eq!(state.at.0, state.used, "a torn slot was taken for a whole one");
    state.used
}

/// Adds one without a lock, unless another thread is faster. Returns whether it did.
fn add(words: &Words) -> bool {
    let Ok(Some(seen)) = Set(words).look(&slot(1)) else { return false };
    let next = slot(number(&seen.slot) + 1);
    seen.replace(&next).is_ok()
}

#[test]
fn no_addition_is_lost_and_none_is_made_twice() {
    loom::model(|| {
        let (words, added) = (words(), std::sync::Arc::new(AtomicU32::new(0)));
        let adders = [0, 1].map(|_| {
            let (words, added) = (Arc::clone(&words), std::sync::Arc::clone(&added));
            thread::spawn(move || added.fetch_add(add(&words).into(), Ordering::Relaxed))
        });
        adders.into_iter().for_each(|adder| assert!(adder.join().is_ok()));
        assert_eq!(number(&Set(&words).lock().get(0)), 1 + u64::from(added.load(Ordering::Relaxed)));
    });
}

#[test]
fn a_reader_never_takes_a_half_written_slot_for_a_whole_one() {
    loom::model(|| {
        let words = words();
        let writer = Arc::clone(&words);
        let writer = thread::spawn(move || {
            let mut set = Set(&writer).lock();
            set.put(0, CounterSlot::EMPTY);
            set.put(1, slot(2));
        });
        if let Ok(found) = Set(&words).look(&slot(1)) {
            // It moved while both slots were locked: it is never missed, and never seen twice.
            let number = number(&found.expect("it stands in one or the other").slot);
            assert!(number == 1 || number == 2);
        }
        writer.join().unwrap();
    });
}

#[test]
fn locked_and_lock_free_writers_exclude_each_other() {
    loom::model(|| {
        let words = words();
        let other = Arc::clone(&words);
        let other = thread::spawn(move || u64::from(add(&other)));
        {
            let mut set = Set(&words).lock();
            let next = slot(number(&set.get(0)) + 1);
            set.put(0, next);
        }
        let added = other.join().unwrap();
        assert_eq!(number(&Set(&words).lock().get(0)), 2 + added);
    });
}

/// A model with at most this many switches between threads that are not due: enough for the orders that matter here.
fn bounded(preemptions: usize, model: impl Fn() + Sync + Send + 'static) {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = Some(preemptions);
    builder.check(model);
}

/// Adds one to the slots of both sets without waiting, unless another thread is faster. Returns whether it did.
fn add_to_both(one: &Words, other: &Words) -> bool {
    let looked = [one, other].map(|words| Set(words).look(&slot(1)));
    let [Ok(Some(one)), Ok(Some(other))] = looked else { return false };
    let (Some(_one), Some(_other)) = (one.lock(), other.lock()) else { return false };
    let (before, of_other) = (number(&one.slot), number(&other.slot));
    assert_eq!(before, of_other, "one set was written without the other");
    [one, other].iter().for_each(|seen| seen.write(&slot(before + 1)));
    true
}

#[test]
fn two_sets_are_written_together_or_not_at_all() {
    bounded(3, || {
        let sets = [words(), words()];
        let [one, other] = sets.clone();
        let adder = thread::spawn(move || u64::from(add_to_both(&other, &one)));
        let added = u64::from(add_to_both(&sets[0], &sets[1])) + adder.join().unwrap();
        for words in &sets {
            assert_eq!(number(&Set(words).lock().get(0)), 1 + added);
        }
    });
}

#[test]
fn slots_of_two_sets_that_are_current_were_valid_at_one_moment() {
    bounded(2, || {
        let sets = [words(), words()];
        let writer = sets.clone();
        let writer = thread::spawn(move || {
            let mut locked = writer.each_ref().map(|words| Set(words).lock());
            locked.iter_mut().for_each(|set| set.put(0, slot(2)));
        });
        let looked = sets.each_ref().map(|words| Set(words).look(&slot(1)));
        if let [Ok(Some(one)), Ok(Some(other))] = looked
            && one.is_current()
            && other.is_current()
        {
            assert_eq!(number(&one.slot), number(&other.slot));
        }
        writer.join().unwrap();
    });
}
