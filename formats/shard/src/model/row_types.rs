//! Typed rows: one struct per table; its fields are the columns of the table by name.
//!
//! Programs that add single rows use these structs, so that columns in the wrong order do not compile. Programs
//! that move whole columns (the collector's writer, the merger) use [`Rows`](super::Rows) and
//! [`RowsBuilder`](super::RowsBuilder).
//!
//! The columns `nid` and `pid` have no fields: a source is one process, and the rows of its node and process have
//! the key 1. A field that is `None` is stored as NULL. At the end of a row it gets the default of its column.

use super::row_cells::RowCell;
pub use super::row_cells::{RowKey, StackId, StringId, WholeNumber};
use super::table::TableId;
use super::time::LocalNs;
use super::value::Value;
use super::{native, rocpd};

/// Key of the node row and of the process row in every source.
const OWNER: Value<'static> = Value::Int(1);

/// A row of one table.
pub trait TableRow {
    /// The table.
    const TABLE: TableId;
    /// The columns of the table, in its order.
    const COLUMNS: &'static [&'static str];
    /// Type of the key of such a row.
    type Key;

    /// Passes the values of the columns, in the order of the table, to `take`. Trailing NULL values are omitted, so
    /// that the defaults apply. Native tables have no defaults, and all their values are passed.
    fn with_values<T>(&self, take: impl FnOnce(&[Value<'_>]) -> T) -> T;

    /// Returns the key with number `key`.
    fn key(key: i64) -> Self::Key;
}

/// Returns the values without those that are omitted, see [`TableRow::with_values`].
#[inline]
fn given<'v, 'a>(table: TableId, values: &'v [Value<'a>]) -> &'v [Value<'a>] {
    if native::is_native(table) {
        return values;
    }
    let end = values.iter().rposition(|value| *value != Value::Null).map_or(0, |last| last + 1);
    values.get(..end).unwrap_or(values)
}

/// Declares the types. `@nid` and `@pid` are columns that hold the key of the source's only node and process.
macro_rules! row_types {
    ($(
        $(#[$row_doc:meta])*
        $row:ident $(<$life:lifetime>)?, $key:ident ($table:expr) {
            $($(@ $owner:ident)* $(#[$field_doc:meta])* $field:ident $(= $column:literal)?: $cell:ty,)*
        }
    )*) => {
        $(
            #[doc = concat!("Key of a [`", stringify!($row), "`].")]
            pub type $key = RowKey<{ $table.0 }>;

            $(#[$row_doc])*
            #[derive(Clone, Copy, PartialEq, Debug)]
            pub struct $row $(<$life>)? {
                $($(#[$field_doc])* pub $field: $cell,)*
            }

            impl $(<$life>)? TableRow for $row $(<$life>)? {
                const TABLE: TableId = $table;
                const COLUMNS: &'static [&'static str] =
                    &[$($(stringify!($owner),)* column_name!($field $($column)?),)*];
                type Key = $key;

                #[inline]
                fn with_values<T>(&self, take: impl FnOnce(&[Value<'_>]) -> T) -> T {
                    take(given(Self::TABLE, &[$($(owner_cell!($owner),)* self.$field.value(),)*]))
                }

                #[inline]
                fn key(key: i64) -> $key {
                    RowKey::new(key)
                }
            }
        )*

        /// Returns table, columns and kind checks of each type.
        #[cfg(test)]
        #[allow(clippy::type_complexity, clippy::extra_unused_lifetimes)]
        fn declared<'a>() -> Vec<(TableId, &'static [&'static str], Vec<fn(&super::Kind) -> bool>)> {
            vec![$((
                <$row $(<$life>)? as TableRow>::TABLE,
                <$row $(<$life>)? as TableRow>::COLUMNS,
                vec![$($(owner_fits!($owner),)* <$cell as RowCell>::fits,)*],
            ),)*]
        }
    };
}

macro_rules! column_name {
    ($field:ident) => {
        stringify!($field)
    };
    ($field:ident $column:literal) => {
        $column
    };
}

macro_rules! owner_cell {
    (nid) => {
        OWNER
    };
    (pid) => {
        OWNER
    };
}

#[cfg(test)]
macro_rules! owner_fits {
    (nid) => {
        RowKey::<{ rocpd::INFO_NODE.0 }>::fits
    };
    (pid) => {
        RowKey::<{ rocpd::INFO_PROCESS.0 }>::fits
    };
}

row_types! {
    /// A thread.
    ThreadRow<'a>, ThreadKey (rocpd::INFO_THREAD) {
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
        extdata: Option<&'a [u8]>,
    }

    /// A CPU or GPU as the process sees it.
    AgentRow<'a>, AgentKey (rocpd::INFO_AGENT) {
        @nid @pid
        /// `CPU` or `GPU`.
        kind = "type": Option<&'a [u8]>,
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
        extdata: Option<&'a [u8]>,
    }

    /// A queue of a GPU.
    QueueRow<'a>, QueueKey (rocpd::INFO_QUEUE) {
        @nid @pid
        /// Name.
        name: Option<&'a [u8]>,
        /// JSON.
        extdata: Option<&'a [u8]>,
    }

    /// A stream.
    StreamRow<'a>, StreamKey (rocpd::INFO_STREAM) {
        @nid @pid
        /// Name.
        name: Option<&'a [u8]>,
        /// JSON.
        extdata: Option<&'a [u8]>,
    }

    /// A counter.
    PmcRow<'a>, PmcKey (rocpd::INFO_PMC) {
        @nid @pid
        /// Agent whose events the counter counts.
        agent_id: Option<AgentKey>,
        /// `CPU` or `GPU`.
        target_arch: Option<&'a [u8]>,
        /// Code of the hardware event.
        event_code: Option<WholeNumber>,
        /// Instance number.
        instance_id: Option<WholeNumber>,
        /// Name.
        name: &'a [u8],
        /// Short name.
        symbol: &'a [u8],
        /// Description.
        description: Option<&'a [u8]>,
        /// Long description.
        long_description: Option<&'a [u8]>,
        /// Component that the counter belongs to.
        component: Option<&'a [u8]>,
        /// Unit.
        units: Option<&'a [u8]>,
        /// `ABS`, `ACCUM` or `RELATIVE`.
        value_type: Option<&'a [u8]>,
        /// Hardware block.
        block: Option<&'a [u8]>,
        /// Formula of a derived counter.
        expression: Option<&'a [u8]>,
        /// 1 if the value is constant.
        is_constant: Option<WholeNumber>,
        /// 1 if the counter is derived.
        is_derived: Option<WholeNumber>,
        /// JSON.
        extdata: Option<&'a [u8]>,
    }

    /// A code object.
    CodeObjectRow<'a>, CodeObjectKey (rocpd::INFO_CODE_OBJECT) {
        @nid @pid
        /// Agent that the code is for.
        agent_id: Option<AgentKey>,
        /// URI that the code was loaded from.
        uri: Option<&'a [u8]>,
        /// Load address of the code.
        load_base: Option<WholeNumber>,
        /// Size of the code, bytes.
        load_size: Option<WholeNumber>,
        /// Difference between the load address and the address in the file.
        load_delta: Option<WholeNumber>,
        /// `FILE` or `MEMORY`.
        storage_type: Option<&'a [u8]>,
        /// JSON.
        extdata: Option<&'a [u8]>,
    }

    /// A kernel.
    KernelSymbolRow<'a>, KernelSymbolKey (rocpd::INFO_KERNEL_SYMBOL) {
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
        extdata: Option<&'a [u8]>,
    }

    /// A track of samples of a thread or process.
    TrackRow<'a>, TrackKey (rocpd::TRACK) {
        @nid @pid
        /// The thread; `None` for a track of the process.
        tid: Option<ThreadKey>,
        /// Name.
        name_id: Option<StringId>,
        /// JSON.
        extdata: Option<&'a [u8]>,
    }

    /// An event: the properties of a region, sample, dispatch, copy or allocation other than its times.
    EventRow<'a>, EventKey (rocpd::EVENT) {
        /// Category.
        category_id: Option<StringId>,
        /// Stack id of the call.
        stack_id: Option<StackId>,
        /// Stack id of the enclosing call.
        parent_stack_id: Option<StackId>,
        /// Correlation id that the program assigned.
        correlation_id: Option<WholeNumber>,
        /// JSON: stack frames, innermost first.
        call_stack: Option<&'a [u8]>,
        /// JSON: source location.
        line_info: Option<&'a [u8]>,
        /// JSON.
        extdata: Option<&'a [u8]>,
    }

    /// An arg of an event.
    ArgRow<'a>, ArgKey (rocpd::ARG) {
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
        extdata: Option<&'a [u8]>,
    }

    /// The value of a counter at an event.
    PmcEventRow<'a>, PmcEventKey (rocpd::PMC_EVENT) {
        /// The event.
        event_id: Option<EventKey>,
        /// The counter.
        pmc_id: PmcKey,
        /// The value.
        value: Option<f64>,
        /// JSON.
        extdata: Option<&'a [u8]>,
    }

    /// A call or range with a start and an end.
    RegionRow<'a>, RegionKey (rocpd::REGION) {
        @nid @pid
        /// The thread.
        tid: ThreadKey,
        /// Start time.
        start: LocalNs,
        /// End time.
        end: LocalNs,
        /// Name.
        name_id: StringId,
        /// The event.
        event_id: Option<EventKey>,
        /// JSON.
        extdata: Option<&'a [u8]>,
    }

    /// A point in time on a track.
    SampleRow<'a>, SampleKey (rocpd::SAMPLE) {
        /// The track.
        track_id: TrackKey,
        /// Time of the sample.
        timestamp: LocalNs,
        /// The event.
        event_id: Option<EventKey>,
        /// JSON.
        extdata: Option<&'a [u8]>,
    }

    /// An execution of a kernel.
    KernelDispatchRow<'a>, KernelDispatchKey (rocpd::KERNEL_DISPATCH) {
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
        end: LocalNs,
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
        extdata: Option<&'a [u8]>,
    }

    /// A copy of memory.
    MemoryCopyRow<'a>, MemoryCopyKey (rocpd::MEMORY_COPY) {
        @nid @pid
        /// The thread that requested the copy.
        tid: Option<ThreadKey>,
        /// Start time.
        start: LocalNs,
        /// End time.
        end: LocalNs,
        /// Name, which is the direction of the copy.
        name_id: StringId,
        /// Agent whose memory is written.
        dst_agent_id: Option<AgentKey>,
        /// Address of the destination.
        dst_address: Option<WholeNumber>,
        /// Agent whose memory is read.
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
        extdata: Option<&'a [u8]>,
    }

    /// An allocation or release of memory.
    MemoryAllocateRow<'a>, MemoryAllocateKey (rocpd::MEMORY_ALLOCATE) {
        @nid @pid
        /// The thread that requested it.
        tid: Option<ThreadKey>,
        /// Agent that owns the memory.
        agent_id: Option<AgentKey>,
        /// `ALLOC`, `FREE`, `REALLOC` or `RECLAIM`.
        kind = "type": Option<&'a [u8]>,
        /// `REAL`, `VIRTUAL` or `SCRATCH`.
        level: Option<&'a [u8]>,
        /// Start time.
        start: LocalNs,
        /// End time.
        end: LocalNs,
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
        extdata: Option<&'a [u8]>,
    }

    /// A roctx mark, which a merge expands into an event and a sample.
    MarkRow, MarkKey (native::MARK) {
        /// The thread.
        tid: ThreadKey,
        /// Time of the mark.
        timestamp: LocalNs,
        /// Text of the mark.
        name_id: StringId,
        /// Stack id of the mark.
        stack_id: Option<StackId>,
        /// Stack id of the enclosing range.
        parent_stack_id: Option<StackId>,
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
    fn fields_are_the_columns_of_the_tables() {
        for (table, columns, fits) in declared() {
            let table = Schema::builtin().get(table).unwrap();
            let described: Vec<&str> = table.columns.iter().map(|column| column.name.as_str()).collect();
            assert_eq!(columns, described, "{}", table.name);
            for (column, fits) in table.columns.iter().zip(fits) {
                assert!(fits(&column.kind), "{}.{} is a {:?}", table.name, column.name, column.kind);
            }
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
        mark.with_values(|values| assert_eq!(values.len(), MarkRow::COLUMNS.len()));
    }
}
