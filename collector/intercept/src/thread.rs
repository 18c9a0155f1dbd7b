//! The state of the calling thread, and the way from an event to its ring.

use crate::settings::{Traced, is_open};
use crate::{budget, clock, errno, exits, generation, handover, settings};
use rpd_ring::Producer;
use rpd_ring::header::ThreadName;
use rpd_ring::layout::{Counted, DEPTH_LIMIT, Dropped};
use std::cell::Cell;
use std::ptr;
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use std::sync::atomic::{AtomicBool, AtomicI32, AtomicU64, compiler_fence};

/// Small enough for any thread's stack, and without a destructor: a plain piece of static TLS.
pub(crate) struct Local {
    /// The ring; null while there is none.
    recorder: Cell<*mut Recorder>,
    /// The generation in which `recorder` was decided upon, null or not.
    generation: Cell<u64>,
    /// An event is being written: another one now comes from a signal handler.
    busy: Cell<bool>,
    /// The program has paused the recording of this thread.
    paused: Cell<bool>,
    /// Open pushes, as the program counts them.
    depth: Cell<u32>,
    /// Inside an MPI function of the program.
    pub(crate) in_mpi: Cell<bool>,
    /// Inside an RCCL function of the program.
    pub(crate) in_rccl: Cell<bool>,
    /// Events of signal handlers that came before there was a ring to count them in.
    early: AtomicU64,
    /// What the program calls this thread; nothing if the first byte is zero.
    name: Cell<ThreadName>,
}

thread_local! {
    static LOCAL: Local = const {
        Local {
            recorder: Cell::new(ptr::null_mut()),
            generation: Cell::new(0),
            busy: Cell::new(false),
            paused: Cell::new(false),
            depth: Cell::new(0),
            in_mpi: Cell::new(false),
            in_rccl: Cell::new(false),
            early: AtomicU64::new(0),
            name: Cell::new(ThreadName([0; rpd_ring::layout::THREAD_NAME_BYTES])),
        }
    };
}

/// What a thread with a ring has. Lives in a mapping of its own.
pub(crate) struct Recorder {
    pub(crate) producer: Producer,
    generation: u64,
    /// Bytes of its ring in the [`budget`].
    ring_bytes: usize,
    /// Pushes below this level are older than the ring: their pops are not recorded.
    floor: u32,
    /// One bit per level: its push was not recorded, so its pop must not be.
    dropped: [u64; DEPTH_LIMIT / 64],
    /// Handles of requests, from the beginning of an MPI call to its end: MPI overwrites them.
    pub(crate) handles: [u64; HANDLES],
}

/// Requests of one MPI call that are looked at; only what is used takes memory.
pub(crate) const HANDLES: usize = 16 << 10;

/// Events of threads that have no ring, not even one to count in.
static UNRECORDED: AtomicU64 = AtomicU64::new(0);

/// There are, or were, such threads.
static UNTRACED: AtomicBool = AtomicBool::new(false);

/// Takes the number of events that no ring has counted.
fn take_unrecorded() -> u64 {
    UNRECORDED.swap(0, Relaxed)
}

/// The events that no ring has counted, for the report at the end of the process; none if all threads
/// have had rings.
pub(crate) fn last_unrecorded() -> Option<u64> {
    UNTRACED.swap(false, Relaxed).then(take_unrecorded)
}

/// In a forked child these are the parent's, who reports them.
pub(crate) fn reset_unrecorded() {
    UNRECORDED.store(0, Relaxed);
    UNTRACED.store(false, Relaxed);
}

/// Why an event is not in a ring.
enum NotRecorded {
    /// The thread has none.
    NoRing,
    /// Another event of the thread is being written: this one is from a signal handler.
    InUse,
}

/// Runs with the state of the calling thread.
#[inline(always)]
pub(crate) fn with_local<R>(run: impl FnOnce(&Local) -> R) -> R {
    LOCAL.with(run)
}

impl Local {
    /// Whether events of this sort are recorded now.
    #[inline(always)]
    pub(crate) fn records(&self, sort: Traced) -> bool {
        is_open(sort) && !self.paused.get()
    }

    /// Runs `write` with the recorder, which is made if there is none; none, and the event is counted, if
    /// it cannot be had or is in use.
    #[inline]
    pub(crate) fn record<R>(&self, what: Counted, write: impl FnOnce(&mut Recorder) -> R) -> Option<R> {
        self.attached(write).inspect_err(|why| self.count_lost(why, what)).ok()
    }

    /// As [`Local::record`], but nothing is counted.
    #[inline]
    fn attached<R>(&self, write: impl FnOnce(&mut Recorder) -> R) -> Result<R, NotRecorded> {
        if self.busy.replace(true) {
            return Err(NotRecorded::InUse);
        }
        // A signal handler of this thread must see `busy` before and after what is between.
        compiler_fence(Acquire);
        let now = generation::current();
        if now == 0 || self.generation.get() != now {
            self.attach();
        }
        // SAFETY: null, or the recorder of this thread and this process, which only the thread itself
        // frees, at its end. `busy` makes this the only reference.
        let result = unsafe { self.recorder.get().as_mut() }.map(write).ok_or(NotRecorded::NoRing);
        compiler_fence(Release);
        self.busy.set(false);
        result
    }

    /// Runs `write` with the recorder, if there is one and it is not in use.
    #[inline]
    pub(crate) fn recorded<R>(&self, write: impl FnOnce(&mut Recorder) -> R) -> Option<R> {
        if self.recorder.get().is_null() || self.generation.get() != generation::current() {
            return None;
        }
        if self.busy.replace(true) {
            return None;
        }
        compiler_fence(Acquire);
        // SAFETY: as in `record`.
        let result = unsafe { self.recorder.get().as_mut() }.map(write);
        compiler_fence(Release);
        self.busy.set(false);
        result
    }

    #[cold]
    fn count_lost(&self, why: &NotRecorded, what: Counted) {
        if matches!(why, NotRecorded::NoRing) {
            UNRECORDED.fetch_add(1, Relaxed);
            UNTRACED.store(true, Relaxed);
            return;
        }
        // SAFETY: as in `record`, but shared: only the header's atomics are touched.
        match unsafe { self.recorder.get().as_ref() } {
            Some(recorder) if recorder.generation == generation::current() => {
                recorder.producer.drop_one(Dropped::Reentrant, what);
            }
            _ => {
                self.early.fetch_add(1, Relaxed);
            }
        }
    }

    /// Gives the thread a ring, or decides that it has none until the next fork.
    #[cold]
    #[inline(never)]
    fn attach(&self) {
        let Some(settings) = settings::get() else { return };
        let Some(now) = generation::ensure() else { return };
        if self.generation.get() == now {
            return;
        }
        let _errno = errno::Preserved::new();
        exits::expect();
        // A recorder from before a fork belongs to the parent. Its ring is not mapped here, so it is
        // left behind as it is, not dropped.
        self.recorder.set(ptr::null_mut());
        let name = Some(self.name.get()).filter(|name| !name.text().is_empty());
        if let Some((producer, ring_bytes)) = handover::make(settings, generation::is_forked(now), name)
            && let Some(recorder) = new_recorder(producer, now, ring_bytes, self.depth.get())
        {
            budget::take(ring_bytes);
            self.recorder.set(recorder);
            call_at_exit(recorder);
            let early = self.early.swap(0, Relaxed);
            // SAFETY: made above.
            if let Some(header) = unsafe { (*recorder).producer.header() } {
                header.count_drop(Dropped::Reentrant, Counted::Unknown, early);
                header.count_drop(Dropped::NoMemory, Counted::Unknown, take_unrecorded());
            }
        }
        self.generation.set(now);
    }
}

fn new_recorder(producer: Producer, generation: u64, ring_bytes: usize, floor: u32) -> Option<*mut Recorder> {
    let (read_write, private) = (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS);
    // SAFETY: a new mapping at an address that the kernel chooses; page-aligned is enough for a
    // Recorder. Zeroed memory is valid for `dropped` and `handles`; the other fields are written before
    // use.
    unsafe {
        let place = libc::mmap(ptr::null_mut(), size_of::<Recorder>(), read_write, private, -1, 0);
        if place == libc::MAP_FAILED {
            return None;
        }
        let recorder = place.cast::<Recorder>();
        (&raw mut (*recorder).producer).write(producer);
        (&raw mut (*recorder).generation).write(generation);
        (&raw mut (*recorder).ring_bytes).write(ring_bytes);
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
        budget::give_back((*recorder).ring_bytes);
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
        let open = local.records(Traced::Roctx);
        // The depth changes afterwards: a ring that is made now begins at this level. With a ring it
        // changes while that is busy, so that a signal handler finds both as they belong together.
        let write = |recorder: &mut Recorder| {
            if open {
                recorder.push(level, name)
            } else {
                recorder.skip(level)
            }
            local.depth.set(level.saturating_add(1));
        };
        if open {
            local.record(Counted::Range, write);
        } else {
            local.recorded(write);
        }
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
        local.recorded(|recorder| {
            recorder.pop(level);
            local.depth.set(level);
        });
        local.depth.set(level);
        i32::try_from(level).unwrap_or(i32::MAX)
    })
}

/// `roctxRangeStart`.
#[inline]
pub(crate) fn range_start(id: u64, name: &[u8]) {
    LOCAL.with(|local| {
        if local.records(Traced::Roctx) {
            local.record(Counted::Range, |r| r.producer.range_start(clock::boottime(), id, name));
        }
    });
}

/// `roctxRangeStop`. Its start may have been recorded before a pause. One that is lost is not counted:
/// the range was counted at its start, or stays open.
#[inline]
pub(crate) fn range_stop(id: u64) {
    LOCAL.with(|local| {
        if settings::is_traced(Traced::Roctx) {
            let _ = local.attached(|r| r.producer.range_stop(clock::boottime(), id));
        }
    });
}

/// `roctxMark`.
#[inline]
pub(crate) fn mark(name: &[u8]) {
    LOCAL.with(|local| {
        if local.records(Traced::Roctx) {
            local.record(Counted::Mark, |r| r.producer.mark(clock::boottime(), name));
        }
    });
}

/// `roctxNameOsThread`: the name of the thread in the trace, if it comes before the first event.
/// Otherwise the thread is on record by another name, and this is a mark.
pub(crate) fn name_thread(name: &[u8]) {
    LOCAL.with(|local| {
        if local.recorded(|_| ()).is_some() {
            return mark(name);
        }
        let mut kept = ThreadName::default();
        // The last byte stays zero.
        for (place, byte) in kept.0.iter_mut().rev().skip(1).rev().zip(name) {
            *place = *byte;
        }
        local.name.set(kept);
    });
}

/// Pauses or resumes the recording of the calling thread.
pub(crate) fn pause(paused: bool) {
    LOCAL.with(|local| local.paused.set(paused));
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

    /// A push that is not to be recorded.
    #[cold]
    fn skip(&mut self, level: u32) {
        if let Some(bits) = self.dropped.get_mut(level as usize / 64) {
            *bits |= 1 << (level % 64);
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
