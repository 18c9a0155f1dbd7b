//! The tables of a process: names, agents, counters, code objects, kernel symbols.

use crate::error::TranslateError;
use crate::known::{Known, NODE, PROCESS};
use crate::output::{Array, Output, Refused, number, optional};
use crate::record::{Agent, CodeObject, Counter, KernelSymbol, KindNames, Message, Wide};
use crate::scan::Scanner;
use crate::source::Source;
use crate::survey::{Section, Sections};
use rpd_shard::model::{TableId, Value, rocpd};
use serde_json::{Map, Value as Json};
use std::io::Write;

/// Longest element of a table.
const MAX_ELEMENT_BYTES: usize = 4 << 20;
/// Most bytes of all names of kinds and operations.
const MAX_NAME_BYTES: usize = 16 << 20;

/// Reads the tables of a process. Agents come before what refers to them.
pub(crate) fn describe<W: Write>(
    out: &mut Output<'_, W>,
    scanner: &mut Scanner<Source>,
    sections: &Sections,
) -> Result<Known, TranslateError> {
    let mut known = Known::new(sections.metadata.as_ref().and_then(|m| m.ppid));
    let table = |name: &'static str, table: Option<TableId>| {
        let section = sections.tables.get(name).copied().unwrap_or_default();
        (Array { name, table, most: MAX_ELEMENT_BYTES }, section)
    };

    kinds(out, scanner, &mut known, table("strings.buffer_records", None))?;
    let (array, section) = table("strings.marker_api", None);
    out.each(scanner, &array, section, |_, bytes| {
        let Message { key, value } = serde_json::from_slice(bytes)?;
        known.markers.add(key, &value)
    })?;
    let (array, section) = table("strings.correlation_id.external", None);
    out.each(scanner, &array, section, |_, bytes| {
        let Message { key, value } = serde_json::from_slice(bytes)?;
        known.renames.add(key, &value)
    })?;
    let (array, section) = table("agents", Some(rocpd::INFO_AGENT));
    out.each(scanner, &array, section, |out, bytes| agent(out, &mut known, bytes))?;
    let (array, section) = table("code_objects", Some(rocpd::INFO_CODE_OBJECT));
    out.each(scanner, &array, section, |out, bytes| code_object(out, &mut known, bytes))?;
    let (array, section) = table("kernel_symbols", Some(rocpd::INFO_KERNEL_SYMBOL));
    out.each(scanner, &array, section, |out, bytes| kernel_symbol(out, &mut known, bytes))?;
    let (array, section) = table("counters", Some(rocpd::INFO_PMC));
    out.each(scanner, &array, section, |out, bytes| counter(out, &mut known, bytes))?;
    Ok(known)
}

fn kinds<W: Write>(
    out: &mut Output<'_, W>,
    scanner: &mut Scanner<Source>,
    known: &mut Known,
    (array, section): (Array<'_>, Section),
) -> Result<(), TranslateError> {
    let mut room = MAX_NAME_BYTES;
    out.each(scanner, &array, section, |_, bytes| {
        let names = match room.checked_sub(bytes.len()) {
            Some(left) => {
                room = left;
                serde_json::from_slice::<KindNames>(bytes).map_err(Refused::from)
            }
            None => Err(Refused::OverLimit),
        };
        // The numbers of those behind it count on, unless there is no end of them.
        let (names, result) = match names {
            Ok(names) => (names, Ok(())),
            Err(refused) => (KindNames::default(), Err(refused)),
        };
        if known.kinds.len() < MAX_NAME_BYTES / 256 {
            known.kinds.push(names);
        }
        result
    })
}

fn agent<W: Write>(out: &mut Output<'_, W>, known: &mut Known, bytes: &[u8]) -> Result<(), Refused> {
    let agent: Agent = serde_json::from_slice(bytes)?;
    if known.agents.get(agent.id.handle).is_some() {
        return Err(Refused::Bad(format!("agent {} was there before", agent.id.handle)));
    }
    let kind = match agent.kind {
        1 => "CPU".into(),
        2 => "GPU".into(),
        _ => Value::Null,
    };
    let row = [
        NODE,
        PROCESS,
        kind,
        optional(agent.node_id),
        agent.logical_node_id.into(),
        agent.logical_node_type_id.into(),
        optional(agent.device_id),
        text(&agent.name),
        text(&agent.model_name),
        text(&agent.vendor_name),
        text(&agent.product_name),
        text(&agent.product_name),
        Value::Text(bytes),
    ];
    known.agents.add(agent.id.handle, out, rocpd::INFO_AGENT, &row).map(drop)
}

fn code_object<W: Write>(out: &mut Output<'_, W>, known: &mut Known, bytes: &[u8]) -> Result<(), Refused> {
    let object: CodeObject = serde_json::from_slice(bytes)?;
    if object.size == Some(0) {
        // A place in the profiler's list that was never filled.
        out.ignored.add("code_objects[] (empty)", 1);
        return Ok(());
    }
    if known.code_objects.get(object.code_object_id).is_some() {
        return Err(Refused::Bad(format!("code object {} was there before", object.code_object_id)));
    }
    let storage = match object.storage_type {
        1 => "FILE".into(),
        2 => "MEMORY".into(),
        _ => Value::Null,
    };
    let agent = object.agent_id.and_then(|agent| known.agents.get(agent.handle));
    let extdata = with_ids(bytes, &[("code_object_id", known.code_objects.next_key())])?;
    let row = [
        NODE,
        PROCESS,
        agent.into(),
        object.uri.as_deref().filter(|uri| !uri.is_empty()).map_or(Value::Null, Value::from),
        optional(object.load_base),
        optional(object.load_size),
        match object.load_delta {
            None => Value::Null,
            Some(Wide::Unsigned(delta)) => number(delta),
            Some(Wide::Signed(delta)) => Value::Int(delta),
        },
        storage,
        extdata.as_str().into(),
    ];
    known.code_objects.add(object.code_object_id, out, rocpd::INFO_CODE_OBJECT, &row).map(drop)
}

fn kernel_symbol<W: Write>(out: &mut Output<'_, W>, known: &mut Known, bytes: &[u8]) -> Result<(), Refused> {
    let symbol: KernelSymbol = serde_json::from_slice(bytes)?;
    if symbol.kernel_id == 0 && symbol.code_object_id == 0 {
        out.ignored.add("kernel_symbols[] (empty)", 1);
        return Ok(());
    }
    if known.kernels.get(symbol.kernel_id).is_some() {
        return Err(Refused::Bad(format!("kernel {} was there before", symbol.kernel_id)));
    }
    let object = known.code_object(out, symbol.code_object_id)?;
    let extdata = with_ids(bytes, &[("kernel_id", known.kernels.next_key()), ("code_object_id", object)])?;
    let row = [
        NODE,
        PROCESS,
        object.into(),
        text(&symbol.kernel_name),
        text(&symbol.formatted_kernel_name),
        optional(symbol.kernel_object),
        optional(symbol.kernarg_segment_size),
        optional(symbol.kernarg_segment_alignment),
        optional(symbol.group_segment_size),
        optional(symbol.private_segment_size),
        optional(symbol.sgpr_count),
        optional(symbol.arch_vgpr_count),
        optional(symbol.accum_vgpr_count),
        extdata.as_str().into(),
    ];
    known.kernels.add(symbol.kernel_id, out, rocpd::INFO_KERNEL_SYMBOL, &row).map(drop)
}

fn counter<W: Write>(out: &mut Output<'_, W>, known: &mut Known, bytes: &[u8]) -> Result<(), Refused> {
    let counter: Counter = serde_json::from_slice(bytes)?;
    if known.counters.get(counter.id.handle).is_some() {
        return Err(Refused::Bad(format!("counter {} was there before", counter.id.handle)));
    }
    let agent = counter.agent_id.and_then(|agent| known.agents.get(agent.handle));
    let row = [
        NODE,
        PROCESS,
        agent.into(),
        "GPU".into(),
        Value::Null,
        Value::Null,
        counter.name.as_str().into(),
        counter.name.as_str().into(),
        text(&counter.description),
        "".into(),
        "rocm".into(),
        "".into(),
        "ABS".into(),
        text(&counter.block),
        text(&counter.expression),
        Value::Int(counter.is_constant.0.into()),
        Value::Int(counter.is_derived.0.into()),
        Value::Text(bytes),
    ];
    known.counters.add(counter.id.handle, out, rocpd::INFO_PMC, &row).map(drop)
}

/// The object with other ids in it: extdata follows the keys of the shard.
fn with_ids(bytes: &[u8], ids: &[(&str, i64)]) -> Result<String, Refused> {
    let mut object: Map<String, Json> = serde_json::from_slice(bytes)?;
    for (name, id) in ids {
        object.insert((*name).to_owned(), Json::from(*id));
    }
    Ok(Json::Object(object).to_string())
}

fn text(text: &Option<String>) -> Value<'_> {
    text.as_deref().map_or(Value::Null, Value::from)
}
