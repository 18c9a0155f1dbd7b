//! Messages between the two processes of rpd-collect: packets over a pair of sockets.
//!
//! Both processes run the same executable, so the messages have no version. The kernel keeps packets whole.
//! No process blocks if the other one does not read.

use rpd_shard::record::{ClockDomain, ProcessExit, RunIdentity, wire};
use rustix::fd::{AsFd, BorrowedFd, OwnedFd};
use rustix::io::Errno;
use rustix::net::{
    AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags, SocketFlags, SocketType, recvmsg, sendmsg, socketpair,
};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use std::ffi::OsString;
use std::fs::File;
use std::io::{self, IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::time::Instant;

use crate::backend::{HarvestRequest, ProfilerOutcome};
use crate::clock_probe::ProbeChoice;
use crate::host::cpus::CpuList;
use crate::host::poll::wait_readable;
use crate::shard_output::{EarlyShard, ShardPlace};
use rpd_shard::rank_set::RankSet;

/// Maximum number of bytes of a message.
const PACKET_BYTES: usize = 64 << 10;

/// A message to the collector process.
#[derive(Debug, Serialize, Deserialize)]
pub(super) enum ToCollector {
    /// The configuration. The first message.
    Start(Box<StartMessage>),
    /// A profiler was started that is to start the command.
    Starting {
        /// Process id of the profiler.
        pid: i32,
    },
    /// The command runs.
    Started {
        /// Process id of the command.
        pid: i32,
        /// Process id of a profiler that stays above it.
        profiler: Option<i32>,
        /// Why the command runs without the profiler that was to start it.
        without: Option<String>,
    },
    /// The command has ended.
    Finish {
        /// Process id of the command.
        pid: i32,
        /// How it ended.
        exit: ProcessExit,
        /// How the profiler above it ended.
        profiler: ProfilerOutcome,
    },
    /// The command cannot be started.
    Nothing,
    /// An early signal of the batch system arrived.
    Warned {
        /// Number of the signal.
        signal: i32,
    },
    /// A line for the log.
    Note {
        /// One line.
        text: String,
    },
}

/// Configuration of the collector process.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct StartMessage {
    /// Run and rank.
    pub(super) run: RunIdentity,
    /// Output root, absolute.
    pub(super) root: OsString,
    /// Variable that the user named for the rank.
    pub(super) rank_env: Option<String>,
    /// Ranks to record.
    pub(super) ranks: RankSet,
    /// Maximum number of bytes of the shard.
    pub(super) max_bytes: u64,
    /// The group may read the files.
    pub(super) share_group: bool,
    /// Ask the site to merge the run.
    pub(super) ask_merge: bool,
    /// Names of empty files in the folder of the run, by which scripts find it.
    pub(super) marks: Vec<String>,
    /// Words of [`rpd_ring::message::TRACED`] that the library records.
    pub(super) library: Vec<String>,
    /// The library, if it is preloaded.
    pub(super) preloaded: Option<OsString>,
    /// The CPUs that the collector runs on; `None` for those of the command.
    pub(super) cpus: Option<CpuList>,
    /// Note about the CPUs for the end of the log. At the start it would look like a message about the
    /// command.
    pub(super) cpu_note: Option<String>,
    /// Record the metrics of the node.
    pub(super) system: bool,
    /// Sample Python stacks.
    pub(super) python: bool,
    /// Measure the clocks of nodes against each other, if there are several.
    pub(super) probes: Option<ProbeChoice>,
    /// Lines for the log.
    pub(super) warnings: Vec<String>,
    /// A warning named the command, because the library cannot be preloaded into it.
    pub(super) is_command_unseen: bool,
    /// Files to import from profilers.
    pub(super) harvest: Option<HarvestRequest>,
    /// Content to keep of a command without events.
    pub(super) wanted: WantedContent,
    /// The command line, with secrets masked.
    pub(super) command: String,
    /// The shard, if it was created before the command. The message carries the open file.
    pub(super) early: Option<EarlyShard>,
    /// The file system refused the shard, and a rank printed that.
    pub(super) refused: bool,
}

impl StartMessage {
    /// Returns the location of the shard of this rank.
    pub(super) fn place(&self, domain: ClockDomain) -> ShardPlace {
        ShardPlace {
            root: self.root.clone().into(),
            run: self.run.clone(),
            ranks: self.ranks.clone(),
            domain,
            max_bytes: self.max_bytes,
            share_group: self.share_group,
            always: self.wanted != WantedContent::Events && self.is_recorded(),
        }
    }

    /// Whether this rank is selected.
    pub(super) fn is_recorded(&self) -> bool {
        self.ranks.contains(self.run.rank)
    }
}

/// Content to keep of a command without events.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub(super) enum WantedContent {
    /// No shard if no event was recorded, except for a rank of a launcher.
    Events,
    /// The clocks, which files of profilers need.
    Clocks,
    /// The clocks and the identity.
    Identity,
}

/// A message to the parent process.
#[derive(Debug, Serialize, Deserialize)]
pub(super) enum ToParent {
    /// A line that is in no log.
    Say {
        /// One line.
        text: String,
    },
    /// A warning in the logs of all ranks, which one rank prints.
    SayOnce {
        /// One line.
        text: String,
    },
    /// The harvest needs more time.
    Busy,
    /// The shard is complete, or there is none.
    Done {
        /// Number of warnings in the log.
        warnings: u64,
        /// Path of the log.
        log: OsString,
    },
}

/// One end of the channel.
#[derive(Debug)]
pub(super) struct ControlChannel(OwnedFd);

/// Result of a receive.
pub(super) enum ReceivedPacket<T> {
    /// A message.
    Message(T),
    /// The other process has ended, or sent an invalid message.
    Closed,
    /// No message arrived in time.
    Nothing,
}

impl ControlChannel {
    /// Makes both ends.
    pub(super) fn pair() -> io::Result<(ControlChannel, OwnedFd)> {
        let (ours, theirs) =
            socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None)?;
        Ok((ControlChannel(ours), theirs))
    }

    /// Uses the end that this process was given.
    pub(super) fn from_descriptor(descriptor: OwnedFd) -> ControlChannel {
        ControlChannel(descriptor)
    }

    /// Sends a message. Does not block.
    pub(super) fn send<T: Serialize>(&self, message: &T) -> io::Result<()> {
        self.send_with(message, None)
    }

    /// Sends a message and a copy of an open file. Does not block.
    pub(super) fn send_with<T: Serialize>(&self, message: &T, file: Option<&File>) -> io::Result<()> {
        let bytes = wire::encode(message);
        if bytes.len() > PACKET_BYTES {
            return Err(io::ErrorKind::FileTooLarge.into());
        }
        let files: Vec<BorrowedFd<'_>> = file.into_iter().map(File::as_fd).collect();
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
        let mut rights = SendAncillaryBuffer::new(&mut space);
        if !files.is_empty() {
            rights.push(SendAncillaryMessage::ScmRights(&files));
        }
        let flags = SendFlags::NOSIGNAL | SendFlags::DONTWAIT;
        sendmsg(&self.0, &[IoSlice::new(&bytes)], &mut rights, flags)?;
        Ok(())
    }

    /// Waits for a message, until a time if one is given.
    pub(super) fn receive<T: DeserializeOwned>(&self, until: Option<Instant>) -> ReceivedPacket<T> {
        self.receive_with(until).0
    }

    /// Waits for a message and the file that it carries.
    pub(super) fn receive_with<T: DeserializeOwned>(
        &self,
        until: Option<Instant>,
    ) -> (ReceivedPacket<T>, Option<File>) {
        loop {
            let left = until.map(|until| until.saturating_duration_since(Instant::now()));
            match wait_readable(&self.0, left) {
                Ok(false) => return (ReceivedPacket::Nothing, None),
                Ok(true) => {}
                Err(Errno::INTR) => continue,
                Err(_) => return (ReceivedPacket::Closed, None),
            }
            let mut bytes = vec![0; PACKET_BYTES + 1];
            let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
            let mut rights = RecvAncillaryBuffer::new(&mut space);
            let flags = RecvFlags::CMSG_CLOEXEC | RecvFlags::DONTWAIT;
            let got = match recvmsg(&self.0, &mut [IoSliceMut::new(&mut bytes)], &mut rights, flags) {
                // The other end was closed before it had read everything. This error is reported once, before
                // its remaining messages.
                Err(Errno::AGAIN | Errno::INTR | Errno::CONNRESET) => continue,
                Err(_) => 0,
                Ok(message) => message.bytes,
            };
            let packet = bytes.get(..got).filter(|packet| (1..=PACKET_BYTES).contains(&packet.len()));
            let message = packet.and_then(|packet| wire::decode(packet).ok());
            return (message.map_or(ReceivedPacket::Closed, ReceivedPacket::Message), last_file(&mut rights));
        }
    }
}

/// Returns the file of a message.
fn last_file(rights: &mut RecvAncillaryBuffer<'_>) -> Option<File> {
    let files = rights.drain().filter_map(|message| match message {
        RecvAncillaryMessage::ScmRights(mut files) => files.next(),
        _ => None,
    });
    files.last().map(File::from)
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::net::send;
    use std::time::Duration;

    fn pair() -> (ControlChannel, ControlChannel) {
        let (ours, theirs) = ControlChannel::pair().unwrap();
        (ours, ControlChannel::from_descriptor(theirs))
    }

    #[test]
    fn messages_arrive_whole_and_an_end_is_seen() {
        let (ours, theirs) = pair();
        ours.send(&ToCollector::Started { pid: 7, profiler: None, without: None }).unwrap();
        let profiler = ProfilerOutcome::default();
        ours.send(&ToCollector::Finish { pid: 7, exit: ProcessExit::Signal(9), profiler }).unwrap();
        drop(ours);
        let ReceivedPacket::Message(ToCollector::Started { pid: 7, .. }) = theirs.receive(None) else {
            panic!()
        };
        let ReceivedPacket::Message(ToCollector::Finish { exit, .. }) = theirs.receive(None) else {
            panic!()
        };
        assert_eq!(exit, ProcessExit::Signal(9));
        assert!(matches!(theirs.receive::<ToCollector>(None), ReceivedPacket::Closed));
    }

    #[test]
    fn a_file_comes_with_its_message() {
        use std::io::{Read, Seek, Write};
        let (ours, theirs) = pair();
        let mut file = tempfile::tempfile().unwrap();
        ours.send_with(&ToCollector::Nothing, Some(&file)).unwrap();
        ours.send(&ToCollector::Nothing).unwrap();
        file.write_all(b"header").unwrap();
        file.rewind().unwrap();
        let (ReceivedPacket::Message(ToCollector::Nothing), Some(mut same)) = theirs.receive_with(None)
        else {
            panic!()
        };
        let mut text = String::new();
        same.read_to_string(&mut text).unwrap();
        assert_eq!(text, "header");
        assert!(matches!(theirs.receive_with::<ToCollector>(None), (ReceivedPacket::Message(_), None)));
    }

    #[test]
    fn no_sender_waits_for_a_receiver_that_does_not_read() {
        let (ours, theirs) = pair();
        let text = "x".repeat(1000);
        let sent = (0..100_000).take_while(|_| ours.send(&ToParent::Say { text: text.clone() }).is_ok());
        assert!(sent.count() < 100_000);
        let soon = Instant::now() + Duration::from_millis(10);
        assert!(matches!(ours.receive::<ToCollector>(Some(soon)), ReceivedPacket::Nothing));
        assert!(ours.send(&ToParent::Say { text: "x".repeat(PACKET_BYTES) }).is_err());
        drop(theirs);
    }

    #[test]
    fn messages_before_an_end_arrive_at_an_end_that_did_not_wait() {
        let (ours, theirs) = pair();
        ours.send(&ToCollector::Warned { signal: 10 }).unwrap();
        theirs.send(&ToParent::Busy).unwrap();
        drop(theirs);
        assert!(matches!(ours.receive::<ToParent>(None), ReceivedPacket::Message(ToParent::Busy)));
        assert!(matches!(ours.receive::<ToParent>(None), ReceivedPacket::Closed));
    }

    #[test]
    fn nonsense_ends_the_talk() {
        let (ours, theirs) = pair();
        send(&ours.0, &[0xff; 99], SendFlags::empty()).unwrap();
        assert!(matches!(theirs.receive::<ToCollector>(None), ReceivedPacket::Closed));
    }
}
