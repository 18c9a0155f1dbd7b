//! Converts items to rows of a shard.

use super::rows::{CommunicatorRow, EventSpan, MpiRow, NameId, OutputItem, RcclRow, RequestRow};
use super::sample_tracks::SampleTracks;
use rpd_shard::ShardWriter;
use rpd_shard::file::WriteError;
use rpd_shard::model::native::{COMMUNICATOR, MARK, MPI_CALL, MPI_REQUEST, RANGE, RCCL_CALL};
use rpd_shard::model::rocpd::{EVENT, INFO_THREAD, STRING};
use rpd_shard::model::{TableId, Value};
use rpd_shard::record::{Loss, LossCause};

/// Writes items to a shard.
pub(super) struct ItemRows<'a> {
    pub(super) writer: &'a mut ShardWriter<Vec<u8>>,
    /// Id in the shard of each name.
    pub(super) names: &'a mut Vec<i64>,
    pub(super) tracks: &'a mut SampleTracks,
}

impl ItemRows<'_> {
    /// Writes an item to the shard. Counts an item that the format does not accept.
    #[inline]
    pub(super) fn put_or_count(&mut self, item: &OutputItem) -> Result<(), WriteError> {
        match self.put(item) {
            Ok(()) => Ok(()),
            Err(error) => self.count(item, error),
        }
    }

    #[cold]
    fn count(&mut self, item: &OutputItem, error: WriteError) -> Result<(), WriteError> {
        if !matches!(error, WriteError::TextTooLong { .. } | WriteError::UnknownTable(_)) {
            return Err(error);
        }
        let (source, table) = row_of(item);
        self.writer.loss(Loss { source, table, cause: LossCause::OverLimit, rows: Some(1) });
        if matches!(item, OutputItem::Name(_)) {
            // Names that follow keep their numbers.
            self.names.push(self.writer.string(b"(too long)")?);
        }
        Ok(())
    }

    fn put(&mut self, item: &OutputItem) -> Result<(), WriteError> {
        match item {
            OutputItem::Name(text) => {
                self.names.push(self.writer.string(text)?);
            }
            OutputItem::Thread { source, ppid, tid, name, start } => {
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
            OutputItem::Mark(span) => {
                let [thread, time, _, name, stack, parent] = self.span(span);
                self.writer.push(span.source, MARK, &[thread, time, name, stack, parent])?;
            }
            OutputItem::Mpi(span, MpiRow { comm, peer, root, tag, bytes, seq, receive, probe_stack }) => {
                let [thread, start, end, name, stack, parent] = self.span(span);
                let (comm, bytes, seq) = (self.name(*comm), Value::from(*bytes), Value::from(*seq));
                let [peer, root, tag] = [peer, root, tag].map(|number| int(*number));
                let received = receive.unwrap_or_default();
                let [source, recvtag] = [received.source, received.tag].map(int);
                let [recvbytes, probe_stack] = [received.bytes, *probe_stack].map(Value::from);
                let row = [
                    thread,
                    start,
                    end,
                    name,
                    stack,
                    parent,
                    comm,
                    peer,
                    root,
                    tag,
                    bytes,
                    seq,
                    source,
                    recvtag,
                    recvbytes,
                    probe_stack,
                ];
                self.writer.push(span.source, MPI_CALL, &row)?;
            }
            OutputItem::Rccl(span, RcclRow { comm, peer, root, count, datatype, bytes, seq, stream }) => {
                let [thread, start, end, name, stack, parent] = self.span(span);
                let [comm, datatype] = [comm, datatype].map(|name| self.name(*name));
                let [peer, root] = [peer, root].map(|number| int(*number));
                let [count, bytes, seq, stream] =
                    [count, bytes, seq, stream].map(|number| Value::from(*number));
                let row = [
                    thread, start, end, name, stack, parent, comm, peer, root, count, datatype, bytes, seq,
                    stream,
                ];
                self.writer.push(span.source, RCCL_CALL, &row)?;
            }
            OutputItem::Request(span, RequestRow { peer, tag, bytes, init_stack }) => {
                let [thread, time, _, name, stack, parent] = self.span(span);
                let [bytes, init_stack] = [bytes, init_stack].map(|number| Value::from(*number));
                let row = [thread, time, name, stack, parent, int(*peer), int(*tag), bytes, init_stack];
                self.writer.push(span.source, MPI_REQUEST, &row)?;
            }
            OutputItem::Communicator(span, CommunicatorRow { comm, label, size_rank, side, neighbours }) => {
                let [thread, time, _, name, stack, parent] = self.span(span);
                let (comm, label) = (self.name(Some(*comm)), self.name(*label));
                let size = Value::from(size_rank.map(|(size, _)| i64::from(size)));
                let rank = Value::from(size_rank.map(|(_, rank)| i64::from(rank)));
                let side = Value::from(side.map(i64::from));
                let (sources, destinations) = (text(&neighbours.sources), text(&neighbours.destinations));
                let row =
                    [thread, time, name, stack, parent, comm, label, size, rank, side, sources, destinations];
                self.writer.push(span.source, COMMUNICATOR, &row)?;
            }
            OutputItem::MetricsDescription(description) => description.write(self.writer)?,
            OutputItem::MetricsTick(tick) => tick.write(self.writer, self.tracks)?,
            OutputItem::PythonSample(sample) => sample.write(self.writer, self.tracks)?,
            OutputItem::Process(process) => self.writer.process(process)?,
            OutputItem::Command(command) => self.writer.command(command)?,
            OutputItem::Clock(set) => self.writer.clock(set)?,
            OutputItem::Probes(burst) => self.writer.probes(burst)?,
            OutputItem::Loss(loss) => self.writer.loss(loss.clone()),
            OutputItem::Sync { .. } | OutputItem::End => {}
        }
        Ok(())
    }

    #[inline]
    pub(super) fn range(&mut self, span: &EventSpan) -> Result<(), WriteError> {
        let row = self.span(span);
        self.writer.push(span.source, RANGE, &row).map(drop)
    }

    fn span(&self, span: &EventSpan) -> [Value<'static>; 6] {
        [
            Value::Int(span.thread),
            Value::Int(span.start),
            Value::from(span.end),
            self.name(Some(span.name)),
            Value::Int(span.stack),
            Value::Int(span.parent),
        ]
    }

    fn name(&self, name: Option<NameId>) -> Value<'static> {
        Value::from(name.and_then(|name| self.names.get(name.0 as usize)).copied())
    }
}

fn text(text: &Option<Box<str>>) -> Value<'_> {
    text.as_ref().map_or(Value::Null, |text| Value::Text(text.as_bytes()))
}

fn int(value: Option<i32>) -> Value<'static> {
    Value::from(value.map(i64::from))
}

/// Returns the process and the table of an item.
fn row_of(item: &OutputItem) -> (u32, Option<TableId>) {
    match item {
        OutputItem::Name(_) => (0, Some(STRING)),
        OutputItem::Thread { source, .. } => (*source, Some(INFO_THREAD)),
        OutputItem::Mark(span) => (span.source, Some(MARK)),
        OutputItem::Mpi(span, _) => (span.source, Some(MPI_CALL)),
        OutputItem::Rccl(span, _) => (span.source, Some(RCCL_CALL)),
        OutputItem::Request(span, _) => (span.source, Some(MPI_REQUEST)),
        OutputItem::Communicator(span, _) => (span.source, Some(COMMUNICATOR)),
        OutputItem::PythonSample(sample) => (sample.source, Some(EVENT)),
        OutputItem::MetricsDescription(_)
        | OutputItem::MetricsTick(_)
        | OutputItem::Process(_)
        | OutputItem::Command(_)
        | OutputItem::Clock(_)
        | OutputItem::Probes(_)
        | OutputItem::Loss(_)
        | OutputItem::Sync { .. }
        | OutputItem::End => (0, None),
    }
}
