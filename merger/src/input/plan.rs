//! Phase 1: which shards are merged, in which order, by whom.

use super::find::{Found, SHARD_ENDING, find};
use super::ranks::Ranks;
use crate::cli::MergeArgs;
use crate::failure::Failure;
use rayon::prelude::*;
use rpd_shard::record::{SYSTEM_SOURCE, Selection};
use rpd_shard::{OpenError, Shard};
use serde::{Deserialize, Serialize};
use std::cmp::Reverse;
use std::fs::{self, File};
use std::io::{ErrorKind, Read};
use std::path::{Path, PathBuf};

/// What rank 0 found, told to all.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Plan {
    /// The run that all shards belong to.
    pub run_id: String,
    /// In merge order.
    pub shards: Vec<PlannedShard>,
    /// Where the database goes.
    pub output: PathBuf,
    /// The job's ranks.
    pub ranks: Ranks,
    /// Ranks whose processes called nothing that is recorded.
    pub silent_ranks: Vec<u32>,
    /// Ranks of which two collectors wrote a shard: two jobs under one run id.
    pub repeated_ranks: Vec<u32>,
    /// Shards that are left out, with the reason.
    pub unreadable: Vec<(PathBuf, String)>,
}

/// One shard of the plan.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct PlannedShard {
    /// Where it is.
    pub path: PathBuf,
    /// Lowest rank in it.
    pub rank: Option<u32>,
    /// Its length.
    pub bytes: u64,
    /// Whether its collector finished it.
    pub complete: bool,
}

impl Plan {
    /// Ranks whose collector did not have its last word.
    pub fn unfinished_ranks(&self) -> Vec<Option<u32>> {
        self.shards.iter().filter(|s| !s.complete).map(|s| s.rank).collect()
    }
}

/// What rank 0 keeps of a shard that it has looked at: not the open file, there may be thousands.
struct Candidate {
    path: PathBuf,
    run_id: String,
    bytes: u64,
    complete: bool,
    order: Order,
    ranks: Vec<u32>,
    size: Option<u32>,
    /// Rank of the collector.
    collector: Option<u32>,
    selection: Option<Selection>,
}

/// Merge order of shards. It does not depend on their names, but for shards without any process.
#[derive(PartialEq, Eq, PartialOrd, Ord, Clone)]
struct Order {
    rank: u32,
    /// Each process: restart, worker, when first seen, boot, pid, start.
    processes: Vec<(u32, bool, i64, String, i32, u64)>,
    path: Option<PathBuf>,
}

/// Lists the inputs, opens each, checks that they belong together.
pub fn plan(args: &MergeArgs) -> Result<Plan, Failure> {
    let found = find(&args.inputs)?;
    let output = args.output.clone().unwrap_or_else(|| found.home.join("trace.db"));
    let output = check_output(&output, args)?;
    let looked_at: Vec<_> = found
        .shards
        .par_iter()
        .map(|(path, named)| (path, named, Shard::open(path).map(candidate)))
        .collect();

    let mut shards = Vec::new();
    let mut unreadable = Vec::new();
    for (path, named, shard) in looked_at {
        match shard {
            Ok(shard) => shards.push(shard),
            // A file that was named is meant; one that lies in the run's folder may be half-written.
            Err(error) if *named || !is_of_this_file(&error) => return Err(error.into()),
            Err(error) => unreadable.push((path.clone(), error.to_string())),
        }
    }
    let Some(first) = shards.first() else {
        return Err(nothing_readable(&found, &unreadable));
    };
    let run_id = first.run_id.clone();
    if let Some(other) = shards.iter().find(|s| s.run_id != run_id) {
        return Err(Failure::Input(format!(
            "{} belongs to run {}, {} to run {run_id}: merge one run at a time",
            other.path.display(),
            other.run_id,
            first.path.display(),
        )));
    }
    let seen = shards.iter().flat_map(|s| s.ranks.iter().copied()).collect();
    let size = shards.iter().filter_map(|s| s.size).max().unwrap_or(0);
    let ranks = Ranks::new(seen, size, shards.iter().map(|s| s.selection.as_ref()));
    // Of copies the whole one is kept, of cut ones the longest.
    shards.sort_by(|a, b| {
        let key = |s: &'_ Candidate| (!s.complete, Reverse(s.bytes));
        a.order.cmp(&b.order).then(key(a).cmp(&key(b))).then(a.path.cmp(&b.path))
    });
    shards.dedup_by(|copy, kept| {
        let same = copy.order == kept.order;
        if same {
            let reason = format!("it holds the same processes as {}", kept.path.display());
            unreadable.push((copy.path.clone(), reason));
        }
        same
    });
    let repeated_ranks = repeated_ranks(&shards);
    let is_silent = |s: &&Candidate| s.order.processes.is_empty();
    let silent_ranks = shards.iter().filter(is_silent).filter_map(|s| s.collector).collect();
    let shards = shards
        .into_iter()
        .map(|s| PlannedShard {
            path: s.path,
            rank: s.ranks.first().copied(),
            bytes: s.bytes,
            complete: s.complete,
        })
        .collect();
    Ok(Plan { run_id, shards, output, ranks, silent_ranks, repeated_ranks, unreadable })
}

fn candidate(shard: Shard) -> Candidate {
    let mut ranks: Vec<u32> =
        shard.processes.values().filter_map(|p| p.rank).chain(shard.identity.rank).collect();
    ranks.sort_unstable();
    let mut processes: Vec<_> = shard
        .processes
        .values()
        // The counters of a node are not what a rank has done.
        .filter(|p| p.source != SYSTEM_SOURCE)
        .map(|p| (p.restart, p.worker, p.first_seen, p.domain.boot_id.clone(), p.pid, p.start_ticks))
        .collect();
    processes.sort();
    let path = processes.is_empty().then(|| shard.path().to_owned());
    Candidate {
        path: shard.path().to_owned(),
        run_id: shard.identity.run_id.clone(),
        bytes: shard.bytes(),
        complete: shard.complete(),
        // Shards without any rank come last.
        order: Order { rank: ranks.first().copied().unwrap_or(u32::MAX), processes, path },
        ranks,
        collector: shard.identity.rank,
        selection: shard.selection.clone(),
        // Sizes of more than a million ranks are damage.
        size: shard
            .processes
            .values()
            .filter_map(|p| p.size)
            .chain(shard.identity.size)
            .max()
            .map(|s| s.min(1 << 20)),
    }
}

/// Whether the others can be merged without this one. A full table of open files, or an I/O error of
/// the file system, would hit any of them.
fn is_of_this_file(error: &OpenError) -> bool {
    match error {
        OpenError::NotAShard { .. } | OpenError::NoIdentity { .. } => true,
        OpenError::NewerVersion { .. } => false,
        OpenError::Io { source, .. } => matches!(
            source.kind(),
            ErrorKind::NotFound | ErrorKind::PermissionDenied | ErrorKind::InvalidInput
        ),
    }
}

/// Resolves the output to the file that it names, and refuses what is better not overwritten.
fn check_output(output: &Path, args: &MergeArgs) -> Result<PathBuf, Failure> {
    let refuse = |what: &str| Err(Failure::Output(format!("{} {what}", output.display())));
    if output.extension().is_some_and(|e| e == SHARD_ENDING) {
        return refuse("is named like a shard: name a database with -o, for example trace.db");
    }
    if fs::symlink_metadata(output).is_err() {
        return Ok(output.to_owned());
    }
    // A link keeps being one: the file that it points at is written.
    let Ok(target) = fs::canonicalize(output) else {
        return refuse("is a link that leads nowhere: remove it, or choose another place with -o");
    };
    let Ok(found) = fs::metadata(&target) else {
        return refuse("cannot be looked at: check its permissions");
    };
    if found.is_dir() {
        let example = output.join("trace.db");
        return refuse(&format!("is a folder: name a file with -o, for example {}", example.display()));
    }
    if !found.is_file() {
        return refuse("is no regular file: choose another place with -o");
    }
    if args.dry_run {
        return Ok(target);
    }
    if !args.force {
        return refuse("is there already: use --force to overwrite it, or -o for another place");
    }
    if found.len() > 0 && !begins_like_a_database(&target) {
        return refuse(
            "is no SQLite database: --force overwrites nothing else; remove it yourself, or use -o",
        );
    }
    Ok(target)
}

/// Whether a file has SQLite's header.
pub fn begins_like_a_database(path: &Path) -> bool {
    let mut header = [0; 16];
    let read = File::open(path).and_then(|mut file| file.read_exact(&mut header));
    read.is_ok() && &header == b"SQLite format 3\0"
}

fn nothing_readable(found: &Found, unreadable: &[(PathBuf, String)]) -> Failure {
    let reason = unreadable.first().map_or(String::new(), |(_, why)| format!(": {why}"));
    Failure::Input(format!(
        "none of {} shards in {} can be read{reason}",
        found.shards.len(),
        found.home.display()
    ))
}

/// Ranks that more than one collector had.
fn repeated_ranks(shards: &[Candidate]) -> Vec<u32> {
    let mut ranks: Vec<u32> = shards.iter().filter_map(|s| s.collector).collect();
    ranks.sort_unstable();
    let mut repeated: Vec<u32> = ranks.windows(2).filter(|w| w[0] == w[1]).map(|w| w[0]).collect();
    repeated.dedup();
    repeated
}

/// Deals `shards` to `ranks` in one run each, by bytes: the shards of `rank`.
pub fn share(shards: &[PlannedShard], rank: usize, ranks: usize) -> std::ops::Range<usize> {
    let total: u64 = shards.iter().map(|s| s.bytes.max(1)).sum();
    // A shard goes to the rank in whose share of the bytes its middle lies.
    let owner = |before: u64, bytes: u64| {
        ((before + bytes / 2) as u128 * ranks as u128 / total.max(1) as u128) as usize
    };
    let mut before = 0;
    let owners: Vec<usize> = shards
        .iter()
        .map(|s| {
            let bytes = s.bytes.max(1);
            let owner = owner(before, bytes).min(ranks - 1);
            before += bytes;
            owner
        })
        .collect();
    owners.partition_point(|o| *o < rank)..owners.partition_point(|o| *o <= rank)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn every_shard_is_dealt_to_exactly_one_rank_in_order(
            bytes in proptest::collection::vec(0u64..1 << 40, 0..40), ranks in 1usize..20,
        ) {
            let shards: Vec<_> = bytes.iter().map(|b| PlannedShard { path: "s".into(), rank: None, bytes: *b, complete: true }).collect();
            let dealt: Vec<usize> = (0..ranks).flat_map(|r| share(&shards, r, ranks)).collect();
            prop_assert_eq!(dealt, (0..shards.len()).collect::<Vec<_>>());
        }
    }

    #[test]
    fn equal_shards_are_dealt_evenly() {
        let shards = vec![PlannedShard { path: "s".into(), rank: None, bytes: 1000, complete: true }; 12];
        assert!((0..3).all(|r| share(&shards, r, 3).len() == 4));
    }
}
