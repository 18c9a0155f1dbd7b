//! Commands to the collecting thread.

use rpd_shard::record::ProcessExit;

/// Message that the command has ended: drain the rest and complete the shard.
#[derive(Clone, Copy, Debug)]
pub(crate) struct CommandEnd {
    /// Process id of the command.
    pub pid: i32,
    /// How it ended.
    pub exit: ProcessExit,
}

/// A command to the collecting thread.
#[derive(Clone, Copy, Debug)]
pub(super) enum CollectorCommand {
    /// Write and sync all that was recorded so far, because this signal announces the end of the job.
    Sync(i32),
    Finish(CommandEnd),
}
