//! Inputs with the same identity: copies are not merged, and an input with other rows is not merged either, but its
//! rows count as lost.
//!
//! The choice depends only on the contents, never on file names or their order. Two databases with one guid are
//! assumed to be two states of one file. If they have different processes, they have only the guid in common, and
//! both are merged.

use crate::input::plan::candidate::InputCandidate;
use crate::input::plan::{LostCause, LostRows};
use rayon::prelude::*;
use rpd_files::open_input;
use rpd_foreign::Format;
use rpd_rocpd::read::Database;
use rpd_shard::Shard;
use rpd_shard::file::BlockKind;
use rpd_shard::model::Value;
use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};
use std::io::{self, Read};
use std::path::{Path, PathBuf};
use twox_hash::xxhash3_128::Hasher;

/// Bytes of a file that are compared at once.
const COMPARED_BYTES: usize = 1 << 20;

/// Inputs that are not merged because another input has the same identity.
#[derive(Debug, Default)]
pub(super) struct Duplicates {
    /// Files with the reason.
    pub(super) files: Vec<(PathBuf, String)>,
    /// Rows of these files that are in no other input.
    pub(super) lost: Vec<LostRows>,
    /// Warnings about inputs that are merged nevertheless.
    pub(super) warnings: Vec<String>,
}

impl Duplicates {
    fn add(&mut self, path: &Path, reason: &str) {
        self.files.push((path.to_owned(), format!("{}: {reason}", path.display())));
    }
}

/// Rows of an input, or of one of its guids.
#[derive(Default)]
struct Contents {
    /// Hash of all readable rows.
    hash: u128,
    /// Number of rows by table; `None` if some cannot be read.
    rows: BTreeMap<String, Option<u64>>,
    /// Number of readable rows.
    readable: u64,
    /// Process ids, with the start times of the processes that had this id; `None` for an unknown start.
    processes: BTreeMap<i64, BTreeSet<Option<i64>>>,
}

impl Contents {
    fn lost(&self) -> impl Iterator<Item = LostRows> {
        let rows = self.rows.iter().filter(|(_, rows)| **rows != Some(0));
        rows.map(|(table, rows)| LostRows {
            table: Some(table.clone()),
            cause: LostCause::OtherContents,
            rows: *rows,
            file: None,
        })
    }

    /// Returns whether both may be states of one file: they share a process, as far as is known.
    fn may_be_one(&self, other: &Contents) -> bool {
        let unknown = self.processes.is_empty() || other.processes.is_empty();
        let is_common = |(pid, own): (&i64, &BTreeSet<Option<i64>>)| {
            let theirs = other.processes.get(pid);
            theirs.is_some_and(|theirs| {
                own.contains(&None) || theirs.contains(&None) || !own.is_disjoint(theirs)
            })
        };
        unknown || self.processes.iter().any(is_common)
    }
}

/// Keeps one of each group of candidates with the same position in the merge order.
pub(super) fn keep_one_of_each(
    candidates: Vec<InputCandidate>,
    duplicates: &mut Duplicates,
) -> Vec<InputCandidate> {
    let mut groups: Vec<Vec<InputCandidate>> = Vec::new();
    for candidate in candidates {
        match groups.last_mut() {
            Some(group) if group[0].format == candidate.format && group[0].order == candidate.order => {
                group.push(candidate);
            }
            _ => groups.push(vec![candidate]),
        }
    }
    let one = |group: Vec<InputCandidate>| match group.as_slice() {
        [_] => group,
        [first, ..] if first.format == Format::Shard => vec![keep_one_shard(group, duplicates)],
        _ => keep_each_guid_once(group, duplicates),
    };
    groups.into_iter().flat_map(one).collect()
}

/// Keeps the one with the most rows of several shards of the same processes. A shard that equals the beginning of the
/// kept one, up to its own end, is an earlier copy.
fn keep_one_shard(mut group: Vec<InputCandidate>, duplicates: &mut Duplicates) -> InputCandidate {
    // Complete copies come first, then the longest of the cut ones.
    group.sort_by_key(|c| (!c.complete, Reverse(c.bytes)));
    let is_copy =
        |kept: &InputCandidate, other: &InputCandidate| begins_with(&kept.path, &other.path).unwrap_or(false);
    let mut read: BTreeMap<PathBuf, Contents> = BTreeMap::new();
    if !group[1..].iter().all(|other| is_copy(&group[0], other)) {
        read = group.par_iter().map(|c| (c.path.clone(), contents_of_shard(&c.path))).collect();
        let key = |c: &InputCandidate| {
            read.get(&c.path).map(|found| (found.readable, c.complete, c.bytes, found.hash))
        };
        group.sort_by_cached_key(|c| Reverse(key(c)));
    }
    let kept = group.remove(0);
    for other in group {
        let name = kept.path.display();
        match read.get(&other.path) {
            Some(contents) if !is_copy(&kept, &other) => {
                duplicates.add(&other.path, &other_contents(&name));
                duplicates.lost.extend(contents.lost());
            }
            _ => duplicates.add(
                &other.path,
                &format!("it holds the same processes as {name}: a copy, which is left out"),
            ),
        }
    }
    kept
}

fn other_contents(kept: &impl std::fmt::Display) -> String {
    format!("it claims to be the same as {kept}, and has other rows: that one is merged, these count as lost")
}

/// Keeps, for each guid, the database that has the most rows under it.
pub(super) fn keep_each_guid_once(
    mut candidates: Vec<InputCandidate>,
    duplicates: &mut Duplicates,
) -> Vec<InputCandidate> {
    // Position of the candidate, and of the table set in it.
    let mut holders: BTreeMap<String, Vec<(usize, usize)>> = BTreeMap::new();
    for (i, candidate) in candidates.iter().enumerate() {
        for set in &candidate.table_sets {
            holders.entry(candidate.guids[*set].clone()).or_default().push((i, *set));
        }
    }
    holders.retain(|_, holders| holders.len() > 1);
    // Per candidate, and whether rows differ, the guids merged from another candidate: their number, and its path.
    let mut left_out: BTreeMap<(usize, bool), (usize, PathBuf)> = BTreeMap::new();
    for holders in holders.into_values() {
        let read = |(i, set): &(usize, usize)| contents_of_set(&candidates[*i].path, *set);
        let contents: Vec<Contents> = holders.par_iter().map(read).collect();
        // Groups of holders that may be states of the same file.
        let mut groups: Vec<Vec<usize>> = Vec::new();
        for own in 0..holders.len() {
            let is_akin =
                |group: &&mut Vec<usize>| group.iter().any(|k| contents[*k].may_be_one(&contents[own]));
            match groups.iter_mut().find(is_akin) {
                Some(group) => group.push(own),
                None => groups.push(vec![own]),
            }
        }
        for group in &groups {
            let key = |k: &usize| (contents[*k].readable, contents[*k].hash);
            // If several are equally good, the first one.
            let Some(kept) = group.iter().copied().max_by_key(|k| (key(k), Reverse(*k))) else { continue };
            let name = candidates[holders[kept].0].path.clone();
            for k in group.iter().filter(|k| **k != kept) {
                let (i, set) = holders[*k];
                let differs = contents[*k].hash != contents[kept].hash;
                left_out.entry((i, differs)).or_insert((0, name.clone())).0 += 1;
                if differs {
                    duplicates.lost.extend(contents[*k].lost());
                }
                candidates[i].table_sets.retain(|own| *own != set);
            }
        }
        if groups.len() > 1 {
            let names: Vec<_> = groups.iter().map(|group| &candidates[holders[group[0]].0].path).collect();
            duplicates.warnings.push(format!(
                "{} has a guid that {} has too, with other processes: all are merged",
                names[1].display(),
                names[0].display()
            ));
        }
    }
    for ((i, differs), (some, kept)) in left_out {
        let (candidate, kept) = (&candidates[i], kept.display());
        let all = candidate.guids.len();
        let reason = match (differs, some == all) {
            (false, true) => format!("it has the same guid and rows as {kept}: a copy, which is left out"),
            (false, false) => {
                format!("{some} of its {all} guids, with their rows, are in {kept} too and are merged once")
            }
            (true, true) => other_contents(&kept),
            (true, false) => format!("{} ({some} of its {all} guids)", other_contents(&kept)),
        };
        duplicates.add(&candidate.path, &reason);
    }
    candidates.retain(|candidate| candidate.guids.is_empty() || !candidate.table_sets.is_empty());
    candidates
}

/// Returns whether a file begins with all bytes of another one.
fn begins_with(long: &Path, short: &Path) -> io::Result<bool> {
    let (mut long, mut short) = (open_input(long)?, open_input(short)?);
    let (mut own, mut other) = (Vec::new(), Vec::new());
    loop {
        own.clear();
        other.clear();
        (&mut short).take(COMPARED_BYTES as u64).read_to_end(&mut other)?;
        (&mut long).take(other.len() as u64).read_to_end(&mut own)?;
        if other.is_empty() || own != other {
            return Ok(own == other);
        }
    }
}

fn contents_of_shard(path: &Path) -> Contents {
    let mut hasher = Hasher::new();
    let mut contents = Contents::default();
    if let Ok(shard) = Shard::open(path) {
        for block in shard.blocks() {
            hasher.write(&block.header.checksum.to_le_bytes());
            let BlockKind::Rows(table) = block.header.kind else { continue };
            let own = u64::from(block.header.rows);
            let name = shard.schema().get(table).map_or(table.to_string(), |table| table.name.clone());
            let sum = contents.rows.entry(name).or_insert(Some(0));
            *sum = sum.map(|sum| sum + own);
            if shard.rows(block).is_ok() {
                contents.readable += own;
            }
        }
        shard.release();
    }
    Contents { hash: hasher.finish_128(), ..contents }
}

/// Reads the contents table by table and row by row, so that the distribution of rows over pages does not matter.
fn contents_of_set(path: &Path, set: usize) -> Contents {
    let mut hasher = Hasher::new();
    let mut contents = Contents::default();
    if let Ok(database) = Database::open(path)
        && let Some(found) = database.table_sets().get(set)
    {
        for process in &found.processes {
            contents.processes.entry(process.pid).or_default().insert(process.start);
        }
        let mut tables: Vec<_> = found.tables.iter().enumerate().collect();
        tables.sort_by_key(|(_, table)| &table.table.name);
        for (place, table) in tables {
            let sum = contents.rows.entry(table.table.name.clone()).or_insert(Some(0));
            hasher.write(table.table.name.as_bytes());
            for piece in &table.pieces {
                database.each(set, place, piece, &mut |_, some| {
                    let Ok(some) = some else {
                        *sum = None;
                        return;
                    };
                    *sum = sum.map(|sum| sum + some.len as u64);
                    contents.readable += some.len as u64;
                    for row in 0..some.len {
                        hasher.write(&some.keys.get(row).to_le_bytes());
                        some.columns.iter().for_each(|cells| add(&mut hasher, cells.get(row)));
                    }
                });
            }
        }
        database.release();
    }
    Contents { hash: hasher.finish_128(), ..contents }
}

/// Adds a value to a hash, encoded such that two different sequences of values never yield the same bytes.
fn add(hasher: &mut Hasher, value: Value<'_>) {
    let (kind, bytes) = match value {
        Value::Null => (0, &[][..]),
        Value::Int(value) => return write(hasher, 1, &value.to_le_bytes()),
        Value::Real(value) => return write(hasher, 2, &value.to_bits().to_le_bytes()),
        Value::Text(text) => (3, text),
        Value::Blob(bytes) => (4, bytes),
    };
    write(hasher, kind, bytes);
}

fn write(hasher: &mut Hasher, kind: u8, bytes: &[u8]) {
    hasher.write(&[kind]);
    hasher.write(&(bytes.len() as u64).to_le_bytes());
    hasher.write(bytes);
}
