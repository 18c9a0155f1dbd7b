//! The writing thread.

use super::rows::{Batch, CommunicatorRow, Item, MpiRow, NameId, RcclRow, RequestRow, Span};
use super::{PlaceError, ShardPlace};
use crate::warn;
use rpd_shard::ShardWriter;
use rpd_shard::file::WriteError;
use rpd_shard::model::Value;
use rpd_shard::model::native::{COMMUNICATOR, MARK, MPI_CALL, MPI_REQUEST, RANGE, RCCL_CALL};
use rpd_shard::model::rocpd::INFO_THREAD;
use std::fs::File;
use std::io::BufWriter;
use std::path::PathBuf;
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender};
use std::time::{Duration, Instant};

/// A crash of the collector loses at most this much.
const FLUSH_EVERY: Duration = Duration::from_secs(1);
/// Bytes of one write, unless a flush comes first.
const WRITE_BYTES: usize = 1 << 20;

/// Why the shard ends early.
#[derive(Debug, thiserror::Error)]
enum OutputError {
    #[error("{0}")]
    Place(#[from] PlaceError),
    #[error(
        "{error} ({path}); what follows is not recorded: next time, choose a place with more space with -o DIR"
    )]
    Write { path: PathBuf, error: WriteError },
}

/// Writes batches until [`Item::End`]. After an error it goes on taking them, so that nobody waits.
pub(super) fn write_all(place: &ShardPlace, batches: &Receiver<Batch>, empty: &SyncSender<Batch>) {
    let mut shard: Option<ShardFile> = None;
    let mut failed = false;
    let mut last_flush = Instant::now();
    loop {
        let wait = FLUSH_EVERY.saturating_sub(last_flush.elapsed());
        let batch = batches.recv_timeout(wait);
        let mut result = Ok(());
        let mut end = false;
        match batch {
            Ok(mut batch) => {
                end = batch.0.last() == Some(&Item::End);
                if !failed {
                    result = write_batch(place, &mut shard, &batch);
                }
                batch.0.clear();
                let _ = empty.try_send(batch);
            }
            Err(RecvTimeoutError::Timeout) => {}
            Err(RecvTimeoutError::Disconnected) => end = true,
        }
        if result.is_ok() && (end || last_flush.elapsed() >= FLUSH_EVERY) {
            last_flush = Instant::now();
            result = match (&mut shard, end) {
                (Some(open), false) if !failed => open.flush(),
                (_, true) if !failed => shard.take().map_or(Ok(()), ShardFile::finish),
                _ => Ok(()),
            };
        }
        if let Err(error) = result {
            failed = true;
            warn(format_args!("warning: {error}; the command runs on untraced"));
        }
        if end {
            return;
        }
    }
}

fn write_batch(place: &ShardPlace, shard: &mut Option<ShardFile>, batch: &Batch) -> Result<(), OutputError> {
    // Clocks and the end alone make no shard: nothing has happened yet. A rank of a launcher leaves
    // one nevertheless, or nobody could tell a silent rank from a missing one.
    let something = batch.0.iter().any(|item| !matches!(item, Item::Clock(_) | Item::End));
    let silent_end = batch.0.last() == Some(&Item::End) && shard.is_none() && !something;
    if silent_end {
        crate::log::note_empty();
    }
    if shard.is_none() && (something || silent_end && place.run.rank.is_some()) {
        *shard = Some(ShardFile::create(place)?);
    }
    let Some(shard) = shard else { return Ok(()) };
    batch.0.iter().try_for_each(|item| shard.write(item))
}

struct ShardFile {
    writer: ShardWriter<BufWriter<File>>,
    path: PathBuf,
    /// Id in the shard of each name.
    names: Vec<i64>,
}

impl ShardFile {
    fn create(place: &ShardPlace) -> Result<ShardFile, OutputError> {
        let new = place.create()?;
        if new.beside_another {
            warn(format_args!(
                "warning: run {} already has a shard of this rank; this one is {}",
                place.run.run_id,
                new.path.display()
            ));
        }
        let sink = BufWriter::with_capacity(WRITE_BYTES, new.file);
        let writer = ShardWriter::new(sink, &place.run)
            .map_err(|error| OutputError::Write { path: new.path.clone(), error })?;
        Ok(ShardFile { writer, path: new.path, names: Vec::new() })
    }

    fn flush(&mut self) -> Result<(), OutputError> {
        self.writer.flush().map_err(|error| OutputError::Write { path: self.path.clone(), error })
    }

    fn finish(self) -> Result<(), OutputError> {
        let path = self.path;
        self.writer.finish().map(drop).map_err(|error| OutputError::Write { path, error })
    }

    fn write(&mut self, item: &Item) -> Result<(), OutputError> {
        self.put(item).map_err(|error| OutputError::Write { path: self.path.clone(), error })
    }

    fn put(&mut self, item: &Item) -> Result<(), WriteError> {
        match item {
            Item::Name(text) => {
                let id = self.writer.string(text)?;
                self.names.push(id);
            }
            Item::Thread { source, ppid, tid, name, start } => {
                let row = [
                    Value::Int(1),
                    Value::Int(i64::from(*ppid)),
                    Value::Int(1),
                    Value::Int(i64::from(*tid)),
                    Value::Text(name.as_bytes()),
                    Value::Int(*start),
                    Value::Null,
                    Value::Text(b"{}"),
                ];
                self.writer.push(*source, INFO_THREAD, &row)?;
            }
            Item::Range(span) => {
                self.writer.push(span.source, RANGE, &self.span(span))?;
            }
            Item::Mark(span) => {
                let [thread, time, _, name, stack, parent] = self.span(span);
                self.writer.push(span.source, MARK, &[thread, time, name, stack, parent])?;
            }
            Item::Mpi(span, call) => {
                let [thread, start, end, name, stack, parent] = self.span(span);
                let [comm, peer, root, tag, bytes, seq] = self.call(call);
                let row = [thread, start, end, name, stack, parent, comm, peer, root, tag, bytes, seq];
                self.writer.push(span.source, MPI_CALL, &row)?;
            }
            Item::Rccl(span, call) => {
                let [thread, start, end, name, stack, parent] = self.span(span);
                let [comm, peer, root, count, datatype, bytes, seq] = self.rccl(call);
                let row =
                    [thread, start, end, name, stack, parent, comm, peer, root, count, datatype, bytes, seq];
                self.writer.push(span.source, RCCL_CALL, &row)?;
            }
            Item::Request(span, RequestRow { peer, tag, bytes }) => {
                let [thread, time, _, name, stack, parent] = self.span(span);
                let row = [thread, time, name, stack, parent, int(*peer), int(*tag), Value::from(*bytes)];
                self.writer.push(span.source, MPI_REQUEST, &row)?;
            }
            Item::Communicator(span, CommunicatorRow { comm, label, size_rank }) => {
                let [thread, time, _, name, stack, parent] = self.span(span);
                let (comm, label) = (self.name(Some(*comm)), self.name(*label));
                let size = Value::from(size_rank.map(|(size, _)| i64::from(size)));
                let rank = Value::from(size_rank.map(|(_, rank)| i64::from(rank)));
                let row = [thread, time, name, stack, parent, comm, label, size, rank];
                self.writer.push(span.source, COMMUNICATOR, &row)?;
            }
            Item::Process(process) => self.writer.process(process)?,
            Item::Clock(set) => self.writer.clock(set)?,
            Item::System(rows) => rows.write(&mut self.writer)?,
            Item::Loss(loss) => self.writer.loss(loss.clone()),
            Item::End => {}
        }
        Ok(())
    }

    fn span(&self, span: &Span) -> [Value<'static>; 6] {
        [
            Value::Int(span.thread),
            Value::Int(span.start),
            Value::from(span.end),
            self.name(Some(span.name)),
            Value::Int(span.stack),
            Value::Int(span.parent),
        ]
    }

    fn call(&self, call: &MpiRow) -> [Value<'static>; 6] {
        [
            self.name(call.comm),
            int(call.peer),
            int(call.root),
            int(call.tag),
            Value::from(call.bytes),
            Value::from(call.seq),
        ]
    }

    fn rccl(&self, call: &RcclRow) -> [Value<'static>; 7] {
        [
            self.name(call.comm),
            int(call.peer),
            int(call.root),
            Value::from(call.count),
            self.name(call.datatype),
            Value::from(call.bytes),
            Value::from(call.seq),
        ]
    }

    fn name(&self, name: Option<NameId>) -> Value<'static> {
        Value::from(name.and_then(|name| self.names.get(name.0 as usize)).copied())
    }
}

fn int(value: Option<i32>) -> Value<'static> {
    Value::from(value.map(i64::from))
}
