//! Typed rows: one struct per table; its fields are the columns of the table by name. The descriptions of these
//! tables follow from the structs.
//!
//! Programs that add single rows use these structs, so that columns in the wrong order do not compile. Programs
//! that move whole columns (the collector's writer, the merger) use [`Rows`](super::Rows) and
//! [`RowsBuilder`](super::RowsBuilder).
//!
//! The columns `nid` and `pid` have no fields: a source is one process, and the rows of its node and process have
//! the key 1. A field that is `None` is stored as NULL. At the end of a row it gets the default of its column.

use super::columns::reference;
use super::row_cells::RowCell;
pub use super::row_cells::{RowKey, StackId, StringId, WholeNumber};
use super::table::{Table, TableId};
pub use super::table_row::TableRow;
use super::table_row::{OWNER, column_name, given, owner_cell, owner_column, row_types};
use super::time::LocalNs;
use super::value::Value;
use super::{native, rocpd};

/// Values of `type` and `target_arch`.
const PROCESSORS: [&str; 2] = ["CPU", "GPU"];
/// Ids in the JSON of a kernel.
const KERNEL_SYMBOL_REFS: [(&[&str], TableId); 2] =
    [(&["kernel_id"], rocpd::INFO_KERNEL_SYMBOL), (&["code_object_id"], rocpd::INFO_CODE_OBJECT)];

row_types! {
    /// A thread.
    ThreadRow<'a>, ThreadKey (rocpd::INFO_THREAD, "rocpd_info_thread") {
        @nid
        /// Process id of the parent of the process.
        ppid: Option<WholeNumber>,
        @pid
        /// Id of the thread in the operating system; negative for tracks that are not threads.
        tid: WholeNumber,
        /// Name.
        name: Option<&'a [u8]>,
        /// First time of the thread.
        start: Option<LocalNs>,
        /// Last time of the thread.
        end: Option<LocalNs>,
        /// JSON.
        extdata: Option<&'a [u8]> => json(&[]),
    }

    /// A CPU or GPU as the process sees it.
    #[derive(Default)]
    AgentRow<'a>, AgentKey (rocpd::INFO_AGENT, "rocpd_info_agent") {
        @nid @pid
        /// `CPU` or `GPU`.
        kind = "type": Option<&'a [u8]> => one_of(&PROCESSORS),
        /// Index among all agents of the node, CPUs first.
        absolute_index: Option<WholeNumber>,
        /// Index among the agents that the process can use, CPUs first.
        logical_index: Option<WholeNumber>,
        /// Index among the agents of its type.
        type_index: Option<WholeNumber>,
        /// Unique id.
        uuid: Option<WholeNumber>,
        /// Name.
        name: Option<&'a [u8]>,
        /// Name of the model.
        model_name: Option<&'a [u8]>,
        /// Name of the vendor.
        vendor_name: Option<&'a [u8]>,
        /// Name of the product.
        product_name: Option<&'a [u8]>,
        /// Name for users.
        user_name: Option<&'a [u8]>,
        /// JSON.
        extdata: Option<&'a [u8]> => json(&[]),
    }

    /// A queue of a GPU.
    #[derive(Default)]
    QueueRow<'a>, QueueKey (rocpd::INFO_QUEUE, "rocpd_info_queue") {
        @nid @pid
        /// Name.
        name: Option<&'a [u8]>,
        /// JSON.
        extdata: Option<&'a [u8]> => json(&[]),
    }

    /// A stream.
    #[derive(Default)]
    StreamRow<'a>, StreamKey (rocpd::INFO_STREAM, "rocpd_info_stream") {
        @nid @pid
        /// Name.
        name: Option<&'a [u8]>,
        /// JSON.
        extdata: Option<&'a [u8]> => json(&[]),
    }

    /// A counter.
    #[derive(Default)]
    PmcRow<'a>, PmcKey (rocpd::INFO_PMC, "rocpd_info_pmc") {
        @nid @pid
        /// Agent with the events that the counter counts.
        agent_id: Option<AgentKey>,
        /// `CPU` or `GPU`.
        target_arch: Option<&'a [u8]> => one_of(&PROCESSORS),
        /// Code of the hardware event.
        event_code: Option<WholeNumber> => declared("INT"),
        /// Instance number.
        instance_id: Option<WholeNumber>,
        /// Name.
        name: &'a [u8],
        /// Short name.
        symbol: &'a [u8],
        /// Description.
        description: Option<&'a [u8]>,
        /// Long description.
        long_description: Option<&'a [u8]> => default(""),
        /// Component that the counter belongs to.
        component: Option<&'a [u8]>,
        /// Unit.
        units: Option<&'a [u8]> => default(""),
        /// `ABS`, `ACCUM` or `RELATIVE`.
        value_type: Option<&'a [u8]> => one_of(&["ABS", "ACCUM", "RELATIVE"]),
        /// Hardware block.
        block: Option<&'a [u8]>,
        /// Formula of a derived counter.
        expression: Option<&'a [u8]>,
        /// 1 if the value is constant.
        is_constant: Option<WholeNumber>,
        /// 1 if the counter is derived.
        is_derived: Option<WholeNumber>,
        /// JSON.
        extdata: Option<&'a [u8]> => json(&[]),
    }

    /// A code object.
    #[derive(Default)]
    CodeObjectRow<'a>, CodeObjectKey (rocpd::INFO_CODE_OBJECT, "rocpd_info_code_object") {
        @nid @pid
        /// Agent that the code is for.
        agent_id: Option<AgentKey>,
        /// URI that the code was loaded from.
        uri: Option<&'a [u8]>,
        /// Load address of the code.
        load_base: Option<WholeNumber> => declared("BIGINT"),
        /// Size of the code, bytes.
        load_size: Option<WholeNumber> => declared("BIGINT"),
        /// Difference between the load address and the address in the file.
        load_delta: Option<WholeNumber> => declared("BIGINT"),
        /// `FILE` or `MEMORY`.
        storage_type: Option<&'a [u8]> => one_of(&["FILE", "MEMORY"]),
        /// JSON.
        extdata: Option<&'a [u8]> => json(&[(&["code_object_id"], rocpd::INFO_CODE_OBJECT)]),
    }

    /// A kernel.
    KernelSymbolRow<'a>, KernelSymbolKey (rocpd::INFO_KERNEL_SYMBOL, "rocpd_info_kernel_symbol") {
        @nid @pid
        /// The code object that contains the kernel.
        code_object_id: CodeObjectKey,
        /// Name in the code object.
        kernel_name: Option<&'a [u8]>,
        /// Name for display.
        display_name: Option<&'a [u8]>,
        /// Address of the kernel descriptor.
        kernel_object: Option<WholeNumber>,
        /// Size of the arguments, bytes.
        kernarg_segment_size: Option<WholeNumber>,
        /// Alignment of the arguments, bytes.
        kernarg_segment_alignment: Option<WholeNumber>,
        /// Memory per workgroup, bytes.
        group_segment_size: Option<WholeNumber>,
        /// Memory per work item, bytes.
        private_segment_size: Option<WholeNumber>,
        /// Number of scalar registers.
        sgpr_count: Option<WholeNumber>,
        /// Number of vector registers.
        arch_vgpr_count: Option<WholeNumber>,
        /// Number of accumulation registers.
        accum_vgpr_count: Option<WholeNumber>,
        /// JSON.
        extdata: Option<&'a [u8]> => json(&KERNEL_SYMBOL_REFS),
    }

    /// A track of samples of a thread or process.
    #[derive(Default)]
    TrackRow<'a>, TrackKey (rocpd::TRACK, "rocpd_track") {
        @nid @nullable_pid
        /// The thread; `None` for a track of the process.
        tid: Option<ThreadKey>,
        /// Name.
        name_id: Option<StringId>,
        /// JSON.
        extdata: Option<&'a [u8]> => json(&[]),
    }

    /// An event: the properties of a region, sample, dispatch, copy or allocation other than its times.
    #[derive(Default)]
    EventRow<'a>, EventKey (rocpd::EVENT, "rocpd_event") {
        /// Category.
        category_id: Option<StringId>,
        /// Stack id of the call.
        stack_id: Option<StackId>,
        /// Stack id of the enclosing call.
        parent_stack_id: Option<StackId> => near(1),
        /// Correlation id that the program assigned.
        correlation_id: Option<WholeNumber>,
        /// JSON: stack frames, innermost first.
        call_stack: Option<&'a [u8]> => json(&[]),
        /// JSON: source location.
        line_info: Option<&'a [u8]> => json(&[(&["pc", "code_object_id"], rocpd::INFO_CODE_OBJECT)]),
        /// JSON.
        extdata: Option<&'a [u8]> => json(&[]),
    }

    /// An arg of an event.
    ArgRow<'a>, ArgKey (rocpd::ARG, "rocpd_arg") {
        /// The event.
        event_id: EventKey,
        /// Index among the args of the event, from 0.
        position: WholeNumber,
        /// Type of the value.
        kind = "type": &'a [u8],
        /// Name.
        name: &'a [u8],
        /// Value as text.
        value: Option<&'a [u8]>,
        /// JSON.
        extdata: Option<&'a [u8]> => json(&[(&["stream_id"], rocpd::INFO_STREAM)]),
    }

    /// The value of a counter at an event.
    PmcEventRow<'a>, PmcEventKey (rocpd::PMC_EVENT, "rocpd_pmc_event") {
        /// The event.
        event_id: Option<EventKey>,
        /// The counter.
        pmc_id: PmcKey,
        /// The value.
        value: Option<f64> => default("0.0"),
        /// JSON.
        extdata: Option<&'a [u8]> => json(&[]).nullable(),
    }

    /// A call or range with a start and an end.
    RegionRow<'a>, RegionKey (rocpd::REGION, "rocpd_region") {
        @nid @pid
        /// The thread.
        tid: ThreadKey,
        /// Start time.
        start: LocalNs,
        /// End time.
        end: LocalNs => near(3),
        /// Name.
        name_id: StringId,
        /// The event.
        event_id: Option<EventKey>,
        /// JSON.
        extdata: Option<&'a [u8]> => json(&[]),
    }

    /// A point in time on a track.
    SampleRow<'a>, SampleKey (rocpd::SAMPLE, "rocpd_sample") {
        /// The track.
        track_id: TrackKey,
        /// Time of the sample.
        timestamp: LocalNs,
        /// The event.
        event_id: Option<EventKey>,
        /// JSON.
        extdata: Option<&'a [u8]> => json(&[]),
    }

    /// An execution of a kernel.
    KernelDispatchRow<'a>, KernelDispatchKey (rocpd::KERNEL_DISPATCH, "rocpd_kernel_dispatch") {
        @nid @pid
        /// The thread that launched the kernel.
        tid: Option<ThreadKey>,
        /// The GPU.
        agent_id: AgentKey,
        /// The kernel.
        kernel_id: KernelSymbolKey,
        /// Number of the dispatch.
        dispatch_id: WholeNumber,
        /// The queue.
        queue_id: QueueKey,
        /// The stream.
        stream_id: StreamKey,
        /// Start time.
        start: LocalNs,
        /// End time.
        end: LocalNs => near(8),
        /// Memory per work item, bytes.
        private_segment_size: Option<WholeNumber>,
        /// Memory per workgroup, bytes.
        group_segment_size: Option<WholeNumber>,
        /// Work items per workgroup, first dimension.
        workgroup_size_x: WholeNumber,
        /// Work items per workgroup, second dimension.
        workgroup_size_y: WholeNumber,
        /// Work items per workgroup, third dimension.
        workgroup_size_z: WholeNumber,
        /// Work items of the grid, first dimension.
        grid_size_x: WholeNumber,
        /// Work items of the grid, second dimension.
        grid_size_y: WholeNumber,
        /// Work items of the grid, third dimension.
        grid_size_z: WholeNumber,
        /// Name of the range around the launch.
        region_name_id: Option<StringId>,
        /// The event.
        event_id: Option<EventKey>,
        /// JSON.
        extdata: Option<&'a [u8]> => json(&[]),
    }

    /// A copy of memory.
    MemoryCopyRow<'a>, MemoryCopyKey (rocpd::MEMORY_COPY, "rocpd_memory_copy") {
        @nid @pid
        /// The thread that requested the copy.
        tid: Option<ThreadKey>,
        /// Start time.
        start: LocalNs,
        /// End time.
        end: LocalNs => near(3),
        /// Name, which is the direction of the copy.
        name_id: StringId,
        /// Agent with the memory that is written.
        dst_agent_id: Option<AgentKey>,
        /// Address of the destination.
        dst_address: Option<WholeNumber>,
        /// Agent with the memory that is read.
        src_agent_id: Option<AgentKey>,
        /// Address of the source.
        src_address: Option<WholeNumber>,
        /// Size, bytes.
        size: WholeNumber,
        /// The queue.
        queue_id: Option<QueueKey>,
        /// The stream.
        stream_id: Option<StreamKey>,
        /// Name of the range around the call.
        region_name_id: Option<StringId>,
        /// The event.
        event_id: Option<EventKey>,
        /// JSON.
        extdata: Option<&'a [u8]> => json(&[]),
    }

    /// An allocation or release of memory.
    MemoryAllocateRow<'a>, MemoryAllocateKey (rocpd::MEMORY_ALLOCATE, "rocpd_memory_allocate") {
        @nid @pid
        /// The thread that requested it.
        tid: Option<ThreadKey>,
        /// Agent that owns the memory.
        agent_id: Option<AgentKey>,
        /// `ALLOC`, `FREE`, `REALLOC` or `RECLAIM`.
        kind = "type": Option<&'a [u8]> => one_of(&["ALLOC", "FREE", "REALLOC", "RECLAIM"]),
        /// `REAL`, `VIRTUAL` or `SCRATCH`.
        level: Option<&'a [u8]> => one_of(&["REAL", "VIRTUAL", "SCRATCH"]),
        /// Start time.
        start: LocalNs,
        /// End time.
        end: LocalNs => near(6),
        /// Address.
        address: Option<WholeNumber>,
        /// Size, bytes.
        size: WholeNumber,
        /// The queue.
        queue_id: Option<QueueKey>,
        /// The stream.
        stream_id: Option<StreamKey>,
        /// The event.
        event_id: Option<EventKey>,
        /// JSON.
        extdata: Option<&'a [u8]> => json(&[]),
    }

    /// A roctx mark, which a merge expands into an event and a sample.
    MarkRow, MarkKey (native::MARK, "mark") {
        /// The thread.
        tid: ThreadKey,
        /// Time of the mark.
        timestamp: LocalNs,
        /// Text of the mark.
        name_id: StringId,
        /// Stack id of the mark.
        stack_id: Option<StackId>,
        /// Stack id of the enclosing range.
        parent_stack_id: Option<StackId> => near(3),
    }
}

impl<'a> PmcRow<'a> {
    /// Returns a counter of absolute values of which a file contains only the names.
    pub fn absolute(name: &'a [u8], symbol: &'a [u8]) -> PmcRow<'a> {
        let (zero, empty) = (Some(WholeNumber::Signed(0)), Some(&b""[..]));
        PmcRow {
            event_code: zero,
            name,
            symbol,
            description: empty,
            long_description: empty,
            value_type: Some(b"ABS"),
            block: empty,
            expression: empty,
            is_constant: zero,
            is_derived: zero,
            ..PmcRow::default()
        }
    }
}

impl<'a> KernelSymbolRow<'a> {
    /// Returns a kernel of which a file contains only the names.
    pub fn named(
        code_object_id: CodeObjectKey,
        kernel_name: Option<&'a [u8]>,
        display_name: Option<&'a [u8]>,
    ) -> KernelSymbolRow<'a> {
        KernelSymbolRow {
            code_object_id,
            kernel_name,
            display_name,
            kernel_object: None,
            kernarg_segment_size: None,
            kernarg_segment_alignment: None,
            group_segment_size: None,
            private_segment_size: None,
            sgpr_count: None,
            arch_vgpr_count: None,
            accum_vgpr_count: None,
            extdata: None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::Schema;

    #[test]
    fn descriptions_are_built_in() {
        for table in tables() {
            assert_eq!(**Schema::builtin().get(table.id).unwrap(), table);
        }
    }

    #[test]
    fn values_stand_in_the_order_of_the_table() {
        let sample = SampleRow {
            track_id: TrackKey::new(3),
            timestamp: LocalNs(5),
            event_id: None,
            extdata: Some(b"{}"),
        };
        sample.with_values(|values| {
            assert_eq!(values, [Value::Int(3), Value::Int(5), Value::Null, Value::Text(b"{}")]);
        });
        let stream = StreamRow { name: Some(b"s"), extdata: None };
        stream.with_values(|values| assert_eq!(values, [OWNER, OWNER, Value::Text(b"s")]));
        let mark = MarkRow {
            tid: ThreadKey::new(1),
            timestamp: LocalNs(2),
            name_id: StringId(3),
            stack_id: None,
            parent_stack_id: None,
        };
        mark.with_values(|values| assert_eq!(values.len(), MarkRow::table().columns.len()));
    }
}
