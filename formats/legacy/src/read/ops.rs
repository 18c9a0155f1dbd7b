//! Converts `rocpd_op`: GPU operations, joined to the calls that launched them.

use super::devices::{KernelIds, RpdProcessor};
use super::follow::JoinedRows;
use super::ids::IdMap;
use super::launches::{LaunchQuery, OpLaunch};
use super::output::RpdOutput;
use super::schema::{RpdFile, Select, identifier};
use super::value::{int, text};
use super::{EMPTY_JSON, PLAIN_EVENT, RpdReadError, UNKNOWN};
use rpd_shard::model::row_types::{
    EventKey, EventRow, KernelDispatchRow, MemoryCopyRow, QueueKey, StackId, StreamKey, ThreadKey,
    WholeNumber,
};
use rpd_shard::model::{LocalNs, rocpd};
use rpd_translator::cut_text;
use rusqlite::Row;
use rusqlite::types::ValueRef;
use serde_json::json;
use std::collections::BTreeMap;

/// Type of a dispatch if the file states no other.
const DISPATCH: &[u8] = b"KernelExecution";
/// RPD's types of copies, with the names and directions that rocprofv3 uses.
const COPIES: [(&str, &str, CopyDirection); 4] = [
    (
        "CopyHostToDevice",
        "MEMORY_COPY_HOST_TO_DEVICE",
        CopyDirection { to_gpu: true, from_gpu: false, kind: 1 },
    ),
    (
        "CopyDeviceToHost",
        "MEMORY_COPY_DEVICE_TO_HOST",
        CopyDirection { to_gpu: false, from_gpu: true, kind: 2 },
    ),
    (
        "CopyDeviceToDevice",
        "MEMORY_COPY_DEVICE_TO_DEVICE",
        CopyDirection { to_gpu: true, from_gpu: true, kind: 3 },
    ),
    ("CopyHostToHost", "MEMORY_COPY_HOST_TO_HOST", CopyDirection { to_gpu: false, from_gpu: false, kind: 0 }),
];

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct CopyDirection {
    to_gpu: bool,
    from_gpu: bool,
    /// `hipMemcpyKind`.
    kind: i64,
}

/// The kind of an operation type.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum OpKind {
    Dispatch,
    /// A copy, with name and direction if the type states them.
    Copy(Option<(&'static str, CopyDirection)>),
}

impl OpKind {
    fn of(op_type: &[u8]) -> OpKind {
        let plain: Vec<u8> =
            op_type.iter().filter(|b| b.is_ascii_alphanumeric()).map(u8::to_ascii_lowercase).collect();
        let Some(rest) = [b"memory".as_slice(), b"mem", b""]
            .iter()
            .find_map(|prefix| plain.strip_prefix(*prefix).and_then(|rest| rest.strip_prefix(b"copy")))
            .or_else(|| plain.strip_prefix(b"memcpy"))
        else {
            return OpKind::Dispatch;
        };
        // Also matches CopyHostToDevice2D.
        OpKind::Copy(COPIES.iter().find_map(|(spelled, name, direction)| {
            let ends = spelled.trim_start_matches("Copy").to_ascii_lowercase();
            rest.starts_with(ends.as_bytes()).then_some((*name, *direction))
        }))
    }
}

/// Returns whether an operation of this type becomes a kernel dispatch.
pub(super) fn is_dispatch(op_type: &[u8]) -> bool {
    OpKind::of(op_type) == OpKind::Dispatch
}

/// Positions of an operation's columns in a row.
struct OpColumns {
    id: usize,
    gpu: usize,
    queue: usize,
    sequence: usize,
    signal: usize,
    start: usize,
    end: usize,
    description_id: usize,
    op_type_id: usize,
    description: usize,
    op_type: usize,
}

impl OpColumns {
    fn add(select: &mut Select<'_>) -> OpColumns {
        let op = "rocpd_op";
        OpColumns {
            id: select.column(op, "o", "id"),
            gpu: select.column(op, "o", "gpuId"),
            queue: select.column(op, "o", "queueId"),
            sequence: select.column(op, "o", "sequenceId"),
            signal: select.column(op, "o", "completionSignal"),
            start: select.column(op, "o", "start"),
            end: select.column(op, "o", "end"),
            description_id: select.column(op, "o", "description_id"),
            op_type_id: select.column(op, "o", "opType_id"),
            description: select.text((op, "o", "description_id"), "rocpd_string", "d"),
            op_type: select.text((op, "o", "opType_id"), "rocpd_string", "t"),
        }
    }
}

/// Results of translating the operations.
#[derive(Default)]
pub(super) struct TranslatedOps {
    /// The event of each operation.
    pub(super) ids: IdMap,
    /// End of the last operation of each process.
    pub(super) last: BTreeMap<u32, i64>,
}

/// Writes all operations.
pub(super) fn translate(calls: &IdMap, output: &mut RpdOutput<'_>) -> Result<TranslatedOps, RpdReadError> {
    let (input, census) = (output.input, output.census);
    let mut operations = TranslatedOps::default();
    if input.table("rocpd_op").is_none() {
        return Ok(operations);
    }
    let failed = |source| input.error("rocpd_op", source);
    let mut select = input.select("rocpd_op", "o");
    let columns = OpColumns::add(&mut select);
    let mut query = input.conn.prepare(&select.sql("ORDER BY o.id")).map_err(failed)?;
    let mut rows = query.query([]).map_err(failed)?;
    let mut further = 0;
    let pairs_sql = match pairs_sql(input) {
        Some(sql) => sql,
        None => {
            if input.has_rows("rocpd_op")? {
                output.lose_unknown();
                let what = "there is no table rocpd_api_ops with op_id and api_id: no operation is linked to its call";
                output.translator.warn(what.to_owned());
            }
            "SELECT NULL LIMIT 0".to_owned()
        }
    };
    let mut pairs = input.conn.prepare(&pairs_sql).map_err(failed)?;
    let pairs = pairs.query([]).map_err(failed)?;
    let mut pairs = JoinedRows::new(pairs, input, "rocpd_api_ops", |row| row.get_ref(1).ok().and_then(int))?;
    let mut launches = LaunchQuery::new(input)?;
    let nothing = OpLaunch::default();

    while let Some(row) = rows.next().map_err(failed)? {
        let value = |column| row.get_ref(column).unwrap_or(ValueRef::Null);
        output.count_read("rocpd_op", 1);
        let id = int(value(columns.id));
        let mut call = None;
        while let Some(found) = id.map_or(Ok(None), |id| pairs.next_of(id))? {
            match (call, found) {
                (_, None) => output.miss("rocpd_api_ops", "api_id"),
                (None, found) => call = found,
                // An operation has one call; further calls are not kept.
                (Some(_), Some(_)) => further += 1,
            }
        }
        // A call without a time has no row in the shard, but its sizes and its process remain usable.
        let stack = call.and_then(|call| calls.get(call));
        if call.is_some() && stack.is_none() {
            output.miss("rocpd_api_ops", "api_id");
        }
        let source = stack.map_or_else(|| census.by_place(id, int(value(columns.gpu))), |(source, _)| source);
        let Some(start) = int(value(columns.start)) else {
            output.miss("rocpd_op", "start");
            output.lose(source, "rocpd_op", Some(rocpd::KERNEL_DISPATCH), 1);
            continue;
        };
        let end = int(value(columns.end)).unwrap_or_else(|| {
            output.miss("rocpd_op", "end");
            start
        });
        let launch = call.map_or(Ok(&nothing), |call| launches.find(call))?;
        let row = OpRow { row, columns: &columns, source, start, end, id, launch };
        let event = row.add(stack.map(|(_, stack)| stack), output)?;
        if let Some(id) = id {
            operations.ids.add(id, source, event.get());
        }
        operations.last.entry(source).and_modify(|last| *last = end.max(*last)).or_insert(end);
    }
    let (read, strays) = pairs.finish()?;
    output.count_read("rocpd_api_ops", read);
    output.misses("rocpd_api_ops", "op_id", strays);
    // A lost link loses no event, and RocPD has no table for links.
    output.lose(0, "rocpd_api_ops", None, strays + further);
    if further > 0 {
        let why = "RocPD links an operation to one call, and these lead to a further one";
        output.translator.warn(format!("rows of rocpd_api_ops that are left out: {further}; {why}"));
    }
    Ok(operations)
}

/// Returns a query for pairs of operation and call, ordered by operation; `None` if the file lacks these columns.
fn pairs_sql(input: &RpdFile) -> Option<String> {
    let info = input.table("rocpd_api_ops")?;
    info.column("op_id").and(info.column("api_id"))?;
    let order = info.column("id").map_or(String::new(), |id| format!(", {}", identifier(&id.name)));
    Some(format!("SELECT op_id, api_id FROM rocpd_api_ops ORDER BY op_id{order}"))
}

/// One operation.
struct OpRow<'r> {
    row: &'r Row<'r>,
    columns: &'r OpColumns,
    source: u32,
    start: i64,
    end: i64,
    id: Option<i64>,
    launch: &'r OpLaunch,
}

impl OpRow<'_> {
    fn value(&self, column: usize) -> ValueRef<'_> {
        self.row.get_ref(column).unwrap_or(ValueRef::Null)
    }

    fn int(&self, column: usize) -> Option<i64> {
        int(self.value(column))
    }

    /// Writes the operation; returns the key of its event.
    fn add(&self, stack: Option<i64>, output: &mut RpdOutput<'_>) -> Result<EventKey, RpdReadError> {
        for (id, column) in
            [(self.columns.description, "description_id"), (self.columns.op_type, "opType_id")]
        {
            if self.value(id) == ValueRef::Null {
                output.miss("rocpd_op", column);
            }
        }
        let op_type = text(self.value(self.columns.op_type)).unwrap_or(UNKNOWN.into()).into_owned();
        let operation = OpKind::of(&op_type);
        let category = match operation {
            OpKind::Dispatch => b"KERNEL_DISPATCH".as_slice(),
            OpKind::Copy(_) => b"MEMORY_COPY",
        };
        let category = output.string(category)?;
        let stack_id = Some(StackId(stack.unwrap_or(0)));
        let event = EventRow { category_id: Some(category), stack_id, ..PLAIN_EVENT };
        let event = output.row(self.source, &event)?;
        let gpu = output.census.gpu(self.int(self.columns.gpu));
        // AMD's views require a thread: if it is not known, an unknown thread is used.
        let thread = output.thread(self.source, output.census.tid(self.launch.tid))?;
        let queue = output.census.gpu(self.int(self.columns.queue));
        let queue = output.queue(self.source, gpu, queue)?;
        let stream = self.launch.stream.as_deref().unwrap_or_default();
        let stream = output.stream(self.source, stream)?;
        let place = OpPlace { thread, gpu: RpdProcessor::Gpu(gpu), queue, stream, event };
        match operation {
            OpKind::Dispatch => self.dispatch(&op_type, place, output)?,
            OpKind::Copy(known) => {
                output.unknown_copy_sizes += u64::from(self.launch.copy_size.is_none());
                self.copy(&op_type, known, place, output)?;
            }
        }
        Ok(event)
    }

    fn dispatch(
        &self,
        op_type: &[u8],
        place: OpPlace,
        output: &mut RpdOutput<'_>,
    ) -> Result<(), RpdReadError> {
        let description = text(self.value(self.columns.description)).filter(|text| !text.is_empty());
        let ids = KernelIds {
            description: self.int(self.columns.description_id),
            op_type: self.int(self.columns.op_type_id).filter(|_| description.is_none()),
            kernel_name: self.launch.kernel_name_id,
        };
        let shown = description.as_deref().unwrap_or(op_type);
        let kernel = output.kernel(self.source, ids, (shown, self.launch.kernel_name.as_deref()))?;
        let agent = output.agent(self.source, place.gpu)?;
        let spelled = (op_type != DISPATCH).then_some(op_type);
        let sizes = &self.launch.sizes;
        let is_missing =
            |of: std::ops::Range<usize>| sizes.get(of).is_some_and(|s| s.iter().all(Option::is_none));
        let marks = [("no_grid", is_missing(0..3)), ("no_workgroup", is_missing(3..6))];
        let extdata = self.extdata(spelled, None, &marks);
        let region_name = output.string(b"")?;
        let [grid_x, grid_y, grid_z, group_x, group_y, group_z, group_segment, private_segment] =
            self.launch.sizes;
        let size = |size: Option<i64>| WholeNumber::Signed(size.unwrap_or(0));
        let row = KernelDispatchRow {
            tid: Some(place.thread),
            agent_id: agent,
            kernel_id: kernel,
            dispatch_id: self.id.unwrap_or(0).into(),
            queue_id: place.queue,
            stream_id: place.stream,
            start: LocalNs(self.start),
            end: LocalNs(self.end),
            private_segment_size: private_segment.map(Into::into),
            group_segment_size: group_segment.map(Into::into),
            workgroup_size_x: size(group_x),
            workgroup_size_y: size(group_y),
            workgroup_size_z: size(group_z),
            grid_size_x: size(grid_x),
            grid_size_y: size(grid_y),
            grid_size_z: size(grid_z),
            region_name_id: Some(region_name),
            event_id: Some(place.event),
            extdata: Some(extdata.as_deref().map_or(EMPTY_JSON, str::as_bytes)),
        };
        output.row(self.source, &row)?;
        Ok(())
    }

    fn copy(
        &self,
        op_type: &[u8],
        known: Option<(&'static str, CopyDirection)>,
        place: OpPlace,
        output: &mut RpdOutput<'_>,
    ) -> Result<(), RpdReadError> {
        let by_kind = || COPIES.iter().map(|copy| copy.2).find(|d| Some(d.kind) == self.launch.copy_kind);
        let direction = known.map(|(_, direction)| direction).or_else(by_kind);
        let (to_gpu, from_gpu) = direction.map_or((true, true), |d| (d.to_gpu, d.from_gpu));
        let mut end = |is_gpu| output.agent(self.source, if is_gpu { place.gpu } else { RpdProcessor::Host });
        let (to, from) = (end(to_gpu)?, end(from_gpu)?);
        let name = output.string(known.map_or(op_type, |(name, _)| name.as_bytes()))?;
        let usual = COPIES.iter().any(|copy| copy.0.as_bytes() == op_type);
        let description = text(self.value(self.columns.description)).filter(|text| !text.is_empty());
        let spelled = (!usual && known.is_some()).then_some(op_type);
        let extdata = self.extdata(spelled, description.as_deref(), &[]);
        let region_name = output.string(b"")?;
        let [to_address, from_address] = self.launch.copy_ends;
        let row = MemoryCopyRow {
            tid: Some(place.thread),
            start: LocalNs(self.start),
            end: LocalNs(self.end),
            name_id: name,
            dst_agent_id: Some(to),
            dst_address: to_address.map(Into::into),
            src_agent_id: Some(from),
            src_address: from_address.map(Into::into),
            size: self.launch.copy_size.unwrap_or(0).into(),
            queue_id: Some(place.queue),
            stream_id: Some(place.stream),
            region_name_id: Some(region_name),
            event_id: Some(place.event),
            extdata: Some(extdata.as_deref().map_or(EMPTY_JSON, str::as_bytes)),
        };
        output.row(self.source, &row)?;
        Ok(())
    }

    /// Returns attributes of an operation that have no column, without default values. Of `marks`, only those that
    /// are set are stored.
    fn extdata(
        &self,
        op_type: Option<&[u8]>,
        description: Option<&[u8]>,
        marks: &[(&str, bool)],
    ) -> Option<String> {
        let lossy = |text: &[u8]| json!(String::from_utf8_lossy(cut_text(text, 64 << 10)));
        let sequence = self.int(self.columns.sequence).filter(|sequence| *sequence != 0);
        let signal = text(self.value(self.columns.signal)).filter(|signal| !signal.is_empty());
        let all = [
            ("op_type", op_type.map(lossy)),
            ("description", description.map(lossy)),
            ("sequence", sequence.map(|sequence| json!(sequence))),
            ("signal", signal.map(|signal| lossy(&signal))),
        ];
        let marks = marks.iter().map(|(key, is_set)| (*key, is_set.then_some(json!(true))));
        let all = all.into_iter().chain(marks);
        let there: serde_json::Map<_, _> =
            all.filter_map(|(key, value)| Some((key.to_owned(), value?))).collect();
        (!there.is_empty()).then(|| json!({ "rpd": there }).to_string())
    }
}

/// Thread, GPU, queue, stream and event of an operation.
struct OpPlace {
    thread: ThreadKey,
    gpu: RpdProcessor,
    queue: QueueKey,
    stream: StreamKey,
    event: EventKey,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn copies_are_known_by_their_type_however_it_is_spelled() {
        let name = |op_type: &str| match OpKind::of(op_type.as_bytes()) {
            OpKind::Dispatch => "dispatch",
            OpKind::Copy(known) => known.map_or("copy", |(name, _)| name),
        };
        for spelled in
            ["CopyHostToDevice", "CopyHostToDevice2D", "MEMORY_COPY_HOST_TO_DEVICE", "MemcpyHostToDevice"]
        {
            assert_eq!(name(spelled), "MEMORY_COPY_HOST_TO_DEVICE", "{spelled}");
        }
        assert_eq!(name("CopyDeviceToHost"), "MEMORY_COPY_DEVICE_TO_HOST");
        assert_eq!(name("CopyImage"), "copy");
        for other in ["KernelExecution", "Task", "FillBuffer", "Barrier", "Marker", ""] {
            assert_eq!(name(other), "dispatch", "{other}");
        }
    }
}
