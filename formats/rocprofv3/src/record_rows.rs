//! Converts records to rows.

use crate::process_output::{ElementError, ProcessOutput};
use crate::record::{
    BufferRecord, CallArgument, CorrelationIds, CountedDispatch, CounterValue, DispatchInfo,
};
use rpd_shard::model::LocalNs;
use rpd_shard::model::row_types::{
    AgentKey, ArgRow, EventKey, EventRow, KernelDispatchRow, MemoryAllocateRow, MemoryCopyRow, PmcEventRow,
    PmcKey, RegionRow, SampleRow, StackId, StringId,
};

/// Members that every record has.
struct RecordBase {
    tid: u64,
    start: LocalNs,
    end: LocalNs,
    correlation: CorrelationIds,
}

impl RecordBase {
    fn of(record: &BufferRecord) -> Result<RecordBase, ElementError> {
        let missing = |name: &str| ElementError::Bad(format!("it has no {name}"));
        Ok(RecordBase {
            tid: record.thread.ok_or_else(|| missing("thread_id"))?,
            start: LocalNs(record.start.ok_or_else(|| missing("start_timestamp"))?),
            end: LocalNs(record.end.ok_or_else(|| missing("end_timestamp"))?),
            correlation: record.correlation.ok_or_else(|| missing("correlation_id"))?,
        })
    }
}

/// Writes the rows of one record, after the record was found to be valid.
impl ProcessOutput<'_> {
    /// Writes the event of a record. Stack ids above `i64::MAX` keep their bits, because they are only compared.
    fn write_event(
        &mut self,
        category: StringId,
        correlation: &CorrelationIds,
        parent: Option<u64>,
        extdata: Option<String>,
    ) -> Result<EventKey, ElementError> {
        let row = EventRow {
            category_id: Some(category),
            stack_id: Some(StackId::from_unsigned(correlation.internal)),
            parent_stack_id: parent.map(StackId::from_unsigned),
            correlation_id: Some(correlation.external.into()),
            extdata: extdata.as_deref().map(str::as_bytes),
            ..EventRow::default()
        };
        self.row(&row)
    }

    /// Writes an API call or a marker: a region, or a sample if its duration is 0.
    pub(crate) fn write_call(&mut self, record: &BufferRecord, api: &str) -> Result<(), ElementError> {
        let base = RecordBase::of(record)?;
        let thread = self.thread_key(base.tid)?;
        let category = self.category(record, api)?;
        let operation = self.known.operation(record.kind, record.operation);
        let unnamed = || format!("operation {}", record.operation.map_or(-1, |o| o as i64));
        let name = operation.map_or_else(unnamed, str::to_owned);
        let message = match api {
            "marker_api" if name.ends_with("GetThreadId") => Some(name.as_str().into()),
            "marker_api" => self.known.markers.get(base.correlation.internal),
            _ => None,
        };
        let extdata = message.map(|text| serde_json::json!({ "message": text.as_ref() }).to_string());
        let name = self.string(&name)?;
        let event = self.write_event(category, &base.correlation, base.correlation.ancestor, extdata)?;
        if base.start == base.end {
            let track = self.track_key(thread, category)?;
            let (timestamp, event_id) = (base.start, Some(event));
            self.row(&SampleRow { track_id: track, timestamp, event_id, extdata: None })?;
        } else {
            let (start, end, event_id) = (base.start, base.end, Some(event));
            self.row(&RegionRow { tid: thread, start, end, name_id: name, event_id, extdata: None })?;
        }
        self.write_arguments(event, record.arguments.as_deref().unwrap_or_default())
    }

    fn write_arguments(&mut self, event: EventKey, arguments: &[CallArgument]) -> Result<(), ElementError> {
        for (position, argument) in (0i64..).zip(arguments) {
            let row = ArgRow {
                event_id: event,
                position: position.into(),
                kind: argument.kind.as_bytes(),
                name: argument.name.as_bytes(),
                value: argument.value.as_deref().map(str::as_bytes),
                extdata: None,
            };
            self.row(&row)?;
        }
        Ok(())
    }

    pub(crate) fn write_kernel(
        &mut self,
        record: &BufferRecord,
        is_counted: bool,
    ) -> Result<(), ElementError> {
        let base = RecordBase::of(record)?;
        let Some(info) = record.dispatch else {
            return Err(ElementError::Bad("it has no dispatch_info".into()));
        };
        let category = self.category(record, "kernel_dispatch")?;
        let stream = record.stream.map_or(0, |stream| stream.handle);
        let event = self.write_dispatch(&base, &info, category, stream, base.correlation.external)?;
        if is_counted {
            self.known.remember(info.dispatch_id, event);
        }
        Ok(())
    }

    /// Writes the rows of a dispatch; returns the key of its event.
    fn write_dispatch(
        &mut self,
        base: &RecordBase,
        info: &DispatchInfo,
        category: StringId,
        stream: u64,
        rename: u64,
    ) -> Result<EventKey, ElementError> {
        let thread = self.thread_key(base.tid)?;
        let agent = self.agent_key(info.agent_id.handle)?;
        let kernel = self.kernel_key(info.kernel_id)?;
        let queue = self.queue_key(info.queue_id.handle)?;
        let stream = self.stream_key(stream)?;
        let renamed = self.known.renames.get(rename);
        let region = self.string(renamed.as_deref().unwrap_or(""))?;
        let event = self.write_event(category, &base.correlation, Some(base.correlation.internal), None)?;
        let (workgroup, grid) = (info.workgroup_size, info.grid_size);
        let row = KernelDispatchRow {
            tid: Some(thread),
            agent_id: agent,
            kernel_id: kernel,
            dispatch_id: info.dispatch_id.into(),
            queue_id: queue,
            stream_id: stream,
            start: base.start,
            end: base.end,
            private_segment_size: info.private_segment_size.map(Into::into),
            group_segment_size: info.group_segment_size.map(Into::into),
            workgroup_size_x: workgroup.x.into(),
            workgroup_size_y: workgroup.y.into(),
            workgroup_size_z: workgroup.z.into(),
            grid_size_x: grid.x.into(),
            grid_size_y: grid.y.into(),
            grid_size_z: grid.z.into(),
            region_name_id: Some(region),
            event_id: Some(event),
            extdata: None,
        };
        self.row(&row)?;
        Ok(event)
    }

    /// Writes the counter values of a dispatch. Writes the dispatch too, if only counters were recorded.
    pub(crate) fn write_counters(&mut self, counted: &CountedDispatch) -> Result<(), ElementError> {
        let data = &counted.dispatch_data;
        let info = &data.dispatch_info;
        let counter = |value: &CounterValue| self.counter_key(value.counter_id.handle);
        let counters: Vec<PmcKey> = counted.records.iter().map(counter).collect::<Result<_, _>>()?;
        let event = match self.known.dispatch(info.dispatch_id) {
            Some(event) => event,
            None if !self.known.can_remember() => return Err(ElementError::OverLimit),
            None => {
                let base = RecordBase {
                    tid: counted.thread_id,
                    start: LocalNs(data.start_timestamp),
                    end: LocalNs(data.end_timestamp),
                    correlation: data.correlation_id,
                };
                let category = self.string("KERNEL_DISPATCH")?;
                let stream = counted.stream_id.map_or(0, |stream| stream.handle);
                let rename = counted.kernel_rename_val.max(data.correlation_id.external);
                let event = self.write_dispatch(&base, info, category, stream, rename)?;
                self.known.remember(info.dispatch_id, event);
                event
            }
        };
        for (counter, value) in counters.into_iter().zip(&counted.records) {
            let (event_id, value) = (Some(event), Some(value.value.0));
            self.row(&PmcEventRow { event_id, pmc_id: counter, value, extdata: None })?;
        }
        Ok(())
    }

    pub(crate) fn write_copy(&mut self, record: &BufferRecord) -> Result<(), ElementError> {
        let base = RecordBase::of(record)?;
        let Some(bytes) = record.copied.bytes else {
            return Err(ElementError::Bad("it has no bytes".into()));
        };
        let thread = self.thread_key(base.tid)?;
        let target = self.optional_agent_key(record.copied.target.map(|agent| agent.handle))?;
        let source = self.optional_agent_key(record.copied.source.map(|agent| agent.handle))?;
        let stream = self.stream_key(record.stream.map_or(0, |stream| stream.handle))?;
        let category = self.category(record, "memory_copy")?;
        let name =
            self.known.operation(record.kind, record.operation).unwrap_or("MEMORY_COPY_NONE").to_owned();
        let name = self.string(&name)?;
        let event = self.write_event(category, &base.correlation, Some(base.correlation.internal), None)?;
        let row = MemoryCopyRow {
            tid: Some(thread),
            start: base.start,
            end: base.end,
            name_id: name,
            dst_agent_id: target,
            dst_address: record.copied.target_address.map(|address| address.0.into()),
            src_agent_id: source,
            src_address: record.copied.source_address.map(|address| address.0.into()),
            size: bytes.into(),
            queue_id: None,
            stream_id: Some(stream),
            region_name_id: None,
            event_id: Some(event),
            extdata: None,
        };
        self.row(&row)?;
        Ok(())
    }

    /// Writes an allocation of the program, or scratch memory that the runtime assigned to a kernel.
    pub(crate) fn write_allocation(
        &mut self,
        record: &BufferRecord,
        array: &str,
    ) -> Result<(), ElementError> {
        let base = RecordBase::of(record)?;
        let thread = self.thread_key(base.tid)?;
        let category = self.category(record, array)?;
        let operation = self.known.operation(record.kind, record.operation).unwrap_or_default();
        let (kind, level) = type_and_level(operation, array);
        // When memory is freed, the runtime names no agent or a wrong one.
        let of_agent = record.agent.filter(|_| kind == Some(b"ALLOC"));
        let agent = self.optional_agent_key(of_agent.map(|agent| agent.handle))?;
        let queue = self.queue_key(record.queue.map_or(0, |queue| queue.handle))?;
        let stream = self.stream_key(record.stream.map_or(0, |stream| stream.handle))?;
        let extdata = record.allocated.flags.map(|flags| format!("{{\"flags\": \"{flags}\"}}"));
        let event = self.write_event(category, &base.correlation, base.correlation.ancestor, None)?;
        let row = MemoryAllocateRow {
            tid: Some(thread),
            agent_id: agent,
            kind,
            level: Some(level),
            start: base.start,
            end: base.end,
            address: record.allocated.address.map(|address| address.0.into()),
            size: record.allocated.bytes.unwrap_or(0).into(),
            queue_id: Some(queue),
            stream_id: Some(stream),
            event_id: Some(event),
            extdata: extdata.as_deref().map(str::as_bytes),
        };
        self.row(&row)?;
        Ok(())
    }

    /// Returns the agent of a handle that may be missing; handle 0 means no agent.
    fn optional_agent_key(&mut self, handle: Option<u64>) -> Result<Option<AgentKey>, ElementError> {
        match handle {
            None | Some(0) => Ok(None),
            Some(handle) => Ok(Some(self.agent_key(handle)?)),
        }
    }

    /// Returns the category of a record: the name of its kind, or of its array if the file has no names.
    fn category(&mut self, record: &BufferRecord, array: &str) -> Result<StringId, ElementError> {
        let otherwise = array.to_ascii_uppercase();
        let name = self.known.kind(record.kind, &otherwise).to_owned();
        self.string(&name)
    }
}

/// Returns type and level of an allocation, for example `MEMORY_ALLOCATION_VMEM_ALLOCATE` or
/// `SCRATCH_MEMORY_ASYNC_RECLAIM`.
fn type_and_level(operation: &str, array: &str) -> (Option<&'static [u8]>, &'static [u8]) {
    let name = operation.trim_start_matches("MEMORY_ALLOCATION_").trim_start_matches("SCRATCH_MEMORY_");
    let level: &[u8] = match name {
        _ if array == "scratch_memory" => b"SCRATCH",
        name if name.starts_with("VMEM_") => b"VIRTUAL",
        _ => b"REAL",
    };
    let kind: Option<&[u8]> = match name.trim_start_matches("VMEM_").trim_start_matches("ASYNC_") {
        "ALLOC" | "ALLOCATE" => Some(b"ALLOC"),
        "FREE" => Some(b"FREE"),
        "REALLOC" => Some(b"REALLOC"),
        "RECLAIM" => Some(b"RECLAIM"),
        _ => None,
    };
    (kind, level)
}
