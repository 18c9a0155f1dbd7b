//! The elements of the file that are read.

use rpd_shard::model::row_types::WholeNumber;
use rpd_shard::record::Node;
use rpd_translator::IgnoredNames;
use serde::Deserialize;
use serde::de::{DeserializeSeed, Deserializer, Error, IgnoredAny, MapAccess, Visitor};
use std::fmt;

/// `metadata` of a process.
#[derive(Clone, Debug, Default, Deserialize)]
pub(crate) struct ProcessMetadata {
    pub(crate) pid: i32,
    pub(crate) ppid: Option<i32>,
    pub(crate) init_time: Option<i64>,
    pub(crate) fini_time: Option<i64>,
    #[serde(default)]
    pub(crate) command: Vec<String>,
    #[serde(default)]
    pub(crate) node: Node,
    pub(crate) config: Option<IgnoredAny>,
}

/// An id of the runtime.
#[derive(Clone, Copy, Debug, Default, Deserialize)]
pub(crate) struct JsonHandle {
    pub(crate) handle: u64,
}

/// An element of `agents`.
#[derive(Debug, Deserialize)]
pub(crate) struct JsonAgent {
    pub(crate) id: JsonHandle,
    #[serde(default, rename = "type")]
    pub(crate) kind: u64,
    pub(crate) node_id: Option<u64>,
    pub(crate) logical_node_id: Option<i64>,
    pub(crate) logical_node_type_id: Option<i64>,
    pub(crate) device_id: Option<u64>,
    pub(crate) name: Option<String>,
    pub(crate) model_name: Option<String>,
    pub(crate) vendor_name: Option<String>,
    pub(crate) product_name: Option<String>,
}

/// An element of `counters`.
#[derive(Debug, Deserialize)]
pub(crate) struct JsonCounter {
    pub(crate) id: JsonHandle,
    pub(crate) agent_id: Option<JsonHandle>,
    pub(crate) name: String,
    pub(crate) description: Option<String>,
    pub(crate) block: Option<String>,
    pub(crate) expression: Option<String>,
    #[serde(default)]
    pub(crate) is_constant: Flag,
    #[serde(default)]
    pub(crate) is_derived: Flag,
}

/// 0 or 1; some releases write a Boolean instead.
#[derive(Clone, Copy, Debug, Default, Deserialize)]
#[serde(from = "NumberOrWord")]
pub(crate) struct Flag(pub(crate) bool);

#[derive(Deserialize)]
#[serde(untagged)]
enum NumberOrWord {
    Number(u64),
    Word(bool),
}

impl From<NumberOrWord> for Flag {
    fn from(value: NumberOrWord) -> Flag {
        match value {
            NumberOrWord::Number(number) => Flag(number != 0),
            NumberOrWord::Word(word) => Flag(word),
        }
    }
}

/// An element of `code_objects`.
#[derive(Debug, Deserialize)]
pub(crate) struct CodeObject {
    pub(crate) size: Option<u64>,
    pub(crate) code_object_id: u64,
    pub(crate) agent_id: Option<JsonHandle>,
    pub(crate) uri: Option<String>,
    pub(crate) load_base: Option<u64>,
    pub(crate) load_size: Option<u64>,
    /// A signed number in some releases.
    pub(crate) load_delta: Option<WholeNumber>,
    #[serde(default)]
    pub(crate) storage_type: u64,
}

/// An element of `kernel_symbols`.
#[derive(Debug, Deserialize)]
pub(crate) struct KernelSymbol {
    pub(crate) kernel_id: u64,
    pub(crate) code_object_id: u64,
    pub(crate) kernel_name: Option<String>,
    pub(crate) formatted_kernel_name: Option<String>,
    pub(crate) kernel_object: Option<u64>,
    pub(crate) kernarg_segment_size: Option<u64>,
    pub(crate) kernarg_segment_alignment: Option<u64>,
    pub(crate) group_segment_size: Option<u64>,
    pub(crate) private_segment_size: Option<u64>,
    pub(crate) sgpr_count: Option<u64>,
    pub(crate) arch_vgpr_count: Option<u64>,
    pub(crate) accum_vgpr_count: Option<u64>,
}

/// An element of `strings.buffer_records`. Its position is the number of the kind; the position of an operation is
/// the number of the operation.
#[derive(Debug, Default, Deserialize)]
pub(crate) struct KindNames {
    pub(crate) kind: String,
    #[serde(default)]
    pub(crate) operations: Vec<String>,
}

/// An element of a map from numbers to texts.
#[derive(Debug, Deserialize)]
pub(crate) struct NumberedText {
    pub(crate) key: u64,
    pub(crate) value: String,
}

/// `correlation_id` of a record.
#[derive(Clone, Copy, Debug, Default, Deserialize)]
pub(crate) struct CorrelationIds {
    /// Id of the API call that a record belongs to.
    pub(crate) internal: u64,
    #[serde(default)]
    pub(crate) external: u64,
    /// Id of the enclosing call; first written in ROCm 7.
    pub(crate) ancestor: Option<u64>,
}

/// `dispatch_info` of a kernel.
#[derive(Clone, Copy, Debug, Deserialize)]
pub(crate) struct DispatchInfo {
    pub(crate) agent_id: JsonHandle,
    pub(crate) queue_id: JsonHandle,
    pub(crate) kernel_id: u64,
    pub(crate) dispatch_id: u64,
    pub(crate) private_segment_size: Option<u64>,
    pub(crate) group_segment_size: Option<u64>,
    pub(crate) workgroup_size: Size,
    pub(crate) grid_size: Size,
}

#[derive(Clone, Copy, Debug, Deserialize)]
pub(crate) struct Size {
    pub(crate) x: u64,
    pub(crate) y: u64,
    pub(crate) z: u64,
}

/// An argument of a call.
#[derive(Debug, Deserialize)]
pub(crate) struct CallArgument {
    #[serde(rename = "type")]
    pub(crate) kind: String,
    pub(crate) name: String,
    pub(crate) value: Option<String>,
}

/// An element of `callback_records.counter_collection`.
#[derive(Debug, Deserialize)]
pub(crate) struct CountedDispatch {
    pub(crate) thread_id: u64,
    pub(crate) dispatch_data: DispatchData,
    pub(crate) records: Vec<CounterValue>,
    pub(crate) stream_id: Option<JsonHandle>,
    #[serde(default)]
    pub(crate) kernel_rename_val: u64,
}

#[derive(Debug, Deserialize)]
pub(crate) struct DispatchData {
    pub(crate) correlation_id: CorrelationIds,
    pub(crate) start_timestamp: i64,
    pub(crate) end_timestamp: i64,
    pub(crate) dispatch_info: DispatchInfo,
}

#[derive(Debug, Deserialize)]
pub(crate) struct CounterValue {
    pub(crate) counter_id: JsonHandle,
    pub(crate) value: Exact,
}

/// A floating-point number that is exact to the last bit, which serde_json alone does not guarantee.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Exact(pub(crate) f64);

impl<'de> Deserialize<'de> for Exact {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Exact, D::Error> {
        let text = <&serde_json::value::RawValue>::deserialize(deserializer)?.get();
        text.parse().map(Exact).map_err(D::Error::custom)
    }
}

/// An address: a number, hexadecimal text, or an object with either of them.
#[derive(Clone, Copy, Debug)]
pub(crate) struct JsonAddress(pub(crate) u64);

impl<'de> Deserialize<'de> for JsonAddress {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<JsonAddress, D::Error> {
        deserializer.deserialize_any(AddressVisitor)
    }
}

struct AddressVisitor;

impl<'de> Visitor<'de> for AddressVisitor {
    type Value = JsonAddress;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an address")
    }

    fn visit_u64<E: Error>(self, value: u64) -> Result<JsonAddress, E> {
        Ok(JsonAddress(value))
    }

    fn visit_str<E: Error>(self, text: &str) -> Result<JsonAddress, E> {
        let digits = text.strip_prefix("0x").ok_or_else(|| E::custom("an address without 0x"))?;
        u64::from_str_radix(digits, 16).map(JsonAddress).map_err(E::custom)
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<JsonAddress, A::Error> {
        let mut found = None;
        while let Some(name) = map.next_key::<String>()? {
            if name == "handle" || name == "value" {
                found = Some(map.next_value()?);
            } else {
                map.next_value::<IgnoredAny>()?;
            }
        }
        found.ok_or_else(|| A::Error::custom("an address without a value"))
    }
}

/// An element of `buffer_records`, of any kind.
#[derive(Debug, Default)]
pub(crate) struct BufferRecord {
    pub(crate) kind: Option<u64>,
    pub(crate) operation: Option<u64>,
    pub(crate) thread: Option<u64>,
    pub(crate) correlation: Option<CorrelationIds>,
    /// Time in ns of `CLOCK_BOOTTIME`; the same for `end`.
    pub(crate) start: Option<i64>,
    pub(crate) end: Option<i64>,
    pub(crate) stream: Option<JsonHandle>,
    pub(crate) queue: Option<JsonHandle>,
    pub(crate) agent: Option<JsonHandle>,
    pub(crate) dispatch: Option<DispatchInfo>,
    pub(crate) copied: CopyMembers,
    pub(crate) allocated: AllocationMembers,
    pub(crate) arguments: Option<Vec<CallArgument>>,
}

/// Members that only copies have.
#[derive(Debug, Default)]
pub(crate) struct CopyMembers {
    pub(crate) bytes: Option<u64>,
    pub(crate) source: Option<JsonHandle>,
    pub(crate) target: Option<JsonHandle>,
    pub(crate) source_address: Option<JsonAddress>,
    pub(crate) target_address: Option<JsonAddress>,
}

/// Members that only allocations have.
#[derive(Debug, Default)]
pub(crate) struct AllocationMembers {
    pub(crate) bytes: Option<u64>,
    pub(crate) address: Option<JsonAddress>,
    pub(crate) flags: Option<u64>,
}

/// Reads a [`BufferRecord`] and counts its unsupported members.
pub(crate) struct RecordSeed<'a> {
    /// Kind of the record, for the names of unsupported members.
    pub(crate) kind: &'a str,
    pub(crate) ignored: &'a mut IgnoredNames,
}

impl RecordSeed<'_> {
    /// Reads a record from all of `bytes`.
    pub(crate) fn read(self, bytes: &[u8]) -> serde_json::Result<BufferRecord> {
        let mut deserializer = serde_json::Deserializer::from_slice(bytes);
        let record = self.deserialize(&mut deserializer)?;
        deserializer.end()?;
        Ok(record)
    }
}

impl<'de> DeserializeSeed<'de> for RecordSeed<'_> {
    type Value = BufferRecord;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<BufferRecord, D::Error> {
        deserializer.deserialize_map(self)
    }
}

impl<'de> Visitor<'de> for RecordSeed<'_> {
    type Value = BufferRecord;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a record")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<BufferRecord, A::Error> {
        let mut record = BufferRecord::default();
        while let Some(Name(name)) = map.next_key()? {
            match name.as_ref() {
                "kind" => once(&mut record.kind, &mut map)?,
                "operation" => once(&mut record.operation, &mut map)?,
                "thread_id" => once(&mut record.thread, &mut map)?,
                "correlation_id" => once(&mut record.correlation, &mut map)?,
                "start_timestamp" => once(&mut record.start, &mut map)?,
                "end_timestamp" => once(&mut record.end, &mut map)?,
                "stream_id" => once(&mut record.stream, &mut map)?,
                "queue_id" => once(&mut record.queue, &mut map)?,
                "agent_id" => once(&mut record.agent, &mut map)?,
                "dispatch_info" => once(&mut record.dispatch, &mut map)?,
                "bytes" => once(&mut record.copied.bytes, &mut map)?,
                "src_agent_id" => once(&mut record.copied.source, &mut map)?,
                "dst_agent_id" => once(&mut record.copied.target, &mut map)?,
                "src_address" => once(&mut record.copied.source_address, &mut map)?,
                "dst_address" => once(&mut record.copied.target_address, &mut map)?,
                "allocation_size" => once(&mut record.allocated.bytes, &mut map)?,
                "address" => once(&mut record.allocated.address, &mut map)?,
                "flags" => once(&mut record.allocated.flags, &mut map)?,
                "args" => once(&mut record.arguments, &mut map)?,
                // Length of the record in the profiler's memory.
                "size" => map.next_value::<IgnoredAny>().map(drop)?,
                other => {
                    self.ignored.add(&format!("buffer_records.{}[].{other}", self.kind), 1);
                    map.next_value::<IgnoredAny>()?;
                }
            }
        }
        Ok(record)
    }
}

/// A name, copied only if it contains escapes.
#[derive(Deserialize)]
struct Name<'a>(#[serde(borrow)] std::borrow::Cow<'a, str>);

fn once<'de, T: Deserialize<'de>, A: MapAccess<'de>>(
    place: &mut Option<T>,
    map: &mut A,
) -> Result<(), A::Error> {
    match place.replace(map.next_value()?) {
        None => Ok(()),
        Some(_) => Err(A::Error::custom("a member is there twice")),
    }
}
