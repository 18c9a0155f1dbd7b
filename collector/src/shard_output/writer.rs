//! The writing thread.

use super::early::{self, EarlyShard, ShardBeginning};
use super::item_rows::ItemRows;
use super::queue::{BatchReceiver, ReceivedBatch};
use super::rows::{OutputBatch, OutputItem};
use super::sample_tracks::SampleTracks;
use super::shard_file::{ShardCompletion, ShardFile};
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

/// Time between flushes. A crash of the collector also loses what it has not drained and batched.
const FLUSH_EVERY: Duration = Duration::from_secs(1);
/// Number of rows in open blocks that triggers an early flush. Each process has a block of its own, and there
/// may be many processes.
const FLUSH_ROWS: usize = 2 * 65_536;
/// `NFS_SUPER_MAGIC`. NFS reports write errors when a file is closed, and waits for the server then.
const NFS: u32 = 0x6969;

/// Writes batches until [`OutputItem::End`]. Returns the path of the shard. After an error it keeps receiving
/// batches, so that no sender blocks.
pub(super) fn write_all(
    place: &ShardPlace,
    beginning: ShardBeginning,
    batches: &BatchReceiver,
) -> Option<PathBuf> {
    let mut shard = match beginning {
        ShardBeginning::Nothing => RankShard::Awaited(None),
        ShardBeginning::Shard(file, early) => RankShard::Awaited(Some((file, early))),
        ShardBeginning::Refused => RankShard::Refused,
    };
    let mut last_flush = Instant::now();
    let (mut events, mut metrics) = (false, false);
    loop {
        let wait = FLUSH_EVERY.saturating_sub(last_flush.elapsed());
        let mut end = false;
        match batches.receive(wait) {
            ReceivedBatch::Batch(batch) => {
                end = batch.is_last();
                metrics |= batch.items.iter().any(|item| {
                    matches!(item, OutputItem::MetricsTick(_) | OutputItem::MetricsDescription(_))
                });
                events |= !batch.ranges.is_empty() || batch.items.iter().any(is_of_a_process);
                shard.write_batch(place, &batch);
                if let (Some(OutputItem::Sync { signal }), Some(open)) = (batch.items.last(), shard.open()) {
                    open.sync(*signal);
                }
                batches.give_back(batch);
            }
            ReceivedBatch::Nothing => {}
            ReceivedBatch::Closed => {
                // The collecting thread ended without `End`, so the number of missing rows is unknown.
                shard.open().into_iter().for_each(Recording::flush);
                return None;
            }
        }
        if end {
            if !events {
                crate::log::note_empty(metrics);
            }
            return shard.finish(place);
        }
        let many = shard.open().is_some_and(|open| open.file.writer.pending_rows() >= FLUSH_ROWS);
        if many || last_flush.elapsed() >= FLUSH_EVERY {
            last_flush = Instant::now();
            shard.open().into_iter().for_each(Recording::flush);
        }
    }
}

/// Whether an item comes from a traced process. Counters and clocks of the node do not explain why nothing
/// else was recorded.
fn is_of_a_process(item: &OutputItem) -> bool {
    !matches!(
        item,
        OutputItem::Clock(_)
            | OutputItem::Probes(_)
            | OutputItem::Sync { .. }
            | OutputItem::End
            | OutputItem::MetricsDescription(_)
            | OutputItem::MetricsTick(_)
            | OutputItem::Process(_)
            | OutputItem::Command(_)
    )
}

/// The shard of the rank.
enum RankShard {
    /// Nothing was recorded yet. The file may have been created before the command.
    Awaited(Option<(File, EarlyShard)>),
    Open(Box<Recording>),
    /// The file could not be created, which was printed.
    Refused,
}

impl RankShard {
    fn open(&mut self) -> Option<&mut Recording> {
        if let RankShard::Open(recording) = self { Some(recording) } else { None }
    }

    /// Writes a batch, and creates the file for the first batch that needs one.
    fn write_batch(&mut self, place: &ShardPlace, batch: &OutputBatch) {
        if let RankShard::Awaited(early) = self {
            // Clocks and the end alone do not create a shard, because nothing was recorded. A rank of a
            // launcher gets one nevertheless: otherwise a merge could not distinguish a silent rank from a
            // missing one.
            let has_rows = !batch.ranges.is_empty()
                || batch.items.iter().any(|item| {
                    !matches!(item, OutputItem::Clock(_) | OutputItem::Sync { .. } | OutputItem::End)
                });
            let silent_end = batch.is_last() && !has_rows;
            // A rank that is not selected leaves no shard. The other shards record the selection.
            let expected = place.run.rank.is_some() && place.ranks.contains(place.run.rank);
            if has_rows || silent_end && (expected || place.always) {
                let created = Recording::create(place, early.take());
                *self = created.map_or(RankShard::Refused, |open| RankShard::Open(Box::new(open)));
            }
        }
        if let Some(open) = self.open() {
            open.write(batch);
        }
    }

    /// Completes the file and returns its path, or removes the one in which nothing was recorded.
    fn finish(self, place: &ShardPlace) -> Option<PathBuf> {
        match self {
            RankShard::Awaited(early) => early.iter().for_each(|(_, unused)| unused.remove()),
            RankShard::Open(open) => {
                let path = open.path.clone();
                open.finish(place);
                return Some(path);
            }
            RankShard::Refused => {}
        }
        None
    }
}

/// A shard that is being written.
struct Recording {
    file: ShardFile<File>,
    path: PathBuf,
    max_bytes: u64,
    /// Id in the shard of each name.
    names: Vec<i64>,
    tracks: SampleTracks,
    /// The warning about rows that are no longer written was printed.
    has_warned: bool,
}

impl Recording {
    /// Creates the shard, or continues the one that was created before the command. Prints the reason if
    /// there is none.
    fn create(place: &ShardPlace, early: Option<(File, EarlyShard)>) -> Option<Recording> {
        let failed = |error: &dyn std::fmt::Display| {
            warn(format_args!("warning: {error}; the command continues untraced"));
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
        let mut recording = Recording {
            file,
            path: new.path,
            max_bytes: place.max_bytes,
            names: Vec::new(),
            tracks: SampleTracks::default(),
            has_warned: false,
        };
        // A collector that is killed before its first flush leaves a shard that names its rank.
        recording.flush();
        Some(recording)
    }

    fn write(&mut self, batch: &OutputBatch) {
        let (mut items, mut ranges) = (batch.items.iter(), batch.ranges.iter());
        let mut put_rest = |file: &mut ShardFile<File>| {
            let (names, tracks) = (&mut self.names, &mut self.tracks);
            let mut rows = ItemRows { writer: &mut file.writer, names, tracks };
            items.try_for_each(|item| rows.put_or_count(item))?;
            ranges.try_for_each(|span| rows.range(span))
        };
        let mut result = put_rest(&mut self.file);
        if result.is_err() {
            self.file.stop();
            // Only counts the rest, which cannot fail.
            let _ = put_rest(&mut self.file);
        } else {
            result = self.file.write_if_much();
        }
        self.warn_once(result.err());
    }

    /// Syncs what was received so far. Rows of the last moments follow within [`FLUSH_EVERY`].
    fn sync(&mut self, signal: i32) {
        self.flush();
        let signal = signal_hook::low_level::signal_name(signal).unwrap_or("a signal");
        match self.file.sync() {
            Ok(()) => {
                warn(format_args!("{signal}: everything recorded so far is written; recording continues"))
            }
            Err(error) => warn(format_args!(
                "warning: {signal}: the file system failed to sync {}: {error}",
                self.path.display()
            )),
        }
    }

    fn flush(&mut self) {
        let result = self.file.flush();
        self.warn_once(result.err());
    }

    /// Prints once that rows are no longer written.
    fn warn_once(&mut self, error: Option<WriteError>) {
        if self.has_warned || error.is_none() && !self.file.writer.is_full() {
            return;
        }
        self.has_warned = true;
        let path = self.path.display();
        match error {
            Some(error) => warn_of_error(&path, &error),
            None => warn(format_args!(
                "warning: {path} has reached its limit of {} bytes; what follows is not recorded, only \
                 counted; next time, raise the limit with --max-size",
                self.max_bytes
            )),
        }
    }

    fn finish(mut self, place: &ShardPlace) {
        self.flush();
        let path = self.path.display();
        let (file, ended) = self.file.finish();
        match ended {
            ShardCompletion::Complete => {}
            // Less than header and identity: no reader could identify the shard.
            ShardCompletion::Cut(0, error) => {
                let is_removed =
                    identity(&file).is_ok_and(|identity| place.folder().remove_file(&self.path, identity));
                let removed = if is_removed { format!(", and {path} is removed") } else { String::new() };
                warn(format_args!("warning: {error}; nothing is recorded{removed}"));
                return;
            }
            ShardCompletion::Cut(_, error) => {
                warn(format_args!(
                    "warning: {error}; {path} has no trailer, so the number of missing rows is unknown"
                ));
            }
        }
        // Closing the file waits for the server, but only this call returns its error.
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

fn warn_of_error(path: &std::path::Display<'_>, error: &WriteError) {
    warn(format_args!(
        "warning: {error} ({path}); what follows is not recorded, only counted, and the command continues; next time, choose a folder with more space with -o DIR"
    ));
}
