//! The socket to which threads send their rings.

use rpd_ring::RingConsumer;
use rpd_ring::layout::{HEADER_BYTES, MAX_IDENTITY_BYTES, MAX_RING_BYTES};
use rpd_ring::memory::RingMemory;
use rpd_ring::message::{LibraryMessage, MESSAGE_BYTES, UntracedReason};
use rpd_shard::record::ProcessExit;
use rustix::fd::{AsFd, BorrowedFd, OwnedFd};
use rustix::fs::{SealFlags, fcntl_get_seals, fstat};
use rustix::io::Errno;
use rustix::net::sockopt::socket_peercred;
use rustix::net::{
    AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SocketAddrUnix, SocketFlags,
    SocketType, accept_with, bind, listen, recvmsg, socket_with,
};
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
    },
    /// A thread without a ring.
    Untraced {
        /// Process id in this pid namespace; 0 if the process has none there.
        pid: i32,
        /// The reason.
        why: UntracedReason,
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
    Nonsense,
}

/// The listening socket, and connections that have sent no message yet.
pub(crate) struct RingListener {
    socket: OwnedFd,
    waiting: Vec<(OwnedFd, i32)>,
    /// There was no descriptor for a connection. Until some are closed, a waiting connection is no event.
    exhausted: bool,
    /// Descriptors that are reserved for a connection and its ring. If all descriptors were in use the kernel
    /// would discard the ring, and its thread would keep writing into it.
    spare: Vec<OwnedFd>,
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
        let mut listener = RingListener { socket, waiting: Vec::new(), exhausted: false, spare: Vec::new() };
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
        socket.into_iter().chain(self.waiting.iter().map(|(socket, _)| socket.as_fd()))
    }

    /// Whether connections wait for which there is no descriptor.
    pub(super) fn is_exhausted(&self) -> bool {
        self.exhausted
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
                self.waiting.push((connection, pid));
            }
        }
        false
    }

    /// Receives the messages that have arrived. Returns whether there were any.
    fn take_messages(&mut self, each: &mut impl FnMut(ArrivedMessage)) -> bool {
        let waiting = self.waiting.len();
        // Released only while messages are received: other code opens files, too.
        self.spare.pop();
        self.waiting.retain(|(connection, pid)| match receive_message(connection) {
            Received::NotYet => true,
            Received::Closed => false,
            Received::Message(message, file) => {
                each(arrival(*pid, message, file));
                false
            }
        });
        self.keep_spare();
        self.waiting.len() < waiting
    }
}

enum Received {
    NotYet,
    Closed,
    Message(Option<LibraryMessage>, Option<OwnedFd>),
}

fn receive_message(connection: &OwnedFd) -> Received {
    let mut bytes = [0; MESSAGE_BYTES + 1];
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut control = RecvAncillaryBuffer::new(&mut space);
    let mut parts = [IoSliceMut::new(&mut bytes)];
    let got =
        match recvmsg(connection, &mut parts, &mut control, RecvFlags::CMSG_CLOEXEC | RecvFlags::DONTWAIT) {
            Ok(message) => message.bytes,
            Err(Errno::AGAIN | Errno::INTR) => return Received::NotYet,
            // The kernel could not pass the descriptor: the ring is lost, and counted.
            Err(_) => return Received::Message(None, None),
        };
    let mut file = None;
    for message in control.drain() {
        if let RecvAncillaryMessage::ScmRights(files) = message {
            file = files.last();
        }
    }
    if got == 0 {
        return Received::Closed;
    }
    Received::Message(bytes.get(..got).and_then(LibraryMessage::decode), file)
}

fn arrival(pid: i32, message: Option<LibraryMessage>, file: Option<OwnedFd>) -> ArrivedMessage {
    match (message, file) {
        (Some(LibraryMessage::Ring { .. }), Some(file)) => {
            map(&file).map_or(ArrivedMessage::Nonsense, |ring| ArrivedMessage::Ring { pid, ring })
        }
        (Some(LibraryMessage::Untraced { why, .. }), None) => ArrivedMessage::Untraced { pid, why },
        (Some(LibraryMessage::Lost { events }), None) => ArrivedMessage::Lost { pid, events },
        (Some(LibraryMessage::Ended { pid: ended, status }), None) => {
            ArrivedMessage::Ended { from: pid, pid: ended, exit: exit_of(status) }
        }
        _ => ArrivedMessage::Nonsense,
    }
}

/// Converts a status as `waitpid` returns it.
fn exit_of(status: i32) -> ProcessExit {
    match status & 0x7f {
        0 => ProcessExit::Code(status >> 8 & 0xff),
        signal => ProcessExit::Signal(signal),
    }
}

/// Maps a ring if it is not too large and its file cannot shrink.
fn map(file: &OwnedFd) -> Option<RingConsumer> {
    let sealed = SealFlags::SHRINK | SealFlags::GROW;
    if !fcntl_get_seals(file).ok()?.contains(sealed) {
        return None;
    }
    let bytes = usize::try_from(fstat(file).ok()?.st_size).ok()?;
    if !(HEADER_BYTES..=HEADER_BYTES + MAX_IDENTITY_BYTES + MAX_RING_BYTES).contains(&bytes)
        || !bytes.is_multiple_of(8)
    {
        return None;
    }
    RingConsumer::new(RingMemory::map(file.as_fd(), bytes).ok()?)
}
