//! A command that cannot be recorded: prints the reason once, and runs the command or does not.

use super::control::StartMessage;
use crate::child::{self, CommandExitStatus, preload, signals};
use crate::command_line::CollectOptions;
use crate::log::{TOO_MANY_FILES, warn};
use crate::run_folder::RankFolder;
use crate::shard_output::{PlaceError, ShardCreation};
use rpd_shard::rank_set::RankSet;
use std::fs::File;
use std::io;
use std::path::Path;
use std::time::{Duration, Instant};

/// Minimum limit of a memory cgroup, to have room for two more processes.
pub(crate) const MIN_CGROUP_BYTES: u64 = 32 << 20;
/// Exit status of a call that does not start its command, as for `env` and `timeout`.
const NOT_STARTED: i32 = 125;
/// Maximum delay of the command by a file system that does not answer.
pub(super) const MAX_CREATE_TIME: Duration = Duration::from_secs(1);
/// The same with `--require`, where the answer decides whether the command starts.
const MAX_REQUIRED_CREATE_TIME: Duration = Duration::from_secs(30);
/// If the first rank fails as well, its launcher has ended the job by then: mpirun of Open MPI takes two
/// seconds.
const TIME_FOR_THE_FIRST_RANK: Duration = Duration::from_secs(8);
/// Interval at which the end of the job is checked.
const LOOK_EVERY: Duration = Duration::from_millis(20);

/// Why a command cannot be recorded.
#[derive(Debug, thiserror::Error)]
pub(crate) enum PrepareError {
    /// The library is missing.
    #[error("{0}")]
    Preload(#[from] preload::PreloadError),
    /// The job would lack the memory for recording.
    #[error("the job's memory limit (cgroup) is {0} KiB, recording needs {MIN_CGROUP_BYTES} KiB; raise the memory limit of the job", MIN_CGROUP_BYTES = MIN_CGROUP_BYTES >> 10)]
    Memory(u64),
    /// The socket, a thread, a process or a descriptor is not available.
    #[error("failed to {what}: {source}{}", crate::log::next_step(source))]
    Resource {
        /// The attempted action.
        what: &'static str,
        /// The error of the system.
        source: io::Error,
    },
    /// The output folder cannot be written.
    #[error("{source}")]
    Place {
        /// The error of the file system.
        source: PlaceError,
        /// This rank prints it for all ranks.
        prints_for_all: bool,
    },
    /// No library can be preloaded into the command.
    #[error("{what}; {next}")]
    Unseen {
        /// The program and the reason.
        what: String,
        /// The next step for the user.
        next: &'static str,
        /// This rank prints it for all ranks.
        prints_for_all: bool,
    },
    /// A signal ended the job while profilers were queried.
    #[error("signal {0} ended the job before it began")]
    Cancelled(i32),
}

/// Waits for the shard of a rank, and adds it to the configuration of the collector. Returns no file if the
/// file system is too slow, in which case the collector creates the shard later, or if it refuses the shard,
/// which one rank prints.
///
/// # Errors
/// With `require`, if there is no shard.
pub(super) fn wait_for_shard(
    creation: Option<ShardCreation>,
    start: &mut StartMessage,
    require: bool,
) -> Result<Option<File>, PrepareError> {
    if !start.is_recorded() {
        return Ok(None);
    }
    let limit = if require { MAX_REQUIRED_CREATE_TIME } else { MAX_CREATE_TIME };
    let source = match creation.map_or(Ok(None), |creation| creation.wait(limit)) {
        Ok(Some((file, early))) => {
            start.early = Some(early);
            return Ok(Some(file));
        }
        Ok(None) if !require => return Ok(None),
        Ok(None) => {
            let path = RankFolder::new(Path::new(&start.root), &start.run, start.share_group).path();
            PlaceError::Folder { path, source: io::ErrorKind::TimedOut.into() }
        }
        Err(PlaceError::File { source, .. }) if source.raw_os_error() == Some(TOO_MANY_FILES) => {
            return Err(PrepareError::Resource { what: "create the shard", source });
        }
        Err(error) => error,
    };
    let prints_for_all = is_first(start.run.rank, &start.ranks);
    if require {
        return Err(PrepareError::Place { source, prints_for_all });
    }
    if prints_for_all {
        warn(format_args!("warning: {source}; nothing of this run is recorded"));
    }
    start.refused = true;
    Ok(None)
}

/// Whether this rank prints messages for all recorded ranks: the lowest of them does.
pub(super) fn is_first(rank: Option<u32>, ranks: &RankSet) -> bool {
    let chosen = ranks.selection().and_then(|chosen| chosen.ranks.first());
    rank.is_none_or(|rank| rank == chosen.map_or(0, |(first, _)| *first))
}

/// Runs the command without recording it, or ends the call if `--require` is set.
pub(crate) fn run_unrecorded(options: &CollectOptions, error: &PrepareError) -> ! {
    if let PrepareError::Cancelled(signal) = error {
        CommandExitStatus::Signal(*signal).leave();
    }
    if options.require {
        if let PrepareError::Place { prints_for_all: false, .. }
        | PrepareError::Unseen { prints_for_all: false, .. } = error
        {
            wait_for_first_rank();
        }
        warn(format_args!("error: {error}; the command is not started, as --require demands"));
        std::process::exit(NOT_STARTED);
    }
    warn(format_args!("warning: {error}; the command runs untraced"));
    std::process::exit(child::replace(&options.command));
}

/// Gives the first rank the time to print for all ranks. Ends silently after a signal that ends the job.
fn wait_for_first_rank() {
    let until = Instant::now() + TIME_FOR_THE_FIRST_RANK;
    while Instant::now() < until {
        if signals::job_is_ending() {
            std::process::exit(NOT_STARTED);
        }
        std::thread::sleep(LOOK_EVERY);
    }
}
