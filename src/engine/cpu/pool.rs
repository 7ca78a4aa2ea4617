//! A persistent pool of threads for regions of a few microseconds.
//!
//! A region is a closure with one slot per thread. Slots are *claimed*, not assigned: whoever is awake takes the
//! next one, so the caller never waits for a thread that the system has not scheduled, and does the whole region
//! alone when the other cores are busy elsewhere. Waiting threads spin briefly, then sleep.

use std::any::Any;
use std::cell::UnsafeCell;
use std::ops::Range;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;

/// Turns of `spin_loop` before a thread sleeps: some tens of microseconds, longer than the serial gaps of a decode step.
const SPINS_BEFORE_SLEEP: usize = 6000;

type Region<'a> = dyn Fn(usize) + Sync + 'a;

/// A pool of `threads` threads, the caller of [`Pool::run`] among them.
pub struct Pool {
    shared: Arc<Shared>,
    /// Held while a region runs.
    region: Mutex<()>,
    workers: Vec<JoinHandle<()>>,
}

struct Shared {
    threads: usize,
    /// Number of the region in the upper half, next unclaimed slot in the lower; no slot is left at `threads`.
    ticket: AtomicU64,
    /// The region's closure: written before its ticket is published, read only by claimers of a slot.
    job: UnsafeCell<Option<&'static Region<'static>>>,
    /// Claimed or unclaimed slots that have not finished.
    pending: AtomicUsize,
    stop: AtomicBool,
    panic: Mutex<Option<Box<dyn Any + Send>>>,
    idle: Sleepers,
    caller: Sleepers,
}

// SAFETY: `job` is the only field that is not `Sync`. It is written by the one caller holding `Pool::region` while
// `pending` is zero, so no thread owns a slot, and read only between claiming a slot and finishing it.
unsafe impl Sync for Shared {}

/// Threads that gave up spinning.
#[derive(Default)]
struct Sleepers {
    count: AtomicUsize,
    lock: Mutex<()>,
    wake: Condvar,
}

impl Sleepers {
    /// Returns when `ready`: spins first, then sleeps.
    fn wait_until(&self, ready: impl Fn() -> bool) {
        for _ in 0..SPINS_BEFORE_SLEEP {
            if ready() {
                return;
            }
            std::hint::spin_loop();
        }
        let mut guard = lock(&self.lock);
        // Sequentially consistent with the load in `wake_all`: either it sees this count or `ready` sees its change.
        self.count.fetch_add(1, Ordering::SeqCst);
        while !ready() {
            guard = self.wake.wait(guard).unwrap_or_else(PoisonError::into_inner);
        }
        self.count.fetch_sub(1, Ordering::SeqCst);
    }

    /// Wakes whoever sleeps. The change they wait for must be made with `SeqCst` before.
    fn wake_all(&self) {
        if self.count.load(Ordering::SeqCst) > 0 {
            drop(lock(&self.lock));
            self.wake.notify_all();
        }
    }
}

/// The lock, whether or not a holder panicked: what it guards here is never left half-written.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

fn next_slot(ticket: u64) -> usize {
    (ticket & u64::from(u32::MAX)) as usize
}

impl Shared {
    fn has_work(&self) -> bool {
        next_slot(self.ticket.load(Ordering::SeqCst)) < self.threads || self.stop.load(Ordering::SeqCst)
    }

    /// Claims slots of the current region and runs them until none is left.
    fn help(&self) {
        loop {
            let ticket = self.ticket.load(Ordering::SeqCst);
            let slot = next_slot(ticket);
            if slot >= self.threads {
                return;
            }
            if self.ticket.compare_exchange(ticket, ticket + 1, Ordering::SeqCst, Ordering::SeqCst).is_err() {
                continue;
            }
            // SAFETY: this thread owns an unfinished slot, so `job` was published with the ticket and stays as it is.
            let job = unsafe { *self.job.get() };
            let job = job.expect("a ticket is published after its job");
            if let Err(payload) = catch_unwind(AssertUnwindSafe(|| job(slot))) {
                lock(&self.panic).get_or_insert(payload);
            }
            if self.pending.fetch_sub(1, Ordering::SeqCst) == 1 {
                self.caller.wake_all();
            }
        }
    }
}

impl Pool {
    /// A pool in which `threads` threads (at least 1) work: the caller and `threads - 1` of its own. A thread that
    /// the system refuses to start is missed by nobody: its slots are run by the others.
    pub fn new(threads: usize) -> Self {
        let threads = threads.clamp(1, usize::from(u16::MAX));
        let shared = Arc::new(Shared {
            threads,
            ticket: AtomicU64::new(threads as u64),
            job: UnsafeCell::new(None),
            pending: AtomicUsize::new(0),
            stop: AtomicBool::new(false),
            panic: Mutex::new(None),
            idle: Sleepers::default(),
            caller: Sleepers::default(),
        });
        let worker = |shared: Arc<Shared>| {
            move || loop {
                shared.idle.wait_until(|| shared.has_work());
                if shared.stop.load(Ordering::SeqCst) {
                    return;
                }
                shared.help();
            }
        };
        let start = |index: usize| {
            let name = format!("ropex-{index}");
            std::thread::Builder::new().name(name).spawn(worker(Arc::clone(&shared))).ok()
        };
        let workers = (1..threads).filter_map(start).collect();
        Self { shared, region: Mutex::new(()), workers }
    }

    /// Number of slots of a region.
    pub fn threads(&self) -> usize {
        self.shared.threads
    }

    /// Calls `f(slot)` once for each slot `0..threads()` and returns when all calls have. Slots may run at the same
    /// time or one after the other on one thread: `f` must not wait for another slot.
    ///
    /// A region started while another runs (from inside one, or by another thread) is run by its caller alone.
    ///
    /// # Panics
    /// When `f` did, after all slots are finished.
    pub fn run(&self, f: &(dyn Fn(usize) + Sync)) {
        let threads = self.threads();
        let region = if threads == 1 { None } else { self.region.try_lock().ok() };
        let Some(_region) = region else {
            (0..threads).for_each(f);
            return;
        };
        // SAFETY: only the lifetime changes. No thread reads `job` after the last slot is finished, which this
        // function awaits before it returns or unwinds.
        let job = unsafe { std::mem::transmute::<&Region<'_>, &'static Region<'static>>(f) };
        let shared = &*self.shared;
        // SAFETY: `pending` is zero and the region lock is held: nobody else touches `job` now.
        unsafe { *shared.job.get() = Some(job) };
        shared.pending.store(threads, Ordering::SeqCst);
        let number = (shared.ticket.load(Ordering::SeqCst) >> 32).wrapping_add(1) & u64::from(u32::MAX);
        shared.ticket.store(number << 32, Ordering::SeqCst);
        shared.idle.wake_all();
        shared.help();
        shared.caller.wait_until(|| shared.pending.load(Ordering::SeqCst) == 0);
        let payload = lock(&shared.panic).take();
        if let Some(payload) = payload {
            drop(_region);
            resume_unwind(payload);
        }
    }

    /// Splits `0..n_items` into pieces of `grain` (at least 1) items, the last one shorter, and calls `f` once for
    /// each; whoever is free takes the next piece, in order.
    ///
    /// The pieces do not depend on the number of threads, so results do not either when `f` writes only what
    /// belongs to its items.
    pub fn for_each(&self, n_items: usize, grain: usize, f: impl Fn(Range<usize>) + Sync) {
        self.for_each_slot(n_items, grain, |_, range| f(range));
    }

    /// As [`Pool::for_each`]; `f` is also told its slot in `0..threads()`, which no two calls running at the same
    /// time share: an index of scratch memory.
    pub fn for_each_slot(&self, n_items: usize, grain: usize, f: impl Fn(usize, Range<usize>) + Sync) {
        let grain = grain.max(1);
        let n_pieces = n_items.div_ceil(grain);
        let piece = |index: usize| index * grain..((index + 1) * grain).min(n_items);
        if n_pieces <= 1 || self.threads() == 1 {
            (0..n_pieces).for_each(|index| f(0, piece(index)));
            return;
        }
        let next = AtomicUsize::new(0);
        self.run(&|slot| {
            loop {
                let index = next.fetch_add(1, Ordering::Relaxed);
                if index >= n_pieces {
                    return;
                }
                f(slot, piece(index));
            }
        });
    }
}

impl Drop for Pool {
    fn drop(&mut self) {
        self.shared.stop.store(true, Ordering::SeqCst);
        self.shared.idle.wake_all();
        for worker in self.workers.drain(..) {
            // A worker catches the panics of its jobs, so it ends in order.
            let _ = worker.join();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_slot_runs_once_in_each_of_many_regions() {
        for threads in 1..6 {
            let pool = Pool::new(threads);
            for _ in 0..500 {
                let calls: Vec<AtomicUsize> = (0..threads).map(|_| AtomicUsize::new(0)).collect();
                pool.run(&|slot| {
                    calls[slot].fetch_add(1, Ordering::Relaxed);
                });
                assert!(calls.iter().all(|n| n.load(Ordering::Relaxed) == 1));
            }
        }
    }

    #[test]
    fn every_item_is_visited_once() {
        for (threads, n_items, grain) in [(1, 10, 3), (2, 0, 1), (2, 1, 5), (3, 1000, 7), (4, 64, 0)] {
            let pool = Pool::new(threads);
            let visits: Vec<AtomicUsize> = (0..n_items).map(|_| AtomicUsize::new(0)).collect();
            pool.for_each_slot(n_items, grain, |slot, range| {
                assert!(slot < threads);
                for item in range {
                    visits[item].fetch_add(1, Ordering::Relaxed);
                }
            });
            assert!(visits.iter().all(|n| n.load(Ordering::Relaxed) == 1), "{threads} {n_items} {grain}");
        }
    }

    #[test]
    fn sleeping_threads_wake_up_and_pools_end() {
        let pool = Pool::new(2);
        for _ in 0..3 {
            std::thread::sleep(std::time::Duration::from_millis(5));
            pool.for_each(8, 1, |_| std::thread::sleep(std::time::Duration::from_micros(200)));
        }
    }

    #[test]
    fn regions_may_be_nested_and_started_by_several_threads() {
        let pool = Pool::new(2);
        let count = AtomicUsize::new(0);
        std::thread::scope(|scope| {
            for _ in 0..3 {
                scope.spawn(|| {
                    pool.run(&|_| {
                        pool.for_each(5, 1, |_| {
                            count.fetch_add(1, Ordering::Relaxed);
                        });
                    });
                });
            }
        });
        assert_eq!(count.load(Ordering::Relaxed), 3 * 2 * 5);
    }

    #[test]
    fn a_panic_reaches_the_caller_and_the_pool_survives() {
        let pool = Pool::new(3);
        let outcome = catch_unwind(AssertUnwindSafe(|| {
            pool.run(&|slot| assert!(slot != 1, "slot one"));
        }));
        assert!(outcome.is_err());
        let count = AtomicUsize::new(0);
        pool.run(&|_| {
            count.fetch_add(1, Ordering::Relaxed);
        });
        assert_eq!(count.load(Ordering::Relaxed), 3);
    }
}
