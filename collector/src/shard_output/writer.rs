//! The writing thread.

use super::early::{self, EarlyShard, ShardBeginning};
use super::item_rows::ItemRows;
use super::queue::{BatchReceiver, ReceivedBatch};
use super::rows::{OutputBatch, OutputItem};
use super::shard_file::{ShardEnding, ShardFile};
use super::shard_place::NewShard;
use super::{PlaceError, ShardPlace};
use crate::log::warn;
use crate::run_folder::identity;
use rpd_shard::file::WriteError;
use rustix::fs::fstatfs;
use std::fs::File;
use std::os::unix::fs::MetadataExt;
use std::path::PathBuf;
use std::time::{Duration, Instant};

/// A crash of the collector loses at most this much.
const FLUSH_EVERY: Duration = Duration::from_secs(1);
/// Rows in open blocks from which on a flush comes early: those of each process wait for a block of
/// their own, and there may be many processes.
const FLUSH_ROWS: usize = 2 * 65_536;
/// File systems whose errors come when a file is closed, and which wait for the server then:
/// `NFS_SUPER_MAGIC`.
const NFS: u32 = 0x6969;

/// Writes batches until [`OutputItem::End`]; returns the shard. After an error it goes on taking them, so that nobody waits.
pub(super) fn write_all(
    place: &ShardPlace,
    beginning: ShardBeginning,
    batches: &BatchReceiver,
) -> Option<PathBuf> {
    let (mut early, mut shard): (_, Option<Option<Recording>>) = match beginning {
        ShardBeginning::Nothing => (None, None),
        ShardBeginning::Shard(file, early) => (Some((file, early)), None),
        ShardBeginning::Refused => (None, Some(None)),
    };
    let mut last_flush = Instant::now();
    let (mut events, mut metrics) = (false, false);
    loop {
        let wait = FLUSH_EVERY.saturating_sub(last_flush.elapsed());
        let mut end = false;
        match batches.receive(wait) {
            ReceivedBatch::Batch(batch) => {
                end = batch.is_last();
                metrics |= batch.items.iter().any(|item| matches!(item, OutputItem::System(_)));
                events |= !batch.ranges.is_empty() || batch.items.iter().any(is_of_a_process);
                take(place, &mut early, &mut shard, &batch);
                if let Some(OutputItem::Keep { signal }) = batch.items.last() {
                    keep(&mut shard, *signal);
                }
                batches.give_back(batch);
            }
            ReceivedBatch::Nothing => {}
            ReceivedBatch::Closed => {
                // The collecting thread is gone without a last word: nobody knows what is missing.
                if let Some(Some(open)) = &mut shard {
                    open.flush();
                }
                return None;
            }
        }
        if end {
            if !events {
                crate::log::note_empty(metrics);
            }
            if let Some((_, unused)) = early {
                unused.remove();
            }
            let open = shard.flatten()?;
            let path = open.path.clone();
            open.finish(place);
            return Some(path);
        }
        let many = matches!(&shard, Some(Some(open)) if open.file.writer.pending_rows() >= FLUSH_ROWS);
        if many || last_flush.elapsed() >= FLUSH_EVERY {
            last_flush = Instant::now();
            if let Some(Some(open)) = &mut shard {
                open.flush();
            }
        }
    }
}

/// Has the file system keep what there is. Rows of the last moments follow within [`FLUSH_EVERY`].
fn keep(shard: &mut Option<Option<Recording>>, signal: i32) {
    let Some(Some(open)) = shard else { return };
    open.flush();
    let signal = signal_hook::low_level::signal_name(signal).unwrap_or("a signal");
    match open.file.sync() {
        Ok(()) => warn(format_args!("{signal}: what was recorded so far is written, and recording goes on")),
        Err(error) => warn(format_args!(
            "warning: {signal}: the file system does not keep {}: {error}",
            open.path.display()
        )),
    }
}

/// Whether an item comes from a traced process: counters and clocks of nodes alone are no answer to why
/// there is nothing else.
fn is_of_a_process(item: &OutputItem) -> bool {
    !matches!(
        item,
        OutputItem::Clock(_)
            | OutputItem::Probes(_)
            | OutputItem::Keep { .. }
            | OutputItem::End
            | OutputItem::System(_)
            | OutputItem::Process(_)
            | OutputItem::Command(_)
    )
}

/// Takes a batch to the shard, which is made if this is the first that calls for one. An inner `None`
/// is a shard that cannot be made.
fn take(
    place: &ShardPlace,
    early: &mut Option<(File, EarlyShard)>,
    shard: &mut Option<Option<Recording>>,
    batch: &OutputBatch,
) {
    if shard.is_none() {
        // Clocks and the end alone make no shard: nothing has happened yet. A rank of a launcher leaves
        // one nevertheless, or nobody could tell a silent rank from a missing one.
        let something = !batch.ranges.is_empty()
            || batch.items.iter().any(|item| {
                !matches!(item, OutputItem::Clock(_) | OutputItem::Keep { .. } | OutputItem::End)
            });
        let silent_end = batch.is_last() && !something;
        // A rank that was not to be recorded leaves nothing, and the other shards say so.
        let expected = place.run.rank.is_some() && place.ranks.contains(place.run.rank);
        if something || silent_end && (expected || place.always) {
            *shard = Some(Recording::create(place, early.take()));
        }
    }
    if let Some(Some(shard)) = shard {
        shard.write(batch);
    }
}

/// A shard that is being written.
struct Recording {
    file: ShardFile<File>,
    path: PathBuf,
    max_bytes: u64,
    /// Id in the shard of each name.
    names: Vec<i64>,
    /// It was said that rows are not written any more.
    told: bool,
}

impl Recording {
    /// Makes the shard, or goes on with the one that was created before the command; or says why there is none.
    fn create(place: &ShardPlace, early: Option<(File, EarlyShard)>) -> Option<Recording> {
        let failed = |error: &dyn std::fmt::Display| {
            warn(format_args!("warning: {error}; the command runs on untraced"));
        };
        let early = early.map(|(file, early)| NewShard { file, path: early.path(), beside: early.beside });
        let new = early.map_or_else(|| place.create(), Ok);
        let new = new.map_err(|error: PlaceError| failed(&error)).ok()?;
        if let Some(taken_by) = &new.beside {
            warn(format_args!(
                "warning: run {} already has {taken_by} of this rank; this one is {}",
                place.run.run_id,
                new.path.display()
            ));
        }
        let file = early::begin(new.file, place).map_err(|error| failed(&error)).ok()?;
        let mut recording =
            Recording { file, path: new.path, max_bytes: place.max_bytes, names: Vec::new(), told: false };
        // A collector that is killed before its first flush leaves a shard that names its rank.
        recording.flush();
        Some(recording)
    }

    fn write(&mut self, batch: &OutputBatch) {
        let (mut items, mut ranges) = (batch.items.iter(), batch.ranges.iter());
        let mut put_rest = |file: &mut ShardFile<File>| {
            let mut rows = ItemRows { writer: &mut file.writer, names: &mut self.names };
            items.try_for_each(|item| rows.put_or_count(item))?;
            ranges.try_for_each(|span| rows.range(span))
        };
        let mut result = put_rest(&mut self.file);
        if result.is_err() {
            self.file.stop();
            // The rest is counted only, which does not fail.
            let _ = put_rest(&mut self.file);
        } else {
            result = self.file.write_if_much();
        }
        self.tell(result.err());
    }

    fn flush(&mut self) {
        let result = self.file.flush();
        self.tell(result.err());
    }

    /// Says once that rows are not written any more.
    fn tell(&mut self, error: Option<WriteError>) {
        if self.told || error.is_none() && !self.file.writer.is_full() {
            return;
        }
        self.told = true;
        let path = self.path.display();
        match error {
            Some(error) => tell_error(&path, &error),
            None => warn(format_args!(
                "warning: {path} has reached its limit of {} bytes; what follows is not recorded, only \
                 counted: next time, raise the limit with --max-size",
                self.max_bytes
            )),
        }
    }

    fn finish(mut self, place: &ShardPlace) {
        self.flush();
        let path = self.path.display();
        let (file, ended) = self.file.finish();
        match ended {
            ShardEnding::Complete => {}
            // Less than its header and identity: nobody could tell what it is.
            ShardEnding::Cut(0, error) => {
                let is_removed =
                    identity(&file).is_ok_and(|identity| place.folder().remove_file(&self.path, identity));
                let removed = if is_removed { format!(", and {path} is removed") } else { String::new() };
                warn(format_args!("warning: {error}; nothing is recorded{removed}"));
                return;
            }
            ShardEnding::Cut(_, error) => {
                warn(format_args!("warning: {error}; {path} has no end, and says not how much it misses"));
            }
        }
        // The server is waited for when the file is closed, but only this tells what it says.
        let on_nfs = fstatfs(&file).is_ok_and(|found| found.f_type as u32 == NFS);
        if on_nfs && let Err(error) = file.sync_data() {
            warn(format_args!(
                "warning: failed to write the shard: {error}; the end of {path} may be missing"
            ));
        }
        if file.metadata().is_ok_and(|found| found.nlink() == 0) {
            warn(format_args!("warning: {path} was deleted while it was written; nothing is recorded"));
        }
    }
}

fn tell_error(path: &std::path::Display<'_>, error: &WriteError) {
    warn(format_args!(
        "warning: {error} ({path}); what follows is not recorded, only counted: next time, choose a place \
         with more space with -o DIR; the command runs on"
    ));
}
