//! The state of the calling thread, which leads from an event to its ring.

use crate::runtime::clock::EventClock;
use crate::runtime::scratch::map_private;
use crate::runtime::settings::{self, TracedApi, is_open};
use crate::runtime::thread_place::{PLACE_ALIGN, PLACE_BYTES, thread_place};
use crate::runtime::unrecorded::{count_unrecorded, take_unrecorded};
use crate::runtime::{budget, cancellation, errno, generation, handover};
use rpd_ring::RingProducer;
use rpd_ring::header::{RingHeader, ThreadName};
use rpd_ring::layout::{DropCause, DroppedKind, HEADER_BYTES, MAX_DEPTH};
use std::cell::Cell;
use std::ptr;
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use std::sync::atomic::{AtomicBool, AtomicI32, AtomicPtr, AtomicU64, AtomicUsize, compiler_fence};

/// Zeros are the state at the start of a thread, see [`thread_place`].
///
/// A signal handler may run at any point. While `busy` is set it uses only the atomics. While `busy` is not
/// set, its events are complete before the thread continues.
pub(crate) struct ThreadState {
    /// Data of the ring; null without one.
    recorder: Cell<*mut ThreadRecorder>,
    /// Address and bytes of the mapped ring, for code that must not read `recorder`. Null without a ring.
    ring: AtomicPtr<AtomicU64>,
    ring_len: AtomicUsize,
    /// The generation for which `recorder` was set, null or not.
    generation: AtomicU64,
    /// An event is being written. A further event now comes from a signal handler.
    busy: AtomicBool,
    /// The program has paused the recording of this thread.
    paused: Cell<bool>,
    /// Number of open pushes, as the program counts them.
    depth: Cell<u32>,
    /// The running MPI function of the program.
    pub(crate) mpi: RunningCall,
    /// The running RCCL function of the program.
    pub(crate) rccl: RunningCall,
    /// Events of signal handlers before there was a ring to count them in.
    early: AtomicU64,
    /// The program's name for this thread; none if the first byte is zero.
    name: Cell<ThreadName>,
}

/// The outermost running function of a library.
pub(crate) struct RunningCall {
    /// An address in its stack frame, 0 for none.
    pub(crate) frame: Cell<usize>,
    /// Recorder that has its begin; null if the begin was not recorded.
    pub(crate) recorder: Cell<*mut ThreadRecorder>,
}

const _: () = assert!(size_of::<ThreadState>() <= PLACE_BYTES && align_of::<ThreadState>() <= PLACE_ALIGN);

/// The recorder of a thread with a ring, in a mapping of its own.
pub(crate) struct ThreadRecorder {
    pub(crate) producer: RingProducer,
    pub(crate) clock: EventClock,
    generation: u64,
    /// Pushes below this level are older than the ring: their pops are not recorded.
    floor: u32,
    /// A push was not recorded, once: [`ThreadRecorder::dropped`] has a meaning.
    has_dropped: bool,
    /// One bit per level: the push was not recorded, so the pop must not be.
    dropped: [u64; MAX_DEPTH / 64],
    /// Handles of requests, from the begin of an MPI call to its end: MPI overwrites them.
    pub(crate) handles: [u64; MAX_REMEMBERED_REQUESTS],
}

/// Maximum number of requests of one MPI call that are remembered. Only used entries take memory.
pub(crate) const MAX_REMEMBERED_REQUESTS: usize = 16 << 10;

/// Why an event is not in a ring.
enum NotRecorded {
    /// The thread has no ring.
    NoRing,
    /// Another event of the thread is being written: this event is from a signal handler.
    InUse,
}

/// Runs with the state of the calling thread.
#[inline(always)]
pub(crate) fn with_local<R>(run: impl FnOnce(&ThreadState) -> R) -> R {
    // SAFETY: the place is large enough, and zeros are a valid state: no recorder, ring, event or name. It stays valid for the
    // life of the thread, which is in this call. Other threads do not reach it.
    run(unsafe { &*thread_place().cast::<ThreadState>() })
}

impl ThreadState {
    /// Whether events of this kind are recorded now.
    #[inline(always)]
    pub(crate) fn records(&self, api: TracedApi) -> bool {
        is_open(api) && !self.paused.get()
    }

    /// Runs `write` with the recorder, which is made if necessary. Counts the event and returns `None` if
    /// there is no recorder or it is in use.
    #[inline]
    pub(crate) fn record<R>(
        &self,
        what: DroppedKind,
        write: impl FnOnce(&mut ThreadRecorder) -> R,
    ) -> Option<R> {
        self.attached(write).inspect_err(|why| self.count_lost(why, what)).ok()
    }

    /// Like [`ThreadState::record`], but counts nothing.
    #[inline]
    fn attached<R>(&self, write: impl FnOnce(&mut ThreadRecorder) -> R) -> Result<R, NotRecorded> {
        let _busy = Busy::begin(self).ok_or(NotRecorded::InUse)?;
        let now = generation::current();
        let recorder = if now != 0 && self.generation.load(Relaxed) == now || self.attach() {
            self.recorder.get()
        } else {
            ptr::null_mut()
        };
        // SAFETY: null, or the recorder of this thread and this process, which only the thread itself
        // frees, at its end. `busy` makes this the only reference. A fork from here on, in a signal
        // handler, gives the child private memory in place of the ring, see `after_fork`.
        unsafe { recorder.as_mut() }.map(write).ok_or(NotRecorded::NoRing)
    }

    #[cold]
    fn count_lost(&self, why: &NotRecorded, what: DroppedKind) {
        match why {
            NotRecorded::NoRing => count_unrecorded(1),
            NotRecorded::InUse => self.reentrant(what),
        }
    }

    /// Runs `write` with the recorder, if there is one and it is not in use.
    #[inline]
    pub(crate) fn recorded<R>(&self, write: impl FnOnce(&mut ThreadRecorder) -> R) -> Option<R> {
        if self.recorder.get().is_null() {
            return None;
        }
        let _busy = Busy::begin(self)?;
        if self.generation.load(Relaxed) != generation::current() {
            return None;
        }
        // SAFETY: as in `record`.
        unsafe { self.recorder.get().as_mut() }.map(write)
    }

    /// Notes a push during a pause.
    #[cold]
    fn skip_push(&self, level: u32) {
        self.recorded(|recorder| {
            recorder.skip(level);
            self.depth.set(level.saturating_add(1));
        });
    }

    /// Counts an event that interrupts another one and so cannot be recorded.
    #[cold]
    fn reentrant(&self, what: DroppedKind) {
        if self.generation.load(Relaxed) != generation::current() {
            self.early.fetch_add(1, Relaxed);
            return;
        }
        let ring = self.ring.load(Relaxed);
        if ring.is_null() {
            return count_unrecorded(1);
        }
        // SAFETY: the mapping of this thread's ring, which begins with a header and is unmapped only
        // after `ring` is null. It is only used as atomics, and the recorder, to which the interrupted
        // event has a unique reference, is not touched.
        let header = unsafe { std::slice::from_raw_parts(ring, HEADER_BYTES / 8) };
        if let Some(header) = RingHeader::new(header) {
            header.count_drop(DropCause::Reentrant, what, 1);
        }
    }

    /// Makes a ring for the thread, or decides that it has none until the next fork. Returns whether the
    /// result belongs to this process: not if a signal handler has forked meanwhile, and this is the child.
    #[cold]
    #[inline(never)]
    fn attach(&self) -> bool {
        let (Some(settings), Some(now)) = (settings::get(), generation::ensure()) else { return false };
        let _errno = errno::PreservedErrno::new();
        let _postponed = cancellation::PostponedCancellation::new();
        generation::expect_exit_report();
        // A recorder from before a fork belongs to the parent. Its ring is not mapped here, so the recorder
        // is abandoned and not dropped.
        self.ring.store(ptr::null_mut(), Relaxed);
        self.recorder.set(ptr::null_mut());
        let name = Some(self.name.get()).filter(|name| !name.text().is_empty());
        let made = handover::make(settings, now, name);
        if let Some(producer) = made
            && let Some(recorder) = new_recorder(producer, now, self.depth.get())
        {
            // SAFETY: made above, and nobody else has it yet.
            let memory = unsafe { (*recorder).producer.memory() };
            self.ring_len.store(size_of_val::<[AtomicU64]>(memory), Relaxed);
            self.ring.store(memory.as_ptr().cast_mut(), Relaxed);
            // Not earlier: a child that starts in the middle of this event must be able to finish it.
            memory.keep_from_children();
            self.recorder.set(recorder);
            call_at_exit(recorder);
        }
        self.generation.store(now, Relaxed);
        // From here on a signal handler counts where this thread does.
        compiler_fence(Release);
        self.count_early();
        now == generation::current()
    }

    /// Counts the events of signal handlers before the ring existed.
    fn count_early(&self) {
        let early = self.early.swap(0, Relaxed);
        // SAFETY: as in `record`; the caller has set `busy`.
        match unsafe { self.recorder.get().as_ref() }.and_then(|recorder| recorder.producer.header()) {
            Some(header) => {
                header.count_drop(DropCause::Reentrant, DroppedKind::Unknown, early);
                header.count_drop(DropCause::NoMemory, DroppedKind::Unknown, take_unrecorded());
            }
            None if early > 0 => count_unrecorded(early),
            None => {}
        }
    }
}

/// Marks that an event is being written, until this is dropped. Reading arguments calls MPI, which may throw.
struct Busy<'a>(&'a AtomicBool);

impl Busy<'_> {
    /// `None` if an event is being written already.
    #[inline(always)]
    fn begin(local: &ThreadState) -> Option<Busy<'_>> {
        // A load and a store suffice: only a signal handler can come in between, and it ends before the
        // store.
        if local.busy.load(Relaxed) {
            return None;
        }
        local.busy.store(true, Relaxed);
        // A signal handler of this thread must see `busy` before and after the event.
        compiler_fence(Acquire);
        Some(Busy(&local.busy))
    }
}

impl Drop for Busy<'_> {
    #[inline(always)]
    fn drop(&mut self) {
        compiler_fence(Release);
        self.0.store(false, Relaxed);
    }
}

/// Runs in the child of fork(3), in the thread that forked. If a signal handler forked in the middle of an
/// event, the child continues in that event. The ring belongs to its parent, so the child gets private memory
/// at the address of the ring for the rest of this event. This does not help a child that a signal handler
/// makes by a bare system call if the handler interrupted an event and returns.
pub(crate) fn after_fork() {
    with_local(|local| {
        local.early.store(0, Relaxed);
        let ring = local.ring.load(Relaxed);
        if !local.busy.load(Relaxed) || ring.is_null() {
            return;
        }
        let (read_write, flags) = (
            libc::PROT_READ | libc::PROT_WRITE,
            libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE | libc::MAP_FIXED,
        );
        // SAFETY: the place of the ring, where nothing else can be: this thread had it mapped when it
        // forked, and is still in fork.
        unsafe { libc::mmap(ring.cast(), local.ring_len.load(Relaxed), read_write, flags, -1, 0) };
    });
}

fn new_recorder(producer: RingProducer, generation: u64, floor: u32) -> Option<*mut ThreadRecorder> {
    let has_ticks = producer.header().is_some_and(RingHeader::has_ticks);
    let recorder = map_private(size_of::<ThreadRecorder>())?.cast::<ThreadRecorder>();
    // SAFETY: a new mapping, aligned to a page, which is enough for a Recorder. Zeroed memory is valid for
    // `has_dropped`, `dropped` and `handles`; all other fields are written here, through pointers, before there is a
    // reference.
    unsafe {
        (&raw mut (*recorder).producer).write(producer);
        (&raw mut (*recorder).clock).write(EventClock::new(has_ticks));
        (&raw mut (*recorder).generation).write(generation);
        (&raw mut (*recorder).floor).write(floor);
        Some(recorder)
    }
}

/// The pthread key with the destructor that ends a ring; -1 for none.
static KEY: AtomicI32 = AtomicI32::new(-1);

/// Makes the key. Called by the constructor: glibc stores the values of the first 32 keys in the block of the
/// thread, but must allocate memory for later ones.
pub(crate) fn prepare() {
    let mut made: libc::pthread_key_t = 0;
    // SAFETY: a valid place for the key and a destructor of the right type, in a library that is never
    // unloaded.
    if unsafe { libc::pthread_key_create(&raw mut made, Some(thread_exit)) } == 0 {
        KEY.store(i32::try_from(made).unwrap_or(-1), Release);
    }
}

/// Arranges that [`thread_exit`] runs at the end of this thread. Otherwise the collector ends the ring when
/// the process has ended.
fn call_at_exit(recorder: *mut ThreadRecorder) {
    if let Ok(key) = libc::pthread_key_t::try_from(KEY.load(Acquire)) {
        // SAFETY: a key that exists.
        unsafe { libc::pthread_setspecific(key, recorder.cast()) };
    }
}

unsafe extern "C" fn thread_exit(recorder: *mut libc::c_void) {
    let recorder = recorder.cast::<ThreadRecorder>();
    with_local(|local| {
        // A thread that ends in a signal handler may have been in the middle of an event.
        local.busy.store(true, Relaxed);
        compiler_fence(Acquire);
        // SAFETY: the value of the key is a recorder that this thread has made, and only this frees one;
        // glibc sets the key to null first. It is that of this process and in use by nobody, as the
        // thread ends and `busy` keeps signal handlers away, or it is left alone: in a forked child it
        // may be the parent's. Nothing is left that refers to it.
        unsafe {
            if local.recorder.get() == recorder && (*recorder).generation == generation::current() {
                let _errno = errno::PreservedErrno::new();
                if let Some(header) = (*recorder).producer.header() {
                    header.end();
                    budget::give_back(header.backed_bytes());
                }
                local.recorder.set(ptr::null_mut());
                local.ring.store(ptr::null_mut(), Relaxed);
                // A later destructor of this thread that has events gets a new ring.
                local.generation.store(0, Relaxed);
                compiler_fence(Release);
                ptr::drop_in_place(recorder);
                libc::munmap(recorder.cast(), size_of::<ThreadRecorder>());
                let early = local.early.swap(0, Relaxed);
                if early > 0 {
                    count_unrecorded(early);
                }
            }
        }
        compiler_fence(Release);
        local.busy.store(false, Relaxed);
    });
}

/// `roctxRangePush`: records it and returns the level of the new range, from 0.
#[inline]
pub(crate) fn push(name: &[u8]) -> i32 {
    with_local(|local| {
        let level = local.depth.get();
        if !local.records(TracedApi::Roctx) {
            local.skip_push(level);
        } else {
            // The depth changes afterwards: a ring that is made now starts at this level. With a ring it changes
            // while that is busy, so that a signal handler sees both in a consistent state.
            local.record(DroppedKind::Range, |recorder| {
                recorder.push(level, name);
                local.depth.set(level.saturating_add(1));
            });
        }
        local.depth.set(level.saturating_add(1));
        i32::try_from(level).unwrap_or(i32::MAX)
    })
}

/// `roctxRangePop`: records it and returns the level of the range that it ended, -1 for none.
#[inline]
pub(crate) fn pop() -> i32 {
    with_local(|local| {
        let Some(level) = local.depth.get().checked_sub(1) else { return -1 };
        // For a pop inside a signal handler, the push was dropped and counted there.
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
    with_local(|local| {
        if local.records(TracedApi::Roctx) {
            local.record(DroppedKind::Range, |r| r.producer.range_start(r.clock.now(), id, name));
        }
    });
}

/// `roctxRangeStop`. Its start may have been recorded before a pause. A lost stop is not counted: the range
/// was counted at its start, or stays open.
#[inline]
pub(crate) fn range_stop(id: u64) {
    with_local(|local| {
        if settings::is_traced(TracedApi::Roctx) {
            let _ = local.attached(|r| r.producer.range_stop(r.clock.now(), id));
        }
    });
}

/// `roctxMark`.
#[inline]
pub(crate) fn mark(name: &[u8]) {
    with_local(|local| {
        if local.records(TracedApi::Roctx) {
            local.record(DroppedKind::Mark, |r| r.producer.mark(r.clock.now(), name));
        }
    });
}

/// `roctxNameOsThread`: sets the name of the thread in the trace, if it comes before the first event.
/// Otherwise the thread is recorded under another name, and this records a mark.
pub(crate) fn name_thread(name: &[u8]) {
    with_local(|local| {
        if local.recorded(|_| ()).is_some() {
            return mark(name);
        }
        let mut stored = ThreadName::default();
        // The last byte stays zero.
        for (place, byte) in stored.0.iter_mut().rev().skip(1).rev().zip(name) {
            *place = *byte;
        }
        local.name.set(stored);
    });
}

/// Pauses or resumes the recording of the calling thread.
pub(crate) fn pause(paused: bool) {
    with_local(|local| local.paused.set(paused));
}

impl ThreadRecorder {
    #[inline(always)]
    fn push(&mut self, level: u32, name: &[u8]) {
        if level as usize >= MAX_DEPTH {
            self.has_dropped = true;
            self.producer.drop_one(DropCause::TooDeep, DroppedKind::Range);
        } else if !self.producer.push(self.clock.now(), name) {
            self.skip(level);
        } else if self.has_dropped {
            self.unskip(level);
        }
    }

    /// Notes a push that is not recorded.
    #[cold]
    fn skip(&mut self, level: u32) {
        self.has_dropped = true;
        if let Some(bits) = self.dropped.get_mut(level as usize / 64) {
            *bits |= 1 << (level % 64);
        }
    }

    /// Notes a push that is recorded, at a level where an earlier one was not.
    #[cold]
    fn unskip(&mut self, level: u32) {
        if let Some(bits) = self.dropped.get_mut(level as usize / 64) {
            *bits &= !(1 << (level % 64));
        }
    }

    #[inline(always)]
    fn pop(&mut self, level: u32) {
        if level < self.floor {
            self.floor = level;
        } else if !(self.has_dropped && self.is_skipped(level)) {
            self.producer.pop(self.clock.now());
        }
    }

    /// Whether the push was not recorded.
    #[cold]
    fn is_skipped(&self, level: u32) -> bool {
        self.dropped.get(level as usize / 64).is_none_or(|bits| bits >> (level % 64) & 1 == 1)
    }
}
