//! The socket on which threads hand over their rings.

use rpd_ring::RingConsumer;
use rpd_ring::layout::{HEADER_BYTES, IDENTITY_LIMIT, RING_MAX};
use rpd_ring::memory::RingMemory;
use rpd_ring::message::{LibraryMessage, MESSAGE_BYTES, UntracedReason};
use rpd_shard::record::Exit;
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

/// Connections that the kernel queues while we are busy. A program's threads start together.
const BACKLOG: i32 = 4096;
/// Connections without their message yet; more are refused until some are done.
const MAX_WAITING_CONNECTIONS: usize = 4096;

/// What a thread has sent.
pub(super) enum ArrivedMessage {
    /// A ring, checked and mapped.
    Ring {
        /// Process id in our pid namespace; 0 if it has none there.
        pid: i32,
        /// The ring.
        ring: RingConsumer,
    },
    /// A thread without a ring.
    Untraced {
        /// Process id in our pid namespace; 0 if it has none there.
        pid: i32,
        /// Why.
        why: UntracedReason,
    },
    /// Events that no ring has counted.
    Lost {
        /// Process id in our pid namespace; 0 if it has none there.
        pid: i32,
        /// How many.
        events: u64,
    },
    /// A process has ended, or is about to.
    Ended {
        /// Who says so: process id in our pid namespace; 0 if it has none there.
        from: i32,
        /// Its process id, as the sender sees it.
        pid: i32,
        /// How.
        exit: Exit,
    },
    /// Something that is no message of this version.
    Nonsense,
}

/// The listening socket, and connections whose message is still to come.
pub(crate) struct RingListener {
    socket: OwnedFd,
    waiting: Vec<(OwnedFd, i32)>,
    /// There was no descriptor for a connection: until some are closed, it is no news that there is one.
    exhausted: bool,
    /// Descriptors that are given up for a connection and the ring that comes with it. Where all are in
    /// use, the kernel would throw the ring away, and its thread would go on writing into it.
    spare: Vec<OwnedFd>,
}

/// A connection and a ring.
const SPARE: usize = 2;

impl RingListener {
    /// Opens a socket on an abstract address that cannot be guessed, and returns its name for
    /// [`rpd_ring::message::SOCKET_VARIABLE`]. Connections wait in it until somebody listens.
    pub(crate) fn bind(random: u128) -> io::Result<(OwnedFd, String)> {
        let name = format!("rpd-{random:032x}");
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        let socket = socket_with(AddressFamily::UNIX, SocketType::SEQPACKET, flags, None)?;
        bind(&socket, &SocketAddrUnix::new_abstract_name(name.as_bytes())?)?;
        listen(&socket, BACKLOG)?;
        Ok((socket, format!("@{name}")))
    }

    /// Listens on a socket of [`RingListener::bind`].
    pub(crate) fn new(socket: OwnedFd) -> RingListener {
        let mut listener = RingListener { socket, waiting: Vec::new(), exhausted: false, spare: Vec::new() };
        listener.keep_spare();
        listener
    }

    fn keep_spare(&mut self) {
        while self.spare.len() < SPARE
            && let Ok(copy) = self.socket.try_clone()
        {
            self.spare.push(copy);
        }
    }

    /// What to wait on for news.
    pub(super) fn descriptors(&self) -> impl Iterator<Item = BorrowedFd<'_>> {
        let socket = (!self.exhausted).then_some(self.socket.as_fd());
        socket.into_iter().chain(self.waiting.iter().map(|(socket, _)| socket.as_fd()))
    }

    /// Whether connections wait for which there is no descriptor.
    pub(super) fn is_exhausted(&self) -> bool {
        self.exhausted
    }

    /// Takes in everything that has arrived.
    pub(super) fn receive(&mut self, mut each: impl FnMut(ArrivedMessage)) {
        self.exhausted = false;
        // Without descriptors for all that wait, one after the other.
        while self.accept() && self.take_messages(&mut each) {}
        self.take_messages(&mut each);
    }

    /// Accepts connections. Returns whether there may be more that no descriptor was left for.
    fn accept(&mut self) -> bool {
        let mut given_up = false;
        while self.waiting.len() < MAX_WAITING_CONNECTIONS {
            let connection = match accept_with(&self.socket, SocketFlags::CLOEXEC | SocketFlags::NONBLOCK) {
                Ok(connection) => connection,
                Err(Errno::MFILE | Errno::NFILE) if !given_up && self.spare.len() == SPARE => {
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
                // Taken as a number: rustix panics on its own when it is asked to show a pid of 0.
                let pid = peer.pid.as_raw_nonzero().get();
                self.waiting.push((connection, pid));
            }
        }
        false
    }

    /// Takes in the messages that are there. Returns whether there were any.
    fn take_messages(&mut self, each: &mut impl FnMut(ArrivedMessage)) -> bool {
        let waiting = self.waiting.len();
        // Only while messages are taken: others open files, too.
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
            // The kernel could not give it to us: what came with it is lost, and counted.
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

/// From a status as `waitpid` gives it.
fn exit_of(status: i32) -> Exit {
    match status & 0x7f {
        0 => Exit::Code(status >> 8 & 0xff),
        signal => Exit::Signal(signal),
    }
}

/// Maps a ring if it can be neither too large nor shrink under our feet.
fn map(file: &OwnedFd) -> Option<RingConsumer> {
    let sealed = SealFlags::SHRINK | SealFlags::GROW;
    if !fcntl_get_seals(file).ok()?.contains(sealed) {
        return None;
    }
    let bytes = usize::try_from(fstat(file).ok()?.st_size).ok()?;
    if !(HEADER_BYTES..=HEADER_BYTES + IDENTITY_LIMIT + RING_MAX).contains(&bytes) || !bytes.is_multiple_of(8)
    {
        return None;
    }
    RingConsumer::new(RingMemory::map(file.as_fd(), bytes).ok()?)
}
