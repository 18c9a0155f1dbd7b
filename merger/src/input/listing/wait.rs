//! Waits for shards. On a shared file system, a file may become visible on another node only some seconds after it
//! was closed.

use crate::input::listing::find::{SHARD_ENDING, find};
use rpd_files::entry_stat;
use rpd_shard::Shard;
use std::collections::BTreeSet;
use std::path::PathBuf;
use std::thread::sleep;
use std::time::{Duration, Instant, SystemTime};

/// Interval of checks.
const POLL_INTERVAL: Duration = Duration::from_millis(500);

/// Part of the run that is still missing.
#[derive(Clone, PartialEq, Eq, Debug)]
enum Missing {
    /// Any shard or other input.
    All,
    /// The shards of this number of ranks.
    Ranks(usize),
    /// The ends of this number of shards.
    Ends(usize),
}

impl std::fmt::Display for Missing {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Missing::All => write!(f, "no shard is there"),
            Missing::Ranks(count) => write!(f, "{count} ranks have no shard"),
            Missing::Ends(count) => write!(f, "{count} shards have no end"),
        }
    }
}

/// Waits until the shards of all ranks of the job exist and are finished. Gives up after `most`, or at once if
/// nothing was written for that long. Returns what is missing in that case.
pub(crate) fn wait_for_shards(inputs: &[PathBuf], most: Duration) -> Option<String> {
    let (first, newest) = missing(inputs)?;
    if let Some(quiet) = newest.and_then(|newest| newest.elapsed().ok()).filter(|quiet| *quiet > most) {
        return Some(format!("nothing was written for {} s, and {first}", quiet.as_secs()));
    }
    let until = Instant::now() + most;
    loop {
        let (missing, _) = missing(inputs)?;
        let left = until.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Some(format!("waited for {} s, and {missing}", most.as_secs()));
        }
        sleep(POLL_INTERVAL.min(left));
    }
}

/// Returns what is missing, and when the newest shard was written.
fn missing(inputs: &[PathBuf]) -> Option<(Missing, Option<SystemTime>)> {
    let Ok(found) = find(inputs) else { return Some((Missing::All, None)) };
    let is_shard = |path: &PathBuf| path.extension().is_some_and(|ending| ending == SHARD_ENDING);
    let paths: Vec<PathBuf> = found.files.into_iter().map(|listed| listed.path).collect();
    let shards: Vec<&PathBuf> = paths.iter().filter(|path| is_shard(path)).collect();
    if shards.is_empty() {
        return paths.is_empty().then_some((Missing::All, None));
    }
    let (mut ranks, mut size, mut open) = (BTreeSet::new(), 0, 0);
    let mut newest = None;
    for path in shards {
        newest = newest.max(entry_stat(path).map(|found| found.modified).ok());
        // A shard that cannot be opened has no header yet.
        let Ok(shard) = Shard::open(path) else {
            open += 1;
            continue;
        };
        open += usize::from(!shard.complete());
        // With `--ranks`, some ranks never write a shard.
        if shard.selection.is_none() {
            size = size.max(shard.identity.size.unwrap_or(0) as usize);
        }
        ranks.extend(shard.identity.rank);
    }
    // If the user names single shards, the other ranks' shards are not expected.
    let wants_all = inputs.iter().any(|input| !input.is_file());
    let without = if wants_all { size.saturating_sub(ranks.len()) } else { 0 };
    let missing = match (without, open) {
        (0, 0) => return None,
        (0, open) => Missing::Ends(open),
        (without, _) => Missing::Ranks(without),
    };
    Some((missing, newest))
}
