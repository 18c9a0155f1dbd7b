//! The state of the calling thread, and the way from an event to its ring.

use crate::{clock, errno, generation, handover, settings};
use rpd_ring::Producer;
use rpd_ring::layout::{Counted, DEPTH_LIMIT, Dropped};
use rpd_ring::record::MpiCall;
use std::cell::Cell;
use std::ptr;
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use std::sync::atomic::{AtomicI32, AtomicU64, compiler_fence};

/// Small enough for any thread's stack, and without a destructor: a plain piece of static TLS.
struct Local {
    /// The ring; null while there is none.
    recorder: Cell<*mut Recorder>,
    /// The generation in which `recorder` was decided upon, null or not.
    generation: Cell<u64>,
    /// An event is being written: another one now comes from a signal handler.
    busy: Cell<bool>,
    /// Open pushes, as the program counts them.
    depth: Cell<u32>,
    /// Inside an MPI function of the program.
    in_mpi: Cell<bool>,
    /// Events of signal handlers that came before there was a ring to count them in.
    early: AtomicU64,
}

thread_local! {
    static LOCAL: Local = const {
        Local {
            recorder: Cell::new(ptr::null_mut()),
            generation: Cell::new(0),
            busy: Cell::new(false),
            depth: Cell::new(0),
            in_mpi: Cell::new(false),
            early: AtomicU64::new(0),
        }
    };
}

/// What a thread with a ring has. Lives in a mapping of its own.
struct Recorder {
    producer: Producer,
    generation: u64,
    /// Pushes below this level are older than the ring: their pops are not recorded.
    floor: u32,
    /// One bit per level: its push was dropped, so its pop must be.
    dropped: [u64; DEPTH_LIMIT / 64],
}

/// Runs `write` with the recorder of this thread, if there is one and it is not in use.
#[inline]
fn record<R>(local: &Local, what: Counted, write: impl FnOnce(&mut Recorder) -> R) -> Option<R> {
    if local.busy.replace(true) {
        reentrant(local, what);
        return None;
    }
    // A signal handler of this thread must see `busy` before and after what is between.
    compiler_fence(Acquire);
    let now = generation::current();
    if now == 0 || local.generation.get() != now {
        attach(local);
    }
    // SAFETY: null, or the recorder of this thread and this process, which only the thread itself
    // frees, at its end. `busy` makes this the only reference.
    let result = unsafe { local.recorder.get().as_mut() }.map(write);
    compiler_fence(Release);
    local.busy.set(false);
    result
}

#[cold]
fn reentrant(local: &Local, what: Counted) {
    // SAFETY: as in `record`, but shared: only the header's atomics are touched.
    match unsafe { local.recorder.get().as_ref() } {
        Some(recorder) if recorder.generation == generation::current() => {
            recorder.producer.drop_one(Dropped::Reentrant, what);
        }
        _ => {
            local.early.fetch_add(1, Relaxed);
        }
    }
}

/// Gives the thread a ring, or decides that it has none until the next fork.
#[cold]
#[inline(never)]
fn attach(local: &Local) {
    let Some(settings) = settings::get() else { return };
    let Some(now) = generation::ensure() else { return };
    if local.generation.get() == now {
        return;
    }
    let _errno = errno::Preserved::new();
    // A recorder from before a fork belongs to the parent. Its ring is not mapped here, so it is
    // left behind as it is, not dropped.
    local.recorder.set(ptr::null_mut());
    if let Some(producer) = handover::make(settings, generation::is_forked(now))
        && let Some(recorder) = new_recorder(producer, now, local.depth.get())
    {
        local.recorder.set(recorder);
        call_at_exit(recorder);
        let early = local.early.swap(0, Relaxed);
        // SAFETY: made above.
        if let Some(header) = unsafe { (*recorder).producer.header() }
            && early > 0
        {
            header.count_drop(Dropped::Reentrant, Counted::Unknown, early);
        }
    }
    local.generation.set(now);
}

fn new_recorder(producer: Producer, generation: u64, floor: u32) -> Option<*mut Recorder> {
    let (read_write, private) = (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS);
    // SAFETY: a new mapping at an address that the kernel chooses; page-aligned is enough for a
    // Recorder. Zeroed memory is valid for `dropped`; the other fields are written before use.
    unsafe {
        let place = libc::mmap(ptr::null_mut(), size_of::<Recorder>(), read_write, private, -1, 0);
        if place == libc::MAP_FAILED {
            return None;
        }
        let recorder = place.cast::<Recorder>();
        (&raw mut (*recorder).producer).write(producer);
        (&raw mut (*recorder).generation).write(generation);
        (&raw mut (*recorder).floor).write(floor);
        Some(recorder)
    }
}

/// The pthread key whose destructor ends a ring; -1 until it is made.
static KEY: AtomicI32 = AtomicI32::new(-1);

/// Has [`thread_exit`] called at the end of this thread. Without it the ring is ended by the
/// collector when the process is gone.
fn call_at_exit(recorder: *mut Recorder) {
    let mut key = KEY.load(Acquire);
    if key < 0 {
        let mut made: libc::pthread_key_t = 0;
        // SAFETY: a valid place for the key and a destructor of the right type.
        if unsafe { libc::pthread_key_create(&raw mut made, Some(thread_exit)) } != 0 {
            return;
        }
        match KEY.compare_exchange(-1, made as i32, Release, Acquire) {
            Ok(_) => key = made as i32,
            Err(other) => {
                // SAFETY: made above and used by nobody.
                unsafe { libc::pthread_key_delete(made) };
                key = other;
            }
        }
    }
    // SAFETY: a key that exists.
    unsafe { libc::pthread_setspecific(key as libc::pthread_key_t, recorder.cast()) };
}

unsafe extern "C" fn thread_exit(recorder: *mut libc::c_void) {
    let recorder = recorder.cast::<Recorder>();
    let local = LOCAL.with(ptr::from_ref);
    // SAFETY: `LOCAL` is static TLS of this thread, which is still running. The value of the key is
    // the recorder of this thread. In a forked child that has had no event since, or a newer one, it
    // is the parent's: then it is left alone.
    unsafe {
        let local = &*local;
        if local.recorder.get() != recorder || (*recorder).generation != generation::current() {
            return;
        }
        let _errno = errno::Preserved::new();
        local.busy.set(true);
        local.recorder.set(ptr::null_mut());
        // A later destructor of this thread that has events gets a new ring.
        local.generation.set(0);
        if let Some(header) = (*recorder).producer.header() {
            header.end();
        }
        ptr::drop_in_place(recorder);
        libc::munmap(recorder.cast(), size_of::<Recorder>());
        local.busy.set(false);
    }
}

/// `roctxRangePush`: records it and returns the level of the new range, from 0.
#[inline]
pub(crate) fn push(name: &[u8]) -> i32 {
    LOCAL.with(|local| {
        let level = local.depth.get();
        // The depth changes afterwards: a ring that is made now begins at this level. With a ring it
        // changes while that is busy, so that a signal handler finds both as they belong together.
        record(local, Counted::Range, |recorder| {
            recorder.push(level, name);
            local.depth.set(level.saturating_add(1));
        });
        local.depth.set(level.saturating_add(1));
        i32::try_from(level).unwrap_or(i32::MAX)
    })
}

/// `roctxRangePop`: records it and returns the level of the range that it ended, -1 for none.
#[inline]
pub(crate) fn pop() -> i32 {
    LOCAL.with(|local| {
        let Some(level) = local.depth.get().checked_sub(1) else { return -1 };
        // A pop inside a signal handler has had its push dropped and counted there.
        if !local.busy.get() {
            record(local, Counted::Range, |recorder| {
                recorder.pop(level);
                local.depth.set(level);
            });
        }
        local.depth.set(level);
        i32::try_from(level).unwrap_or(i32::MAX)
    })
}

/// `roctxRangeStart`.
#[inline]
pub(crate) fn range_start(id: u64, name: &[u8]) {
    LOCAL.with(|local| {
        record(local, Counted::Range, |r| r.producer.range_start(clock::boottime(), id, name));
    });
}

/// `roctxRangeStop`.
#[inline]
pub(crate) fn range_stop(id: u64) {
    LOCAL.with(|local| record(local, Counted::Range, |r| r.producer.range_stop(clock::boottime(), id)));
}

/// `roctxMark`.
#[inline]
pub(crate) fn mark(name: &[u8]) {
    LOCAL.with(|local| record(local, Counted::Mark, |r| r.producer.mark(clock::boottime(), name)));
}

impl Recorder {
    #[inline]
    fn push(&mut self, level: u32, name: &[u8]) {
        let Some(bits) = self.dropped.get_mut(level as usize / 64) else {
            self.producer.drop_one(Dropped::TooDeep, Counted::Range);
            return;
        };
        let bit = 1 << (level % 64);
        if self.producer.push(clock::boottime(), name) {
            *bits &= !bit;
        } else {
            *bits |= bit;
        }
    }

    #[inline]
    fn pop(&mut self, level: u32) {
        if level < self.floor {
            self.floor = level;
            return;
        }
        let Some(bits) = self.dropped.get(level as usize / 64) else { return };
        if bits >> (level % 64) & 1 == 0 {
            self.producer.pop(clock::boottime());
        }
    }
}

/// An MPI function that is running. Its end is recorded when this is dropped, however it returns.
pub(crate) struct MpiInside {
    /// Recorder in which the entry is; null if it was not recorded.
    recorder: *mut Recorder,
    /// This is the outermost MPI function.
    outermost: bool,
}

/// An MPI function begins. Inside another one nothing is recorded: libraries call MPI from MPI.
#[inline]
pub(crate) fn mpi_enter(describe: impl FnOnce() -> MpiCall) -> MpiInside {
    LOCAL.with(|local| {
        if local.in_mpi.replace(true) {
            return MpiInside { recorder: ptr::null_mut(), outermost: false };
        }
        // `describe` asks MPI for sizes: only where it is of use.
        if settings::get().is_none() {
            return MpiInside { recorder: ptr::null_mut(), outermost: true };
        }
        let errno = errno::Preserved::new();
        let call = describe();
        drop(errno);
        let recorder = record(local, Counted::MpiCall, |recorder| {
            let stored = recorder.producer.mpi_enter(clock::boottime(), &call);
            if stored { ptr::from_mut(recorder) } else { ptr::null_mut() }
        });
        MpiInside { recorder: recorder.unwrap_or(ptr::null_mut()), outermost: true }
    })
}

impl Drop for MpiInside {
    #[inline]
    fn drop(&mut self) {
        if !self.outermost {
            return;
        }
        LOCAL.with(|local| {
            local.in_mpi.set(false);
            // Compared, never followed: after a fork inside of MPI the child has another recorder.
            if !self.recorder.is_null() && self.recorder == local.recorder.get() {
                let expected = self.recorder;
                record(local, Counted::MpiCall, |recorder| {
                    if ptr::eq(recorder, expected) {
                        recorder.producer.mpi_exit(clock::boottime());
                    }
                });
            }
        });
    }
}
