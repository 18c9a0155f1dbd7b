//! Rings in, rows out: one thread that takes in new rings, drains all of them, pairs beginnings
//! with ends, and notices the end of processes. While it sleeps, others wait for producers that fill their
//! rings, and read them at once.

mod communicators;
mod listener;
mod names;
mod outbox;
mod pairing;
mod pause;
mod processes;
mod requests;
mod rings;
mod thread;
mod wakeups;

pub(crate) use listener::RingListener;

use crate::launcher::SourceDefaults;
use crate::shard_output::ShardOutput;
use rings::RingDrain;
use rpd_shard::record::Exit;
use rustix::event::{EventfdFlags, eventfd};
use rustix::fd::OwnedFd;
use std::io;
use std::sync::Arc;
use std::sync::mpsc::{SyncSender, sync_channel};
use thread::CollectingThread;

/// The command has ended: drain what is left and complete the shard.
#[derive(Clone, Copy, Debug)]
pub(crate) struct CommandEnd {
    /// Its process id.
    pub pid: i32,
    /// How it ended.
    pub exit: Exit,
}

/// What the collecting thread is told.
#[derive(Clone, Copy, Debug)]
enum CollectorCommand {
    /// Has all that was recorded so far written and kept by the file system, since this signal warns of an end.
    Keep(i32),
    Finish(CommandEnd),
}

/// The collecting thread.
pub(crate) struct RingCollector {
    commands: SyncSender<CollectorCommand>,
    wake: Arc<OwnedFd>,
}

impl RingCollector {
    /// Starts the thread.
    pub(crate) fn start(
        listener: RingListener,
        defaults: SourceDefaults,
        output: ShardOutput,
    ) -> io::Result<RingCollector> {
        let wake = Arc::new(eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?);
        let (commands, incoming) = sync_channel(2);
        let drain = RingDrain::new(defaults, output, Arc::clone(&wake));
        let thread = CollectingThread { listener, commands: incoming, wake: Arc::clone(&wake), drain };
        std::thread::Builder::new().name("rpd-collect".to_owned()).spawn(move || thread.run())?;
        Ok(RingCollector { commands, wake })
    }

    /// Asks the thread to finish. The output says when that is done.
    pub(crate) fn finish(&self, finish: CommandEnd) {
        let _ = self.commands.send(CollectorCommand::Finish(finish));
        let _ = rustix::io::write(&*self.wake, &1u64.to_ne_bytes());
    }

    /// Has all that was recorded so far written and kept by the file system: the end may come without another word.
    pub(crate) fn keep(&self, signal: i32) {
        // Where there is no room, one that comes later is on its way.
        let _ = self.commands.try_send(CollectorCommand::Keep(signal));
        let _ = rustix::io::write(&*self.wake, &1u64.to_ne_bytes());
    }
}
