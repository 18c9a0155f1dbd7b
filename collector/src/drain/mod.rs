//! Reads rings and produces rows. One thread receives new rings, drains all of them, pairs start records with end records,
//! and detects the end of processes. While it sleeps, other threads wait for producers that fill their rings,
//! and read those at once.

mod collector_command;
mod communicators;
mod listener;
mod names;
mod outbox;
mod pairing;
mod pause;
mod processes;
mod recorded_threads;
mod requests;
mod rings;
mod thread;
mod tick_clock;
mod wakeups;

pub(crate) use collector_command::CommandEnd;
pub(crate) use listener::RingListener;
pub(crate) use recorded_threads::RecordedThread;
pub use recorded_threads::RecordedThreads;

use crate::host::event_flag::EventFlag;
use crate::launcher::SourceDefaults;
use crate::shard_output::ShardOutput;
use collector_command::CollectorCommand;
use rings::RingDrain;
use std::io;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::mpsc::{SyncSender, sync_channel};
use thread::CollectingThread;

/// The collecting thread.
pub(crate) struct RingCollector {
    commands: SyncSender<CollectorCommand>,
    wake: EventFlag,
    records_read: Arc<AtomicU64>,
}

impl RingCollector {
    /// Starts the thread. It keeps the list of the threads that it records.
    pub(crate) fn start(
        listener: RingListener,
        defaults: SourceDefaults,
        threads: RecordedThreads,
        output: ShardOutput,
    ) -> io::Result<RingCollector> {
        let wake = EventFlag::new()?;
        let (commands, incoming) = sync_channel(2);
        let records_read = Arc::new(AtomicU64::new(0));
        let drain = RingDrain::new(defaults, threads, output, wake.clone(), Arc::clone(&records_read));
        let thread = CollectingThread { listener, commands: incoming, wake: wake.clone(), drain };
        std::thread::Builder::new().name("rpd-collect".to_owned()).spawn(move || thread.run())?;
        Ok(RingCollector { commands, wake, records_read })
    }

    /// Returns how many records it has read so far.
    pub(crate) fn records_read(&self) -> u64 {
        self.records_read.load(Relaxed)
    }

    /// Asks the thread to finish. The output reports when it has.
    pub(crate) fn finish(&self, finish: CommandEnd) {
        let _ = self.commands.send(CollectorCommand::Finish(finish));
        self.wake.set();
    }

    /// Asks the thread to write and sync all that was recorded so far, because a signal announces the end of
    /// the job.
    pub(crate) fn sync(&self, signal: i32) {
        // If the channel is full an earlier command is still pending.
        let _ = self.commands.try_send(CollectorCommand::Sync(signal));
        self.wake.set();
    }
}
