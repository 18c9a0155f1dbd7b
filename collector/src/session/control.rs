//! What the two processes of rpd-collect tell each other: packets over a pair of sockets.
//!
//! Both are the same executable, so the messages have no version. The kernel keeps packets whole;
//! nobody waits when the other side does not read.

use rpd_shard::record::{ClockDomain, Exit, RunIdentity, wire};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
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
use std::time::{Duration, Instant};

use crate::backend::{HarvestRequest, ProfilerEnding};
use crate::clock_probe::ProbeChoice;
use crate::host::cpus::CpuList;
use crate::shard_output::{EarlyShard, ShardPlace};
use rpd_shard::rank_set::RankSet;

/// Most bytes of a message.
const PACKET_BYTES: usize = 64 << 10;

/// What the collector process hears.
#[derive(Debug, Serialize, Deserialize)]
pub(super) enum ToCollector {
    /// What to do. The first message.
    Start(Box<StartMessage>),
    /// A profiler runs that is to start the command.
    Starting {
        /// Its process id.
        pid: i32,
    },
    /// The command runs.
    Started {
        /// Its process id.
        pid: i32,
        /// That of a profiler that stays above it.
        profiler: Option<i32>,
        /// Why it runs without the profiler that was to start it.
        without: Option<String>,
    },
    /// The command has ended.
    Finish {
        /// Its process id.
        pid: i32,
        /// How it ended.
        exit: Exit,
        /// How the profiler above it ended.
        profiler: ProfilerEnding,
    },
    /// The command cannot be started.
    Nothing,
    /// A signal came that batch systems send some time before the end.
    Warned {
        /// Its number.
        signal: i32,
    },
    /// Something for the log.
    Note {
        /// One line.
        text: String,
    },
}

/// What the collector process is to do.
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
    /// Most bytes of the shard.
    pub(super) max_bytes: u64,
    /// The group may read the files.
    pub(super) share_group: bool,
    /// The site is asked to merge the run.
    pub(super) ask_merge: bool,
    /// Names of empty files in the folder of the run, by which scripts find it.
    pub(super) marks: Vec<String>,
    /// What the library records: words of [`rpd_ring::message::TRACED`].
    pub(super) library: Vec<String>,
    /// The library, if it is preloaded.
    pub(super) preloaded: Option<OsString>,
    /// The CPUs that the collector runs on; none: those of the command.
    pub(super) cpus: Option<CpuList>,
    /// What is to be noted of that at the end: a note at the start would be taken for a word about the command.
    pub(super) cpu_note: Option<String>,
    /// The metrics of the node are recorded.
    pub(super) system: bool,
    /// The clocks of nodes are measured against each other, if there are several.
    pub(super) probes: Option<ProbeChoice>,
    /// For the log.
    pub(super) warnings: Vec<String>,
    /// A warning names the command: the library cannot be preloaded into it.
    pub(super) is_command_unseen: bool,
    /// What profilers leave behind.
    pub(super) harvest: Option<HarvestRequest>,
    /// What is kept of a command that does nothing that is recorded.
    pub(super) wanted: WantedContent,
    /// The command line, secrets masked.
    pub(super) command: String,
    /// The shard, if it was created before the command. The open file comes with this message.
    pub(super) early: Option<EarlyShard>,
    /// The file system has refused the shard, and that was said.
    pub(super) refused: bool,
}

impl StartMessage {
    /// Where the shard of this rank goes.
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

    /// Whether this rank is one of those to record.
    pub(super) fn is_recorded(&self) -> bool {
        self.ranks.contains(self.run.rank)
    }
}

/// What is kept of a command that does nothing that is recorded.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub(super) enum WantedContent {
    /// Nothing, unless it has a rank.
    Events,
    /// The clocks, which files of profilers need.
    Clocks,
    /// The clocks and who it is.
    Identity,
}

/// What the collector process says.
#[derive(Debug, Serialize, Deserialize)]
pub(super) enum ToLauncher {
    /// Something that is in no log.
    Say {
        /// One line.
        text: String,
    },
    /// A warning in the logs of all ranks: one of them prints it.
    SayOnce {
        /// One line.
        text: String,
    },
    /// It takes longer: files of profilers are read.
    Busy,
    /// The shard is complete, or there is none.
    Done {
        /// Warnings in the log, ...
        warnings: u64,
        /// ... and where that is.
        log: OsString,
    },
}

/// One end.
#[derive(Debug)]
pub(super) struct ControlChannel(OwnedFd);

/// What was there to receive.
pub(super) enum ReceivedPacket<T> {
    /// A message.
    Message(T),
    /// The other process is gone, or talks nonsense.
    Closed,
    /// Nothing in time.
    Nothing,
}

impl ControlChannel {
    /// Two ends.
    pub(super) fn pair() -> io::Result<(ControlChannel, OwnedFd)> {
        let (ours, theirs) =
            socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None)?;
        Ok((ControlChannel(ours), theirs))
    }

    /// The end that this process was given.
    pub(super) fn from_descriptor(descriptor: OwnedFd) -> ControlChannel {
        ControlChannel(descriptor)
    }

    /// Sends a message, or gives up at once.
    pub(super) fn send<T: Serialize>(&self, message: &T) -> io::Result<()> {
        self.send_with(message, None)
    }

    /// Sends a message and a copy of an open file, or gives up at once.
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

    /// Waits for a message, if a moment is given until then.
    pub(super) fn receive<T: DeserializeOwned>(&self, until: Option<Instant>) -> ReceivedPacket<T> {
        self.receive_with(until).0
    }

    /// Waits for a message, and for the file that came with it.
    pub(super) fn receive_with<T: DeserializeOwned>(
        &self,
        until: Option<Instant>,
    ) -> (ReceivedPacket<T>, Option<File>) {
        loop {
            let left = until.map(|until| until.saturating_duration_since(Instant::now()));
            match self.wait(left) {
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
                // The other end was closed before it had read all that we sent: said once, in front of what it sent.
                Err(Errno::AGAIN | Errno::INTR | Errno::CONNRESET) => continue,
                Err(_) => 0,
                Ok(message) => message.bytes,
            };
            let packet = bytes.get(..got).filter(|packet| (1..=PACKET_BYTES).contains(&packet.len()));
            let message = packet.and_then(|packet| wire::decode(packet).ok());
            return (message.map_or(ReceivedPacket::Closed, ReceivedPacket::Message), last_file(&mut rights));
        }
    }

    /// Whether there is something to receive, an end included.
    fn wait(&self, left: Option<Duration>) -> rustix::io::Result<bool> {
        let timeout = left
            .map(|left| Timespec { tv_sec: left.as_secs() as i64, tv_nsec: i64::from(left.subsec_nanos()) });
        let mut descriptors = [PollFd::new(&self.0, PollFlags::IN)];
        Ok(poll(&mut descriptors, timeout.as_ref())? > 0)
    }
}

/// The file that came with a message.
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

    fn pair() -> (ControlChannel, ControlChannel) {
        let (ours, theirs) = ControlChannel::pair().unwrap();
        (ours, ControlChannel::from_descriptor(theirs))
    }

    #[test]
    fn messages_arrive_whole_and_an_end_is_seen() {
        let (ours, theirs) = pair();
        ours.send(&ToCollector::Started { pid: 7, profiler: None, without: None }).unwrap();
        let profiler = ProfilerEnding::default();
        ours.send(&ToCollector::Finish { pid: 7, exit: Exit::Signal(9), profiler }).unwrap();
        drop(ours);
        let ReceivedPacket::Message(ToCollector::Started { pid: 7, .. }) = theirs.receive(None) else {
            panic!()
        };
        let ReceivedPacket::Message(ToCollector::Finish { exit, .. }) = theirs.receive(None) else {
            panic!()
        };
        assert_eq!(exit, Exit::Signal(9));
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
    fn nobody_waits_for_one_who_does_not_read() {
        let (ours, theirs) = pair();
        let text = "x".repeat(1000);
        let sent = (0..100_000).take_while(|_| ours.send(&ToLauncher::Say { text: text.clone() }).is_ok());
        assert!(sent.count() < 100_000);
        let soon = Instant::now() + Duration::from_millis(10);
        assert!(matches!(ours.receive::<ToCollector>(Some(soon)), ReceivedPacket::Nothing));
        assert!(ours.send(&ToLauncher::Say { text: "x".repeat(PACKET_BYTES) }).is_err());
        drop(theirs);
    }

    #[test]
    fn what_was_said_before_an_end_is_heard_also_if_the_other_end_did_not_listen() {
        let (ours, theirs) = pair();
        ours.send(&ToCollector::Warned { signal: 10 }).unwrap();
        theirs.send(&ToLauncher::Busy).unwrap();
        drop(theirs);
        assert!(matches!(ours.receive::<ToLauncher>(None), ReceivedPacket::Message(ToLauncher::Busy)));
        assert!(matches!(ours.receive::<ToLauncher>(None), ReceivedPacket::Closed));
    }

    #[test]
    fn nonsense_ends_the_talk() {
        let (ours, theirs) = pair();
        send(&ours.0, &[0xff; 99], SendFlags::empty()).unwrap();
        assert!(matches!(theirs.receive::<ToCollector>(None), ReceivedPacket::Closed));
    }
}
