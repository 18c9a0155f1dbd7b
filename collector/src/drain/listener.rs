//! The socket to which threads send their rings.

use crate::log;
use rpd_ring::RingConsumer;
use rpd_ring::layout::{HEADER_BYTES, MAX_IDENTITY_BYTES, MAX_RING_BYTES};
use rpd_ring::memory::RingMemory;
use rpd_ring::message::{LibraryMessage, MESSAGE_BYTES, RingObstacle};
use rpd_shard::record::ProcessExit;
use rustix::fd::{AsFd, BorrowedFd, OwnedFd};
use rustix::fs::{SealFlags, fcntl_get_seals, fstat};
use rustix::io::Errno;
use rustix::net::sockopt::socket_peercred;
use rustix::net::{
    AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, ReturnFlags, SocketAddrUnix,
    SocketFlags, SocketType, accept_with, bind, listen, recvmsg, socket_with,
};
use std::collections::HashSet;
use std::io::{self, IoSliceMut};
use std::mem::MaybeUninit;

/// Maximum number of connections that the kernel queues. Threads of a program start together.
const BACKLOG: i32 = 4096;
/// Maximum number of connections without their message yet. Others wait in the kernel.
const MAX_WAITING_CONNECTIONS: usize = 4096;

/// A message that a thread or process sent.
pub(super) enum ArrivedMessage {
    /// A ring, checked and mapped.
    Ring {
        /// Process id in this pid namespace; 0 if the process has none there.
        pid: i32,
        /// The ring.
        ring: RingConsumer,
        /// Why it is smaller than wanted, if it is.
        cut: Option<RingObstacle>,
    },
    /// A thread without a ring.
    Untraced {
        /// Process id in this pid namespace; 0 if the process has none there.
        pid: i32,
        /// The reason.
        why: RingObstacle,
    },
    /// Events that were counted in no ring.
    Lost {
        /// Process id in this pid namespace; 0 if the process has none there.
        pid: i32,
        /// Number of events.
        events: u64,
    },
    /// A process has ended, or is about to.
    Ended {
        /// Sender: process id in this pid namespace; 0 if it has none there.
        from: i32,
        /// Its process id, as the sender sees it.
        pid: i32,
        /// How it ended.
        exit: ProcessExit,
    },
    /// Data that is not a message of this version.
    Nonsense {
        /// Process id in this pid namespace; 0 if the process has none there.
        pid: i32,
    },
}

/// The listening socket, and connections whose message was not received yet.
pub(crate) struct RingListener {
    socket: OwnedFd,
    waiting: Vec<WaitingConnection>,
    /// There was no descriptor for a connection. Until some are closed, a waiting connection is no event.
    exhausted: bool,
    /// Descriptors that are reserved for a connection and its ring. If all descriptors were in use the kernel
    /// would discard the ring, and its thread would keep writing into it.
    spare: Vec<OwnedFd>,
    /// A ring could not be mapped, and that was printed.
    has_warned: bool,
}

struct WaitingConnection {
    socket: OwnedFd,
    /// Process id of the sender in this pid namespace; 0 if it has none there.
    pid: i32,
    /// Its message has arrived, and could not be received. Until that changes, it is no event.
    is_blocked: bool,
}

/// One for a connection, one for a ring.
const SPARE_DESCRIPTORS: usize = 2;

impl RingListener {
    /// Opens a socket on an abstract address that nobody can guess. Returns its name for
    /// [`rpd_ring::message::SOCKET_VARIABLE`]. Connections wait in the socket until a process accepts them.
    pub(crate) fn bind(random: u128) -> io::Result<(OwnedFd, String)> {
        let name = format!("rpd-{random:032x}");
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        let socket = socket_with(AddressFamily::UNIX, SocketType::SEQPACKET, flags, None)?;
        bind(&socket, &SocketAddrUnix::new_abstract_name(name.as_bytes())?)?;
        listen(&socket, BACKLOG)?;
        Ok((socket, format!("@{name}")))
    }

    /// Uses a socket of [`RingListener::bind`].
    pub(crate) fn new(socket: OwnedFd) -> RingListener {
        let (waiting, spare) = (Vec::new(), Vec::new());
        let mut listener = RingListener { socket, waiting, exhausted: false, spare, has_warned: false };
        listener.keep_spare();
        listener
    }

    fn keep_spare(&mut self) {
        while self.spare.len() < SPARE_DESCRIPTORS
            && let Ok(copy) = self.socket.try_clone()
        {
            self.spare.push(copy);
        }
    }

    /// Returns the descriptors to wait on.
    pub(super) fn descriptors(&self) -> impl Iterator<Item = BorrowedFd<'_>> {
        let socket = (!self.exhausted).then_some(self.socket.as_fd());
        let open = self.waiting.iter().filter(|connection| !connection.is_blocked);
        socket.into_iter().chain(open.map(|connection| connection.socket.as_fd()))
    }

    /// Whether connections or rings wait for which there is no descriptor or no memory.
    pub(super) fn is_exhausted(&self) -> bool {
        self.exhausted || self.waiting.iter().any(|connection| connection.is_blocked)
    }

    /// Receives everything that has arrived.
    pub(super) fn receive(&mut self, mut each: impl FnMut(ArrivedMessage)) {
        self.exhausted = false;
        // Without enough descriptors, receives one connection after the other.
        while self.accept() && self.take_messages(&mut each) {}
        self.take_messages(&mut each);
    }

    /// Accepts connections. Returns whether more may wait for which there was no descriptor.
    fn accept(&mut self) -> bool {
        let mut given_up = false;
        while self.waiting.len() < MAX_WAITING_CONNECTIONS {
            let connection = match accept_with(&self.socket, SocketFlags::CLOEXEC | SocketFlags::NONBLOCK) {
                Ok(connection) => connection,
                Err(Errno::MFILE | Errno::NFILE) if !given_up && self.spare.len() == SPARE_DESCRIPTORS => {
                    self.spare.pop();
                    given_up = true;
                    continue;
                }
                Err(error) => {
                    self.exhausted =
                        matches!(error, Errno::MFILE | Errno::NFILE | Errno::NOMEM | Errno::NOBUFS);
                    return matches!(error, Errno::MFILE | Errno::NFILE);
                }
            };
            if let Ok(peer) = socket_peercred(&connection)
                && peer.uid == rustix::process::geteuid()
            {
                // Reads the raw number: rustix panics when it formats a pid of 0.
                let pid = peer.pid.as_raw_nonzero().get();
                self.waiting.push(WaitingConnection { socket: connection, pid, is_blocked: false });
            }
        }
        false
    }

    /// Receives the messages that have arrived. Returns whether there were any.
    fn take_messages(&mut self, each: &mut impl FnMut(ArrivedMessage)) -> bool {
        let waiting = self.waiting.len();
        // Released only while messages are received: other code opens files, too.
        self.spare.pop();
        // Later messages of a process must not overtake one that cannot be received.
        let mut blocked = HashSet::new();
        self.waiting.retain_mut(|connection| {
            let pid = connection.pid;
            let received = match blocked.contains(&pid) {
                true => Received::Blocked(None),
                false => receive_message(connection),
            };
            connection.is_blocked = matches!(received, Received::Blocked(_));
            match received {
                Received::NotYet => true,
                Received::Blocked(unmapped) => {
                    blocked.insert(pid);
                    if let Some(error) = unmapped.filter(|_| !std::mem::replace(&mut self.has_warned, true)) {
                        warn_of_unmapped_ring(pid, &error);
                    }
                    true
                }
                Received::Closed => false,
                Received::Arrived(arrived) => {
                    each(arrived);
                    false
                }
            }
        });
        self.keep_spare();
        self.waiting.len() < waiting
    }
}

enum Received {
    NotYet,
    Closed,
    /// There is no descriptor for its ring, or it cannot be mapped for this reason. It stays in the socket.
    Blocked(Option<io::Error>),
    Arrived(ArrivedMessage),
}

/// Receives the message of a connection if it has arrived, and if its ring can be mapped.
fn receive_message(connection: &WaitingConnection) -> Received {
    let WaitingConnection { socket, pid, .. } = connection;
    let mut bytes = [0; MESSAGE_BYTES + 1];
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut control = RecvAncillaryBuffer::new(&mut space);
    let mut parts = [IoSliceMut::new(&mut bytes)];
    let flags = RecvFlags::CMSG_CLOEXEC | RecvFlags::DONTWAIT | RecvFlags::PEEK;
    let got = match recvmsg(socket, &mut parts, &mut control, flags) {
        Ok(got) => got,
        Err(Errno::AGAIN | Errno::INTR) => return Received::NotYet,
        Err(_) => return Received::Arrived(ArrivedMessage::Nonsense { pid: *pid }),
    };
    let mut file = None;
    for message in control.drain() {
        if let RecvAncillaryMessage::ScmRights(files) = message {
            file = files.last();
        }
    }
    if got.bytes == 0 {
        return Received::Closed;
    }
    let message = bytes.get(..got.bytes).and_then(LibraryMessage::decode);
    let is_ring = matches!(message, Some(LibraryMessage::Ring { .. }));
    if is_ring && file.is_none() && got.flags.contains(ReturnFlags::CTRUNC) {
        return Received::Blocked(None);
    }
    match arrival(*pid, message, file) {
        Ok(arrived) => Received::Arrived(arrived),
        Err(error) => Received::Blocked(Some(error)),
    }
}

/// Interprets a message.
///
/// # Errors
/// Its ring cannot be mapped now.
fn arrival(pid: i32, message: Option<LibraryMessage>, file: Option<OwnedFd>) -> io::Result<ArrivedMessage> {
    Ok(match (message, file) {
        (Some(LibraryMessage::Ring { cut, .. }), Some(file)) => {
            let memory = ring_bytes(&file).map(|bytes| RingMemory::map(file.as_fd(), bytes)).transpose()?;
            let ring = memory.and_then(RingConsumer::new);
            ring.map_or(ArrivedMessage::Nonsense { pid }, |ring| ArrivedMessage::Ring { pid, ring, cut })
        }
        (Some(LibraryMessage::Untraced { why, .. }), None) => ArrivedMessage::Untraced { pid, why },
        (Some(LibraryMessage::Lost { events }), None) => ArrivedMessage::Lost { pid, events },
        (Some(LibraryMessage::Ended { pid: ended, status }), None) => {
            ArrivedMessage::Ended { from: pid, pid: ended, exit: exit_of(status) }
        }
        _ => ArrivedMessage::Nonsense { pid },
    })
}

fn warn_of_unmapped_ring(pid: i32, error: &io::Error) {
    log::warn(format_args!(
        "warning: rpd-collect cannot map the ring of a thread of process {pid} now: {error}; its events wait in the ring, and are \
         only counted once it is full; raise `ulimit -v`, or give the job more memory"
    ));
}

/// Converts a status as `waitpid` returns it.
fn exit_of(status: i32) -> ProcessExit {
    match status & 0x7f {
        0 => ProcessExit::Code(status >> 8 & 0xff),
        signal => ProcessExit::Signal(signal),
    }
}

/// Returns the bytes of a ring's file, if it is not too large and cannot shrink.
fn ring_bytes(file: &OwnedFd) -> Option<usize> {
    let sealed = SealFlags::SHRINK | SealFlags::GROW;
    if !fcntl_get_seals(file).ok()?.contains(sealed) {
        return None;
    }
    let bytes = usize::try_from(fstat(file).ok()?.st_size).ok()?;
    let sizes = HEADER_BYTES..=HEADER_BYTES + MAX_IDENTITY_BYTES + MAX_RING_BYTES;
    (sizes.contains(&bytes) && bytes.is_multiple_of(8)).then_some(bytes)
}
