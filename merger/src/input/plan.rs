//! Phase 1: which shards are merged, in which order, by whom.

use super::find::{Found, find};
use crate::cli::MergeArgs;
use crate::failure::Failure;
use rayon::prelude::*;
use rpd_shard::{OpenError, Shard};
use serde::{Deserialize, Serialize};
use std::collections::BTreeSet;
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
    /// Number of ranks seen.
    pub ranks: usize,
    /// Ranks that the job had and nobody saw.
    pub missing_ranks: Vec<u32>,
    /// Shards that could not be opened, with the reason.
    pub unreadable: Vec<(PathBuf, String)>,
}

/// One shard of the plan.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct PlannedShard {
    /// Where it is.
    pub path: PathBuf,
    /// Its length.
    pub bytes: u64,
    /// Whether its collector finished it.
    pub complete: bool,
}

/// Lists the inputs, opens each, checks that they belong together.
pub fn plan(args: &MergeArgs) -> Result<Plan, Failure> {
    let found = find(&args.inputs)?;
    let output = args.output.clone().unwrap_or_else(|| found.home.join("trace.db"));
    check_output(&output, args)?;
    let opened: Vec<_> =
        found.shards.par_iter().map(|(path, named)| (path, named, Shard::open(path))).collect();

    let mut shards = Vec::new();
    let mut unreadable = Vec::new();
    for (path, named, shard) in opened {
        match shard {
            Ok(shard) => shards.push(shard),
            // A file that was named is meant; one that lies in the run's folder may be half-written.
            Err(error @ OpenError::NewerVersion { .. }) => return Err(error.into()),
            Err(error) if *named => return Err(error.into()),
            Err(error) => unreadable.push((path.clone(), error.to_string())),
        }
    }
    let Some(first) = shards.first() else {
        return Err(nothing_readable(&found, &unreadable));
    };
    let run_id = first.identity.run_id.clone();
    if let Some(other) = shards.iter().find(|s| s.identity.run_id != run_id) {
        return Err(Failure::Input(format!(
            "{} belongs to run {}, {} to run {run_id}: merge one run at a time",
            other.path().display(),
            other.identity.run_id,
            first.path().display(),
        )));
    }
    let (ranks, missing_ranks) = ranks(&shards);
    shards.sort_by_cached_key(|s| (lowest_rank(s), s.path().to_path_buf()));
    let shards = shards
        .iter()
        .map(|s| PlannedShard { path: s.path().to_owned(), bytes: s.bytes(), complete: s.complete() })
        .collect();
    Ok(Plan { run_id, shards, output, ranks, missing_ranks, unreadable })
}

fn check_output(output: &Path, args: &MergeArgs) -> Result<(), Failure> {
    if output.is_dir() {
        return Err(Failure::Output(format!(
            "{} is a folder: name a file with -o, for example {}",
            output.display(),
            output.join("trace.db").display()
        )));
    }
    if output.exists() && !args.force && !args.dry_run {
        return Err(Failure::Output(format!(
            "{} is there already: use --force to overwrite it, or -o for another place",
            output.display()
        )));
    }
    Ok(())
}

fn nothing_readable(found: &Found, unreadable: &[(PathBuf, String)]) -> Failure {
    let reason = unreadable.first().map_or(String::new(), |(_, why)| format!(": {why}"));
    Failure::Input(format!(
        "none of {} shards in {} can be read{reason}",
        found.shards.len(),
        found.home.display()
    ))
}

/// Shards without any rank come last.
fn lowest_rank(shard: &Shard) -> u32 {
    let of_processes = shard.processes.values().filter_map(|p| p.rank);
    of_processes.chain(shard.identity.rank).min().unwrap_or(u32::MAX)
}

/// How many ranks there are, and which are missing from the size of the job.
fn ranks(shards: &[Shard]) -> (usize, Vec<u32>) {
    let processes = || shards.iter().flat_map(|s| s.processes.values());
    // Sizes of more than a million ranks are damage.
    let size = processes().filter_map(|p| p.size).max().unwrap_or(0).min(1 << 20);
    let seen: BTreeSet<u32> =
        processes().filter_map(|p| p.rank).chain(shards.iter().filter_map(|s| s.identity.rank)).collect();
    (seen.len(), (0..size).filter(|rank| !seen.contains(rank)).collect())
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
            let shards: Vec<_> = bytes.iter().map(|b| PlannedShard { path: "s".into(), bytes: *b, complete: true }).collect();
            let dealt: Vec<usize> = (0..ranks).flat_map(|r| share(&shards, r, ranks)).collect();
            prop_assert_eq!(dealt, (0..shards.len()).collect::<Vec<_>>());
        }
    }

    #[test]
    fn equal_shards_are_dealt_evenly() {
        let shards = vec![PlannedShard { path: "s".into(), bytes: 1000, complete: true }; 12];
        assert!((0..3).all(|r| share(&shards, r, 3).len() == 4));
    }
}
