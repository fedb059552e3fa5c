//! Where things rest between two uses, without a lock: lanes of a few slots, each a pointer that is exchanged whole.
//!
//! A thing that comes back while the slots are being closed is freed by one of both sides: who returns it writes a slot
//! and then reads `closed`, who closes writes `closed` and then exchanges each slot. Both change the slot by one atomic
//! step, so one of them comes second and sees the result of the other: the thing, or that the slots are closed.
//! `models` runs the orders of these steps, and the values that a read may see (`make test-models`).

use std::ptr;

#[cfg(all(loom, test))]
use loom::sync::atomic::{AtomicBool, AtomicPtr, Ordering};
#[cfg(not(all(loom, test)))]
use std::sync::atomic::{AtomicBool, AtomicPtr, Ordering};

/// What can rest, and is counted while it does.
pub(crate) trait Rests {
    /// It is about to rest; nobody can take it yet.
    fn begins(&self);

    /// It has been taken out, or did not find a place.
    fn ends(&self);
}

/// Slots in `LANES` lanes. They own their contents.
#[derive(Debug)]
pub(crate) struct Slots<T: Rests, const LANES: usize, const SLOTS: usize> {
    /// Each is null or owns a boxed `T`. Whoever exchanges a pointer for null owns it.
    lanes: [[AtomicPtr<T>; SLOTS]; LANES],
    closed: AtomicBool,
}

impl<T: Rests, const LANES: usize, const SLOTS: usize> Default for Slots<T, LANES, SLOTS> {
    fn default() -> Self {
        let empty = |_| std::array::from_fn(|_| AtomicPtr::new(ptr::null_mut()));
        Self { lanes: std::array::from_fn(empty), closed: AtomicBool::new(false) }
    }
}

impl<T: Rests, const LANES: usize, const SLOTS: usize> Slots<T, LANES, SLOTS> {
    /// What rests in a lane's slots, one after the other; each item has been taken out.
    pub(crate) fn take_each(&self, lane: usize) -> impl Iterator<Item = T> {
        self.lanes[lane].iter().filter_map(Self::take_slot)
    }

    fn take_slot(slot: &AtomicPtr<T>) -> Option<T> {
        let boxed = slot.swap(ptr::null_mut(), Ordering::SeqCst);
        if boxed.is_null() {
            return None;
        }
        // SAFETY: a non-null slot holds a pointer from `Box::into_raw`; the exchange made us its only owner.
        let thing = *unsafe { Box::from_raw(boxed) };
        thing.ends();
        Some(thing)
    }

    /// Puts a thing to rest; drops it if the slots are closed or the lane is full.
    pub(crate) fn put(&self, lane: usize, thing: T) {
        if self.closed.load(Ordering::Relaxed) {
            return;
        }
        // Before anybody can take it out, and count it so.
        thing.begins();
        let boxed = Box::into_raw(Box::new(thing));
        for slot in &self.lanes[lane] {
            if slot.compare_exchange(ptr::null_mut(), boxed, Ordering::SeqCst, Ordering::Relaxed).is_ok() {
                if self.closed.load(Ordering::SeqCst) {
                    // `close` may have looked at this slot before the thing was in it.
                    self.empty();
                }
                return;
            }
        }
        // SAFETY: no slot took the pointer, so it is still ours alone.
        let thing = *unsafe { Box::from_raw(boxed) };
        thing.ends();
    }

    fn empty(&self) {
        for slot in self.lanes.iter().flatten() {
            drop(Self::take_slot(slot));
        }
    }

    /// Drops all that rests, and from now on each thing that comes back. Closed slots stay closed.
    pub(crate) fn close(&self) {
        self.closed.store(true, Ordering::SeqCst);
        self.empty();
    }
}

impl<T: Rests, const LANES: usize, const SLOTS: usize> Drop for Slots<T, LANES, SLOTS> {
    fn drop(&mut self) {
        self.empty();
    }
}

/// The ways in which few threads can take these steps, by loom. It takes `SeqCst` for acquire and release, so what holds
/// here needs no total order.
#[cfg(all(loom, test))]
mod models {
    use std::sync::Arc as Plain;

    use loom::sync::Arc;
    use loom::sync::atomic::{AtomicIsize, Ordering};
    use loom::thread;

    use super::{Rests, Slots};

    /// What a model has counted: things that live, and those that rest.
    #[derive(Default)]
    struct Counts {
        living: AtomicIsize,
        resting: AtomicIsize,
    }

    struct Thing {
        number: usize,
        counts: Plain<Counts>,
    }

    impl Thing {
        fn new(number: usize, counts: &Plain<Counts>) -> Self {
            counts.living.fetch_add(1, Ordering::Relaxed);
            Self { number, counts: Plain::clone(counts) }
        }
    }

    impl Drop for Thing {
        fn drop(&mut self) {
            let before = self.counts.living.fetch_sub(1, Ordering::Relaxed);
            assert!(before > 0, "dropped twice");
        }
    }

    impl Rests for Thing {
        fn begins(&self) {
            self.counts.resting.fetch_add(1, Ordering::Relaxed);
        }

        fn ends(&self) {
            let before = self.counts.resting.fetch_sub(1, Ordering::Relaxed);
            assert!(before > 0, "counted below 0");
        }
    }

    type Pair = Slots<Thing, 1, 2>;

    fn counts_of(counts: &Counts) -> (isize, isize) {
        (counts.living.load(Ordering::SeqCst), counts.resting.load(Ordering::SeqCst))
    }

    /// Runs a model of few threads, in which each order has at most three places where a thread stops before it has to. All
    /// orders of three threads are too many for a test; faults that need more than two such places are rare.
    fn model(steps: impl Fn() + Sync + Send + 'static) {
        let mut builder = loom::model::Builder::new();
        builder.preemption_bound = Some(3);
        builder.check(steps);
    }

    #[test]
    fn a_thing_has_one_owner() {
        model(|| {
            let (slots, counts) = (Arc::new(Pair::default()), Plain::new(Counts::default()));
            slots.put(0, Thing::new(0, &counts));
            let others: Vec<_> = (1..3)
                .map(|number| {
                    let (slots, counts) = (Arc::clone(&slots), Plain::clone(&counts));
                    thread::spawn(move || {
                        slots.put(0, Thing::new(number, &counts));
                        slots.take_each(0).next()
                    })
                })
                .collect();
            let taken: Vec<Thing> = others.into_iter().filter_map(|other| other.join().unwrap()).collect();
            let rest: Vec<Thing> = slots.take_each(0).collect();
            let mut numbers: Vec<usize> = taken.iter().chain(&rest).map(|thing| thing.number).collect();
            numbers.sort_unstable();
            let all = numbers.len();
            numbers.dedup();
            assert_eq!(numbers.len(), all, "two owners of one thing");
            assert_eq!(counts_of(&counts), (isize::try_from(all).unwrap(), 0));
            drop((taken, rest));
            assert_eq!(counts_of(&counts), (0, 0));
        });
    }

    #[test]
    fn nothing_rests_in_closed_slots() {
        model(|| {
            let (slots, counts) = (Arc::new(Pair::default()), Plain::new(Counts::default()));
            let others: Vec<_> = (0..2)
                .map(|number| {
                    let (slots, counts) = (Arc::clone(&slots), Plain::clone(&counts));
                    thread::spawn(move || slots.put(0, Thing::new(number, &counts)))
                })
                .collect();
            slots.close();
            for other in others {
                other.join().unwrap();
            }
            assert_eq!(counts_of(&counts), (0, 0), "(living, resting)");
        });
    }

    #[test]
    fn what_is_taken_while_slots_close_is_kept_and_the_rest_dropped_once() {
        loom::model(|| {
            let (slots, counts) = (Arc::new(Pair::default()), Plain::new(Counts::default()));
            slots.put(0, Thing::new(0, &counts));
            let other = {
                let slots = Arc::clone(&slots);
                thread::spawn(move || slots.close())
            };
            let taken: Vec<Thing> = slots.take_each(0).collect();
            slots.put(0, Thing::new(1, &counts));
            other.join().unwrap();
            assert_eq!(counts_of(&counts), (isize::try_from(taken.len()).unwrap(), 0));
            drop((taken, slots));
            assert_eq!(counts_of(&counts), (0, 0));
        });
    }
}
