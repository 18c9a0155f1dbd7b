//! Decides whether rows of a profiler are missing, and records that in the run.

use super::profiler_harvest::{HarvestTarget, ProfilerOutcome};
use crate::log::warn;
use rpd_shard::ShardWriter;
use rpd_shard::file::{Owner, WriteError};
use rpd_shard::record::{ProcessExit, ProfilerLoss, ProfilerLossReason};
use std::collections::BTreeSet;
use std::io::{self, BufWriter, Write};

/// Returns the reason why a profiler without a file may have lost rows. `exit` is the exit of the command.
pub(super) fn reason_without_file(
    profiler: ProfilerOutcome,
    exit: Option<ProcessExit>,
) -> ProfilerLossReason {
    match (profiler, exit) {
        (ProfilerOutcome::Killed, _) => ProfilerLossReason::Killed,
        (ProfilerOutcome::Unseen | ProfilerOutcome::AsTheCommand, Some(ProcessExit::Code(0))) => {
            ProfilerLossReason::Silent
        }
        _ => ProfilerLossReason::NoFile,
    }
}

/// Returns the reason why files of a profiler may be missing or incomplete, if its end implies that.
pub(super) fn reason_with_files(profiler: ProfilerOutcome) -> Option<ProfilerLossReason> {
    match profiler {
        ProfilerOutcome::Killed => Some(ProfilerLossReason::Killed),
        ProfilerOutcome::Failed => Some(ProfilerLossReason::Failed),
        ProfilerOutcome::Unseen | ProfilerOutcome::AsTheCommand => None,
    }
}

/// Writes the losses to a shard of their own, since the shard of the rank is complete by then.
pub(super) fn record(losses: &BTreeSet<ProfilerLoss>, target: &HarvestTarget<'_>, owner: &Owner) {
    if losses.is_empty() {
        return;
    }
    let recorded = || -> Result<(), WriteError> {
        let (file, _) = target.place.create_beside("profilers", "rpdshard").map_err(io::Error::other)?;
        // A few hundred bytes, which `--max-size` must not drop.
        let owner = Owner { most_bytes: u64::MAX, ..owner.clone() };
        let mut shard = ShardWriter::of_owner(BufWriter::new(file), &owner)?;
        losses.iter().try_for_each(|loss| shard.profiler_loss(loss))?;
        shard.finish()?.flush()?;
        Ok(())
    };
    if let Err(error) = recorded() {
        warn(format_args!("warning: the loss of a profiler's rows is not recorded for the merge: {error}"));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_profiler_without_any_failure_may_have_had_nothing_to_record() {
        use ProfilerOutcome::{AsTheCommand, Failed, Killed, Unseen};
        let reason = |profiler, exit| reason_without_file(profiler, Some(exit));
        let success = ProcessExit::Code(0);
        for profiler in [Unseen, AsTheCommand] {
            assert_eq!(reason(profiler, success), ProfilerLossReason::Silent);
            assert_eq!(reason(profiler, ProcessExit::Code(7)), ProfilerLossReason::NoFile);
            assert_eq!(reason(profiler, ProcessExit::Signal(11)), ProfilerLossReason::NoFile);
        }
        assert_eq!(reason(Failed, success), ProfilerLossReason::NoFile);
        assert_eq!(reason(Killed, success), ProfilerLossReason::Killed);
        assert_eq!(reason_without_file(Unseen, None), ProfilerLossReason::NoFile);
        assert_eq!(reason_with_files(Failed), Some(ProfilerLossReason::Failed));
        assert_eq!((reason_with_files(Unseen), reason_with_files(AsTheCommand)), (None, None));
    }
}
