//! Parallel work with results in order.

use rpd_console::Failure;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::thread;

struct State<S> {
    /// Number of the item that is next in order.
    next: usize,
    shared: S,
    failure: Option<Failure>,
    /// A thread ended for which others would wait.
    broken: bool,
}

struct Turns<S> {
    state: Mutex<State<S>>,
    changed: Condvar,
}

impl<S> Turns<S> {
    fn lock(&self) -> MutexGuard<'_, State<S>> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Ends the work of all threads.
    fn fail(&self, failure: Option<Failure>) {
        let mut state = self.lock();
        state.broken = true;
        state.failure = state.failure.take().or(failure);
        self.changed.notify_all();
    }
}

/// Wakes the other threads if a thread panics; otherwise they would wait forever for its item.
struct PanicGuard<'a, S>(&'a Turns<S>);

impl<S> Drop for PanicGuard<'_, S> {
    fn drop(&mut self) {
        if thread::panicking() {
            self.0.fail(None);
        }
    }
}

/// Emits a finished part of an item. Blocks until the item is next in order and keeps that position until the item is
/// complete.
pub(crate) type EmitPart<'a, T> = dyn FnMut(T) -> Result<(), Failure> + 'a;

/// Makes `count` items with `threads` threads. `turn` receives them one by one in their order and may change the
/// shared state. `make` emits an item that grows too large in parts, and returns the last part. The first failure
/// ends the work.
///
/// The threads are those of rayon, so `make` must not use rayon itself. A thread that waits in rayon could start
/// another item, which would wait for the thread's own item.
pub(crate) fn run_ordered<T, S: Send>(
    count: usize,
    threads: usize,
    shared: S,
    make: impl Fn(usize, &mut EmitPart<'_, T>) -> Result<T, Failure> + Sync,
    turn: impl Fn(&mut S, usize, T) -> Result<(), Failure> + Sync,
) -> Result<S, Failure> {
    let state = State { next: 0, shared, failure: None, broken: false };
    let turns = Turns { state: Mutex::new(state), changed: Condvar::new() };
    let taken = AtomicUsize::new(0);
    // Emits a part; the last one completes the item.
    let emit = |number: usize, part: T, is_last: bool| {
        let mut state = turns.lock();
        while state.next != number && !state.broken {
            state = turns.changed.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
        if state.broken {
            return Err(Failure::internal("another thread failed"));
        }
        turn(&mut state.shared, number, part)?;
        if is_last {
            state.next += 1;
            turns.changed.notify_all();
        }
        Ok(())
    };
    let work = || {
        let _alarm = PanicGuard(&turns);
        loop {
            let number = taken.fetch_add(1, Ordering::Relaxed);
            if number >= count {
                return Ok(());
            }
            let last = make(number, &mut |part| emit(number, part, false))?;
            emit(number, last, true)?;
        }
    };
    // Existing threads are used, because each new one would have a separate heap beside the memory that the others
    // keep.
    rayon::scope(|scope| {
        for _ in 0..threads.min(count) {
            scope.spawn(|_| work().unwrap_or_else(|failure| turns.fail(Some(failure))));
        }
    });
    let state = turns.state.into_inner().unwrap_or_else(PoisonError::into_inner);
    match state.failure {
        Some(failure) => Err(failure),
        None => Ok(state.shared),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn things_come_in_order_whatever_the_threads() {
        for threads in [1, 2, 7] {
            let order = run_ordered(
                100,
                threads,
                Vec::new(),
                |i, _| Ok(i * 2),
                |seen, i, thing| {
                    seen.push((i, thing));
                    Ok(())
                },
            );
            assert_eq!(order.unwrap(), (0..100).map(|i| (i, i * 2)).collect::<Vec<_>>());
        }
    }

    #[test]
    fn parts_of_a_thing_stay_together() {
        let parts = run_ordered(
            40,
            4,
            Vec::new(),
            |i, emit| {
                emit((i, 0))?;
                emit((i, 1))?;
                Ok((i, 2))
            },
            |seen, _, part| {
                seen.push(part);
                Ok(())
            },
        );
        assert_eq!(parts.unwrap(), (0..40).flat_map(|i| (0..3).map(move |p| (i, p))).collect::<Vec<_>>());
    }

    #[test]
    fn a_failure_ends_the_work_of_all() {
        let make =
            |i, _: &mut EmitPart<'_, usize>| if i == 3 { Err(Failure::internal("here")) } else { Ok(i) };
        let ended = run_ordered(1_000_000, 4, (), make, |(), _, _| Ok(()));
        assert!(ended.unwrap_err().to_string().contains("here"));
    }
}
