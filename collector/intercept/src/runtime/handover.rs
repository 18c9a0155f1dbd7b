//! Creates a ring and sends it to the collector.
//!
//! Uses only system calls, because the caller may be inside an allocator or a signal handler. The order keeps
//! the program safe: the first memory is reserved (fallocate) before it is mapped, since a page that is not
//! available later causes a SIGBUS, and further memory by a call that fails instead; the file is sealed, so that neither side can truncate it; both
//! descriptors are closed before the program continues.

use crate::runtime::budget::{self, RingSize};
use crate::runtime::scratch::ScratchMemory;
use crate::runtime::settings::TraceSettings;
use crate::runtime::{cancellation, clock, generation, process};
use rpd_ring::header::{RingHeader, ThreadFacts, ThreadName};
use rpd_ring::layout::{self, MAX_IDENTITY_BYTES};
use rpd_ring::memory::RingMemory;
use rpd_ring::message::RingObstacle::{FileLimit, NoMemory, OpenFiles};
use rpd_ring::message::{LibraryMessage, RingObstacle};
use rpd_ring::{RingProducer, identity};
use std::os::fd::{AsFd, AsRawFd, FromRawFd, OwnedFd};

/// Creates a ring for the calling thread, of which the memory is in the [`budget`]. `None`
/// without a collector or memory, and in a child that a signal handler forked during this function:
/// `generation` belongs to its parent, and so does the connection.
pub(crate) fn make(
    settings: &TraceSettings,
    generation: u64,
    name: Option<ThreadName>,
) -> Option<RingProducer> {
    let tid = process::thread_id();
    let mut pauses = Pauses::default();
    let mut collector = connect(settings, &mut pauses)?;
    let Some(mut size) = budget::take(settings) else {
        send(&collector, LibraryMessage::Untraced { tid, why: NoMemory }, None);
        return None;
    };
    let mut cut = None;
    let made = loop {
        match reserve(settings, size, generation, tid, name) {
            // Threads that start together need two descriptors each, for a moment. One that waits must not keep another's.
            Err(OpenFiles) if pauses.remain() => {
                drop(collector);
                pauses.pause();
                let Some(again) = connect(settings, &mut pauses) else {
                    budget::give_back(size.backed);
                    return None;
                };
                collector = again;
            }
            // A smaller ring may still be possible, and finally a header alone, which counts what is dropped.
            Err(why @ (NoMemory | FileLimit)) if size.capacity > 0 => {
                let smaller = size.at_most(size.capacity / 4);
                budget::shrink(size.backed - smaller.backed);
                (size, cut) = (smaller, Some(why));
            }
            made => break made,
        }
    };
    let message = match &made {
        Ok(_) => LibraryMessage::Ring { tid, cut },
        Err(why) => LibraryMessage::Untraced { tid, why: *why },
    };
    let file = made.as_ref().ok().map(|(_, file)| file);
    let sent = !is_child(generation) && send(&collector, message, file);
    let producer = made.ok().filter(|_| sent).map(|(producer, _)| producer);
    if producer.is_none() {
        budget::give_back(size.backed);
    }
    producer
}

fn is_child(generation: u64) -> bool {
    generation::current() != generation
}

/// Sends a message without a ring. A failure is ignored.
pub(crate) fn send_message(settings: &TraceSettings, message: LibraryMessage) -> bool {
    let _postponed = cancellation::PostponedCancellation::new();
    connect(settings, &mut Pauses::default()).is_some_and(|collector| send(&collector, message, None))
}

/// Connects without waiting for the collector. Retries for a moment if its queue of connections is full, or if the
/// program may open no more files; fails if the collector has ended.
fn connect(settings: &TraceSettings, pauses: &mut Pauses) -> Option<OwnedFd> {
    let kind = libc::SOCK_SEQPACKET | libc::SOCK_CLOEXEC | libc::SOCK_NONBLOCK;
    let socket = loop {
        // SAFETY: plain system call; the descriptor is new and owned from here on.
        match owned(unsafe { libc::socket(libc::AF_UNIX, kind, 0) }) {
            Some(socket) => break socket,
            None if are_files_exhausted() && pauses.pause() => {}
            None => return None,
        }
    };
    loop {
        // SAFETY: the address is valid for `address_bytes`.
        let done = unsafe {
            libc::connect(socket.as_raw_fd(), (&raw const settings.address).cast(), settings.address_bytes)
        };
        if done == 0 {
            return same_user(&socket).then_some(socket);
        }
        if last_error() != libc::EAGAIN || !pauses.pause() {
            return None;
        }
    }
}

/// Pauses between attempts, each twice as long as the one before: 25 ms in all, once per thread and message.
#[derive(Default)]
struct Pauses(u32);

impl Pauses {
    const MAX: u32 = 9;

    /// Whether there may be another pause.
    fn remain(&self) -> bool {
        self.0 < Pauses::MAX
    }

    /// Pauses, if there may be another pause. Returns whether it did.
    fn pause(&mut self) -> bool {
        if !self.remain() {
            return false;
        }
        let pause = libc::timespec { tv_sec: 0, tv_nsec: 50_000 << self.0 };
        // SAFETY: a valid timespec; no remainder is asked for.
        unsafe { libc::nanosleep(&raw const pause, std::ptr::null_mut()) };
        self.0 += 1;
        true
    }
}

/// Whether the last system call failed because this process, or the system, may open no more files.
fn are_files_exhausted() -> bool {
    matches!(last_error(), libc::EMFILE | libc::ENFILE)
}

/// Returns the `errno` of this thread.
fn last_error() -> i32 {
    // SAFETY: the address is valid for the life of the thread.
    unsafe { *libc::__errno_location() }
}

/// Whether the other side runs as the same user: any process may listen on an abstract address.
fn same_user(socket: &OwnedFd) -> bool {
    let mut peer = libc::ucred { pid: 0, uid: 0, gid: 0 };
    let mut bytes = size_of::<libc::ucred>() as libc::socklen_t;
    // SAFETY: `peer` has room for `bytes`.
    unsafe {
        libc::getsockopt(
            socket.as_raw_fd(),
            libc::SOL_SOCKET,
            libc::SO_PEERCRED,
            (&raw mut peer).cast(),
            &raw mut bytes,
        ) == 0
            && peer.uid == libc::geteuid()
    }
}

/// Creates, fills in, seals and maps the file.
fn reserve(
    settings: &TraceSettings,
    size: RingSize,
    generation: u64,
    tid: i32,
    name: Option<ThreadName>,
) -> Result<(RingProducer, OwnedFd), RingObstacle> {
    let mut scratch = ScratchMemory::new(SCRATCH_BYTES).ok_or(NoMemory)?;
    let (identity, files) = scratch.bytes().split_at_mut_checked(MAX_IDENTITY_BYTES).ok_or(NoMemory)?;
    let (command, environment) = files.split_at_mut_checked(MAX_IDENTITY_BYTES).ok_or(NoMemory)?;
    let command_used = process::read(c"/proc/self/cmdline", command);
    let environment_used = process::read(c"/proc/self/environ", environment);
    let (command, environment) = (command.get(..command_used), environment.get(..environment_used));
    let used = identity::encode(command.unwrap_or_default(), environment.unwrap_or_default(), identity);
    let identity = identity.get(..used).unwrap_or_default();

    let before = layout::HEADER_BYTES + layout::identity_bytes(used);
    let bytes = before + size.capacity;
    if !may_make_files_of(bytes) {
        return Err(FileLimit);
    }
    let flags = libc::MFD_CLOEXEC | libc::MFD_ALLOW_SEALING;
    // SAFETY: a plain system call; the descriptor is new and ours.
    let file = owned(unsafe { libc::memfd_create(c"rpd-ring".as_ptr(), flags) });
    let file = file.ok_or_else(|| if are_files_exhausted() { OpenFiles } else { NoMemory })?;
    let [length, backed] = [bytes, before + size.backed].map(|bytes| libc::off_t::try_from(bytes).ok());
    let (length, backed) = (length.ok_or(NoMemory)?, backed.ok_or(NoMemory)?);
    // SAFETY: plain system calls on a descriptor that is ours.
    let reserved = unsafe {
        libc::ftruncate(file.as_raw_fd(), length) == 0
            && fill(&file, backed)
            && libc::fcntl(
                file.as_raw_fd(),
                libc::F_ADD_SEALS,
                libc::F_SEAL_SHRINK | libc::F_SEAL_GROW | libc::F_SEAL_SEAL,
            ) == 0
    };
    if !reserved {
        return Err(NoMemory);
    }
    let memory = RingMemory::map(file.as_fd(), bytes).map_err(|_| NoMemory)?;
    let time_namespace = process::time_namespace();
    let facts = ThreadFacts {
        pid: std::process::id() as i32,
        tid,
        // SAFETY: no arguments, cannot fail.
        ppid: unsafe { libc::getppid() },
        start_ticks: process::start_ticks(),
        start_ns: clock::EventClock::new(false).now(),
        thread_name: name.unwrap_or_else(process::thread_name),
        time_namespace,
        is_forked: generation::is_forked(generation),
        has_ticks: clock::can_use_ticks(settings, time_namespace),
    };
    // A child of a fork must write nothing: its parent does.
    if is_child(generation) {
        return Err(NoMemory);
    }
    RingHeader::new(&memory).ok_or(NoMemory)?.write(&facts, identity, size.capacity, size.backed);
    Ok((RingProducer::new(memory, budget::grow).ok_or(NoMemory)?, file))
}

/// Asks the kernel for the first memory of a file now. A signal interrupts that, and a program may receive many.
fn fill(file: &OwnedFd, length: libc::off_t) -> bool {
    const ATTEMPTS: usize = 16;
    for _ in 0..ATTEMPTS {
        // SAFETY: a plain system call on a descriptor that is ours.
        if unsafe { libc::fallocate(file.as_raw_fd(), 0, 0, length) } == 0 {
            return true;
        }
        if last_error() != libc::EINTR {
            return false;
        }
    }
    false
}

/// Whether `ulimit -f` allows a file of this length. It applies to memfds, and exceeding it causes a SIGXFSZ.
fn may_make_files_of(bytes: usize) -> bool {
    let mut limit = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    // SAFETY: a valid place for the result.
    let known = unsafe { libc::getrlimit(libc::RLIMIT_FSIZE, &raw mut limit) } == 0;
    known && limit.rlim_cur >= bytes as libc::rlim_t
}

/// Sends one packet, with a descriptor if there is one.
fn send(socket: &OwnedFd, message: LibraryMessage, file: Option<&OwnedFd>) -> bool {
    let mut bytes = message.encode();
    let mut part = libc::iovec { iov_base: bytes.as_mut_ptr().cast(), iov_len: bytes.len() };
    /// Space for one control message with one descriptor, with the alignment that the kernel requires.
    #[repr(C, align(8))]
    struct Control([u8; 32]);
    let mut control = Control([0; 32]);
    // SAFETY: msghdr is plain data, for which all zeros are valid. All pointers stay valid until
    // sendmsg returns. CMSG_SPACE(4) is 24, less than the 32 bytes of `control`, so the first header
    // and its data are inside of it, and it is aligned to 8 as the header is.
    unsafe {
        let mut header: libc::msghdr = std::mem::zeroed();
        header.msg_iov = &raw mut part;
        header.msg_iovlen = 1;
        if let Some(file) = file {
            header.msg_control = (&raw mut control).cast();
            header.msg_controllen = libc::CMSG_SPACE(4) as _;
            let first = libc::CMSG_FIRSTHDR(&raw const header);
            if first.is_null() {
                return false;
            }
            (*first).cmsg_level = libc::SOL_SOCKET;
            (*first).cmsg_type = libc::SCM_RIGHTS;
            (*first).cmsg_len = libc::CMSG_LEN(4) as _;
            libc::CMSG_DATA(first).cast::<i32>().write_unaligned(file.as_raw_fd());
        }
        libc::sendmsg(socket.as_raw_fd(), &raw const header, libc::MSG_NOSIGNAL | libc::MSG_DONTWAIT) >= 0
    }
}

/// Returns a descriptor above those of the standard streams: a program without them may still write there.
fn owned(descriptor: i32) -> Option<OwnedFd> {
    // SAFETY: the callers pass what a system call has just returned: new, and nobody else's.
    let first = (descriptor >= 0).then(|| unsafe { OwnedFd::from_raw_fd(descriptor) })?;
    if descriptor > libc::STDERR_FILENO {
        return Some(first);
    }
    // SAFETY: a plain system call on a descriptor that is ours.
    let other = unsafe { libc::fcntl(descriptor, libc::F_DUPFD_CLOEXEC, libc::STDERR_FILENO + 1) };
    // SAFETY: as above.
    (other >= 0).then(|| unsafe { OwnedFd::from_raw_fd(other) })
}

/// The identity, and its sources: command line and environment.
const SCRATCH_BYTES: usize = 2 * MAX_IDENTITY_BYTES + (1 << 20);
