//! From items to rows of a shard.

use super::rows::{CommunicatorRow, Item, MpiRow, NameId, RcclRow, RequestRow, Span};
use rpd_shard::ShardWriter;
use rpd_shard::file::WriteError;
use rpd_shard::model::native::{COMMUNICATOR, MARK, MPI_CALL, MPI_REQUEST, RANGE, RCCL_CALL};
use rpd_shard::model::rocpd::{INFO_THREAD, STRING};
use rpd_shard::model::{TableId, Value};
use rpd_shard::record::{Loss, LossCause};

/// Puts items into a shard.
pub(super) struct ItemRows<'a> {
    pub(super) writer: &'a mut ShardWriter<Vec<u8>>,
    /// Id in the shard of each name.
    pub(super) names: &'a mut Vec<i64>,
}

impl ItemRows<'_> {
    /// Puts an item into the shard; what the format does not take is counted.
    #[inline]
    pub(super) fn put_or_count(&mut self, item: &Item) -> Result<(), WriteError> {
        match self.put(item) {
            Ok(()) => Ok(()),
            Err(error) => self.count(item, error),
        }
    }

    #[cold]
    fn count(&mut self, item: &Item, error: WriteError) -> Result<(), WriteError> {
        if !matches!(error, WriteError::TextTooLong { .. } | WriteError::UnknownTable(_)) {
            return Err(error);
        }
        let (source, table) = row_of(item);
        self.writer.loss(Loss { source, table, cause: LossCause::OverLimit, rows: Some(1) });
        if matches!(item, Item::Name(_)) {
            // The names behind it keep their places.
            self.names.push(self.writer.string(b"(too long)")?);
        }
        Ok(())
    }

    fn put(&mut self, item: &Item) -> Result<(), WriteError> {
        match item {
            Item::Name(text) => {
                self.names.push(self.writer.string(text)?);
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
            Item::System(rows) => rows.write(self.writer)?,
            Item::Process(process) => self.writer.process(process)?,
            Item::Command(command) => self.writer.command(command)?,
            Item::Clock(set) => self.writer.clock(set)?,
            Item::Probes(burst) => self.writer.probes(burst)?,
            Item::Loss(loss) => self.writer.loss(loss.clone()),
            Item::Keep { .. } | Item::End => {}
        }
        Ok(())
    }

    #[inline]
    pub(super) fn range(&mut self, span: &Span) -> Result<(), WriteError> {
        let row = self.span(span);
        self.writer.push(span.source, RANGE, &row).map(drop)
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

/// The process and table that an item is a row of.
fn row_of(item: &Item) -> (u32, Option<TableId>) {
    match item {
        Item::Name(_) => (0, Some(STRING)),
        Item::Thread { source, .. } => (*source, Some(INFO_THREAD)),
        Item::Mark(span) => (span.source, Some(MARK)),
        Item::Mpi(span, _) => (span.source, Some(MPI_CALL)),
        Item::Rccl(span, _) => (span.source, Some(RCCL_CALL)),
        Item::Request(span, _) => (span.source, Some(MPI_REQUEST)),
        Item::Communicator(span, _) => (span.source, Some(COMMUNICATOR)),
        Item::System(_)
        | Item::Process(_)
        | Item::Command(_)
        | Item::Clock(_)
        | Item::Probes(_)
        | Item::Loss(_)
        | Item::Keep { .. }
        | Item::End => (0, None),
    }
}
