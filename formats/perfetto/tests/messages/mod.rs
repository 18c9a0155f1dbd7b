//! The messages that this crate writes, as Perfetto defines them in protos/perfetto/trace/*.proto. All tables of
//! interned texts have entries of the same form.

use prost::Message;

#[derive(Clone, PartialEq, Message)]
pub(crate) struct Trace {
    #[prost(message, repeated, tag = "1")]
    pub(crate) packet: Vec<TracePacket>,
}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct TracePacket {
    #[prost(message, optional, tag = "6")]
    pub(crate) clock_snapshot: Option<ClockSnapshot>,
    #[prost(uint64, optional, tag = "8")]
    pub(crate) timestamp: Option<u64>,
    #[prost(uint32, optional, tag = "10")]
    pub(crate) trusted_packet_sequence_id: Option<u32>,
    #[prost(message, optional, tag = "11")]
    pub(crate) track_event: Option<TrackEvent>,
    #[prost(message, optional, tag = "12")]
    pub(crate) interned_data: Option<InternedData>,
    #[prost(uint32, optional, tag = "13")]
    pub(crate) sequence_flags: Option<u32>,
    #[prost(message, optional, tag = "59")]
    pub(crate) trace_packet_defaults: Option<TracePacketDefaults>,
    #[prost(message, optional, tag = "60")]
    pub(crate) track_descriptor: Option<TrackDescriptor>,
    #[prost(message, optional, tag = "66")]
    pub(crate) perf_sample: Option<PerfSample>,
}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct ClockSnapshot {
    #[prost(message, repeated, tag = "1")]
    pub(crate) clocks: Vec<Clock>,
}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct Clock {
    #[prost(uint32, optional, tag = "1")]
    pub(crate) clock_id: Option<u32>,
    #[prost(uint64, optional, tag = "2")]
    pub(crate) timestamp: Option<u64>,
}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct TracePacketDefaults {
    #[prost(uint32, optional, tag = "58")]
    pub(crate) timestamp_clock_id: Option<u32>,
}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct TrackDescriptor {
    #[prost(uint64, optional, tag = "1")]
    pub(crate) uuid: Option<u64>,
    #[prost(string, optional, tag = "2")]
    pub(crate) name: Option<String>,
    #[prost(message, optional, tag = "3")]
    pub(crate) process: Option<ProcessDescriptor>,
    #[prost(message, optional, tag = "4")]
    pub(crate) thread: Option<ThreadDescriptor>,
    #[prost(uint64, optional, tag = "5")]
    pub(crate) parent_uuid: Option<u64>,
    #[prost(message, optional, tag = "8")]
    pub(crate) counter: Option<CounterDescriptor>,
    #[prost(int32, optional, tag = "11")]
    pub(crate) child_ordering: Option<i32>,
    #[prost(int32, optional, tag = "12")]
    pub(crate) sibling_order_rank: Option<i32>,
    #[prost(string, optional, tag = "14")]
    pub(crate) description: Option<String>,
    #[prost(int32, optional, tag = "19")]
    pub(crate) process_ordering: Option<i32>,
    #[prost(int32, optional, tag = "20")]
    pub(crate) thread_ordering: Option<i32>,
}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct ProcessDescriptor {
    #[prost(int32, optional, tag = "1")]
    pub(crate) pid: Option<i32>,
    #[prost(string, optional, tag = "6")]
    pub(crate) process_name: Option<String>,
    #[prost(string, repeated, tag = "8")]
    pub(crate) process_labels: Vec<String>,
}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct ThreadDescriptor {
    #[prost(int32, optional, tag = "1")]
    pub(crate) pid: Option<i32>,
    #[prost(int32, optional, tag = "2")]
    pub(crate) tid: Option<i32>,
    #[prost(string, optional, tag = "5")]
    pub(crate) thread_name: Option<String>,
}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct CounterDescriptor {
    #[prost(int32, optional, tag = "3")]
    pub(crate) unit: Option<i32>,
    #[prost(string, optional, tag = "6")]
    pub(crate) unit_name: Option<String>,
}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct TrackEvent {
    #[prost(uint64, repeated, packed = "false", tag = "3")]
    pub(crate) category_iids: Vec<u64>,
    #[prost(message, repeated, tag = "4")]
    pub(crate) debug_annotations: Vec<DebugAnnotation>,
    #[prost(int32, optional, tag = "9")]
    pub(crate) kind: Option<i32>,
    #[prost(uint64, optional, tag = "10")]
    pub(crate) name_iid: Option<u64>,
    #[prost(uint64, optional, tag = "11")]
    pub(crate) track_uuid: Option<u64>,
    #[prost(int64, optional, tag = "30")]
    pub(crate) counter_value: Option<i64>,
    #[prost(double, optional, tag = "44")]
    pub(crate) double_counter_value: Option<f64>,
    #[prost(fixed64, repeated, packed = "false", tag = "47")]
    pub(crate) flow_ids: Vec<u64>,
    #[prost(fixed64, repeated, packed = "false", tag = "48")]
    pub(crate) terminating_flow_ids: Vec<u64>,
}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct DebugAnnotation {
    #[prost(uint64, optional, tag = "1")]
    pub(crate) name_iid: Option<u64>,
    #[prost(bool, optional, tag = "2")]
    pub(crate) bool_value: Option<bool>,
    #[prost(uint64, optional, tag = "3")]
    pub(crate) uint_value: Option<u64>,
    #[prost(int64, optional, tag = "4")]
    pub(crate) int_value: Option<i64>,
    #[prost(double, optional, tag = "5")]
    pub(crate) double_value: Option<f64>,
    #[prost(string, optional, tag = "6")]
    pub(crate) string_value: Option<String>,
    #[prost(uint64, optional, tag = "17")]
    pub(crate) string_value_iid: Option<u64>,
}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct InternedData {
    #[prost(message, repeated, tag = "1")]
    pub(crate) event_categories: Vec<InternedString>,
    #[prost(message, repeated, tag = "2")]
    pub(crate) event_names: Vec<InternedString>,
    #[prost(message, repeated, tag = "3")]
    pub(crate) debug_annotation_names: Vec<InternedString>,
    #[prost(message, repeated, tag = "5")]
    pub(crate) function_names: Vec<InternedString>,
    #[prost(message, repeated, tag = "6")]
    pub(crate) frames: Vec<Frame>,
    #[prost(message, repeated, tag = "7")]
    pub(crate) callstacks: Vec<Callstack>,
    #[prost(message, repeated, tag = "17")]
    pub(crate) mapping_paths: Vec<InternedString>,
    #[prost(message, repeated, tag = "19")]
    pub(crate) mappings: Vec<Mapping>,
    #[prost(message, repeated, tag = "29")]
    pub(crate) debug_annotation_string_values: Vec<InternedString>,
}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct InternedString {
    #[prost(uint64, optional, tag = "1")]
    pub(crate) iid: Option<u64>,
    #[prost(bytes = "vec", optional, tag = "2")]
    pub(crate) text: Option<Vec<u8>>,
}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct Mapping {
    #[prost(uint64, optional, tag = "1")]
    pub(crate) iid: Option<u64>,
    #[prost(uint64, repeated, packed = "false", tag = "7")]
    pub(crate) path_string_ids: Vec<u64>,
}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct Frame {
    #[prost(uint64, optional, tag = "1")]
    pub(crate) iid: Option<u64>,
    #[prost(uint64, optional, tag = "2")]
    pub(crate) function_name_id: Option<u64>,
    #[prost(uint64, optional, tag = "3")]
    pub(crate) mapping_id: Option<u64>,
    #[prost(uint64, optional, tag = "4")]
    pub(crate) rel_pc: Option<u64>,
}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct Callstack {
    #[prost(uint64, optional, tag = "1")]
    pub(crate) iid: Option<u64>,
    #[prost(uint64, repeated, packed = "false", tag = "2")]
    pub(crate) frame_ids: Vec<u64>,
}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct PerfSample {
    #[prost(uint32, optional, tag = "2")]
    pub(crate) pid: Option<u32>,
    #[prost(uint32, optional, tag = "3")]
    pub(crate) tid: Option<u32>,
    #[prost(uint64, optional, tag = "4")]
    pub(crate) callstack_iid: Option<u64>,
    #[prost(int32, optional, tag = "5")]
    pub(crate) cpu_mode: Option<i32>,
}
