//! Detects whether the collector of an unfinished shard is still running.
//!
//! A collector reads its node's clocks every 5 s and writes its data every second. A shard with a last clock reading
//! older than a minute is therefore no longer written. If the reading is newer, either the shard is being written, or
//! its collector was killed within that minute. On the collector's node, the open files of its processes show which;
//! another node cannot decide. File locks are not used: shared file systems may lack them, or not show them on other
//! nodes.

use crate::input::plan::planned_input::PlannedInput;
use rpd_files::entry_stat;
use rpd_shard::Shard;
use serde::{Deserialize, Serialize};
use std::fs;
use std::io::ErrorKind;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::time::{SystemTime, UNIX_EPOCH};

/// Maximum age of the last clock reading in a shard that is being written, ns. The margin is large because it
/// compares wall clocks of two nodes, and because a shared file system may show a file late.
const MAX_READING_AGE: i64 = 60 * 1_000_000_000;
/// Maximum delay between recording a row and writing it to the file, ns.
const WRITING_LAG: i64 = 2 * 1_000_000_000;
/// Name of the collector's process.
const COLLECTOR: &str = "rpd-collector";

/// Inputs that are still being written.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct StillRunning {
    /// Ranks of these inputs, ascending; a process without a launcher has none.
    pub ranks: Vec<u32>,
    /// Number of these inputs.
    pub shards: usize,
    /// Wall time up to which all of them are complete, ns since 1970.
    pub complete_up_to_ns: i64,
}

impl StillRunning {
    /// Returns the inputs with collectors that are still running; `None` if there are none.
    pub fn among(inputs: &[PlannedInput]) -> Option<StillRunning> {
        let running = || inputs.iter().filter(|input| input.running_until.is_some());
        let complete_up_to_ns = running().filter_map(|input| input.running_until).min()?;
        let mut ranks: Vec<u32> = running().filter_map(|input| input.rank).collect();
        ranks.dedup();
        Some(StillRunning { ranks, shards: running().count(), complete_up_to_ns })
    }
}

/// Returns the wall time up to which a shard that is being written is complete, ns since 1970; `None` for any other
/// shard. After the job's end (`is_job_over`), only a collector that has the file open on this node counts.
pub(super) fn running_until(shard: &Shard, is_job_over: bool) -> Option<i64> {
    if shard.complete() {
        return None;
    }
    let last = shard.clocks.iter().max_by_key(|set| set.realtime)?;
    let now = SystemTime::now().duration_since(UNIX_EPOCH).ok()?;
    let age = i64::try_from(now.as_nanos()).ok()?.checked_sub(last.realtime)?;
    // The clock of the other node may be ahead.
    if age.checked_abs()? > MAX_READING_AGE {
        return None;
    }
    let own_boot = fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap_or_default();
    let is_being_written = match last.domain.boot_id == own_boot.trim() {
        true => has_collector(shard.path(), !is_job_over),
        false => !is_job_over,
    };
    if !is_being_written {
        return None;
    }
    last.realtime.checked_sub(WRITING_LAG)
}

/// Returns whether a collector on this node has the file open. The open files of other users' collectors are not
/// readable; `is_unreadable_counted` tells whether such a collector counts.
fn has_collector(path: &Path, is_unreadable_counted: bool) -> bool {
    let Ok(shard) = entry_stat(path) else { return false };
    let processes = fs::read_dir("/proc").into_iter().flatten().flatten();
    let name = |place: &Path| fs::read_to_string(place.join("comm")).unwrap_or_default();
    let mut collectors =
        processes.map(|entry| entry.path()).filter(|place| name(place).trim_end() == COLLECTOR);
    collectors.any(|place| match fs::read_dir(place.join("fd")) {
        Ok(files) => {
            let mut open = files.flatten().filter_map(|file| fs::metadata(file.path()).ok());
            open.any(|file| (file.dev(), file.ino()) == shard.identity)
        }
        Err(error) => is_unreadable_counted && error.kind() == ErrorKind::PermissionDenied,
    })
}
