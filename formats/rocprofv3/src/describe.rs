//! Reads the tables of a process: names, agents, counters, code objects, kernel symbols.

use crate::known::ReferredRows;
use crate::process_output::{ElementError, JsonArray, ProcessOutput};
use crate::record::{CodeObject, JsonAgent, JsonCounter, KernelSymbol, KindNames, NumberedText, WideNumber};
use crate::scan::JsonScanner;
use crate::source::JsonSource;
use crate::survey::{ArraySection, ProcessSections};
use rpd_shard::model::row_types::{AgentRow, CodeObjectRow, KernelSymbolRow, PmcRow, WholeNumber};
use rpd_shard::model::{TableId, rocpd};
use rpd_translator::TranslateError;
use serde_json::{Map, Value as Json};

/// Maximum length in bytes of a table element.
const MAX_ELEMENT_BYTES: usize = 4 << 20;
/// Maximum number of bytes of all names of kinds and operations.
const MAX_NAME_BYTES: usize = 16 << 20;

/// Reads the tables of a process. Agents precede the rows that refer to them.
pub(crate) fn describe(
    out: &mut ProcessOutput<'_>,
    scanner: &mut JsonScanner<JsonSource>,
    sections: &ProcessSections,
) -> Result<ReferredRows, TranslateError> {
    let mut known = ReferredRows::new(sections.metadata.as_ref().and_then(|m| m.ppid));
    let table = |name: &'static str, table: Option<TableId>| {
        let section = sections.tables.get(name).copied().unwrap_or_default();
        (JsonArray { name, table, max_bytes: MAX_ELEMENT_BYTES }, section)
    };

    kinds(out, scanner, &mut known, table("strings.buffer_records", None))?;
    let (array, section) = table("strings.marker_api", None);
    out.each(scanner, &array, section, |_, bytes| {
        let NumberedText { key, value } = serde_json::from_slice(bytes)?;
        known.markers.add(key, &value)
    })?;
    let (array, section) = table("strings.correlation_id.external", None);
    out.each(scanner, &array, section, |_, bytes| {
        let NumberedText { key, value } = serde_json::from_slice(bytes)?;
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

fn kinds(
    out: &mut ProcessOutput<'_>,
    scanner: &mut JsonScanner<JsonSource>,
    known: &mut ReferredRows,
    (array, section): (JsonArray<'_>, ArraySection),
) -> Result<(), TranslateError> {
    let mut room = MAX_NAME_BYTES;
    out.each(scanner, &array, section, |_, bytes| {
        let names = match room.checked_sub(bytes.len()) {
            Some(left) => {
                room = left;
                serde_json::from_slice::<KindNames>(bytes).map_err(ElementError::from)
            }
            None => Err(ElementError::OverLimit),
        };
        // A rejected element still counts as a kind, so that later elements keep their numbers. The number of kinds
        // is bounded.
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

fn agent(out: &mut ProcessOutput<'_>, known: &mut ReferredRows, bytes: &[u8]) -> Result<(), ElementError> {
    let agent: JsonAgent = serde_json::from_slice(bytes)?;
    if known.agents.get(agent.id.handle).is_some() {
        return Err(ElementError::Bad(format!("agent {} was there before", agent.id.handle)));
    }
    let kind: Option<&[u8]> = match agent.kind {
        1 => Some(b"CPU"),
        2 => Some(b"GPU"),
        _ => None,
    };
    let row = AgentRow {
        kind,
        absolute_index: number(agent.node_id),
        logical_index: agent.logical_node_id.map(WholeNumber::Signed),
        type_index: agent.logical_node_type_id.map(WholeNumber::Signed),
        uuid: number(agent.device_id),
        name: text(&agent.name),
        model_name: text(&agent.model_name),
        vendor_name: text(&agent.vendor_name),
        product_name: text(&agent.product_name),
        user_name: text(&agent.product_name),
        extdata: Some(bytes),
    };
    known.agents.add(agent.id.handle, out, &row)?;
    Ok(())
}

fn code_object(
    out: &mut ProcessOutput<'_>,
    known: &mut ReferredRows,
    bytes: &[u8],
) -> Result<(), ElementError> {
    let object: CodeObject = serde_json::from_slice(bytes)?;
    if object.size == Some(0) {
        // An entry of the profiler's list that was never filled.
        out.translator.ignored_names().add("code_objects[] (empty)", 1);
        return Ok(());
    }
    if known.code_objects.get(object.code_object_id).is_some() {
        return Err(ElementError::Bad(format!("code object {} was there before", object.code_object_id)));
    }
    let storage_type: Option<&[u8]> = match object.storage_type {
        1 => Some(b"FILE"),
        2 => Some(b"MEMORY"),
        _ => None,
    };
    let agent = object.agent_id.and_then(|agent| known.agents.get(agent.handle));
    let extdata = with_ids(bytes, &[("code_object_id", known.code_objects.next_key().get())])?;
    let row = CodeObjectRow {
        agent_id: agent,
        uri: object.uri.as_deref().filter(|uri| !uri.is_empty()).map(str::as_bytes),
        load_base: number(object.load_base),
        load_size: number(object.load_size),
        load_delta: object.load_delta.map(|delta| match delta {
            WideNumber::Unsigned(delta) => delta.into(),
            WideNumber::Signed(delta) => delta.into(),
        }),
        storage_type,
        extdata: Some(extdata.as_bytes()),
    };
    known.code_objects.add(object.code_object_id, out, &row)?;
    Ok(())
}

fn kernel_symbol(
    out: &mut ProcessOutput<'_>,
    known: &mut ReferredRows,
    bytes: &[u8],
) -> Result<(), ElementError> {
    let symbol: KernelSymbol = serde_json::from_slice(bytes)?;
    if symbol.kernel_id == 0 && symbol.code_object_id == 0 {
        out.translator.ignored_names().add("kernel_symbols[] (empty)", 1);
        return Ok(());
    }
    if known.kernels.get(symbol.kernel_id).is_some() {
        return Err(ElementError::Bad(format!("kernel {} was there before", symbol.kernel_id)));
    }
    let object = known.code_object(out, symbol.code_object_id)?;
    let extdata =
        with_ids(bytes, &[("kernel_id", known.kernels.next_key().get()), ("code_object_id", object.get())])?;
    let row = KernelSymbolRow {
        code_object_id: object,
        kernel_name: text(&symbol.kernel_name),
        display_name: text(&symbol.formatted_kernel_name),
        kernel_object: number(symbol.kernel_object),
        kernarg_segment_size: number(symbol.kernarg_segment_size),
        kernarg_segment_alignment: number(symbol.kernarg_segment_alignment),
        group_segment_size: number(symbol.group_segment_size),
        private_segment_size: number(symbol.private_segment_size),
        sgpr_count: number(symbol.sgpr_count),
        arch_vgpr_count: number(symbol.arch_vgpr_count),
        accum_vgpr_count: number(symbol.accum_vgpr_count),
        extdata: Some(extdata.as_bytes()),
    };
    known.kernels.add(symbol.kernel_id, out, &row)?;
    Ok(())
}

fn counter(out: &mut ProcessOutput<'_>, known: &mut ReferredRows, bytes: &[u8]) -> Result<(), ElementError> {
    let counter: JsonCounter = serde_json::from_slice(bytes)?;
    if known.counters.get(counter.id.handle).is_some() {
        return Err(ElementError::Bad(format!("counter {} was there before", counter.id.handle)));
    }
    let agent = counter.agent_id.and_then(|agent| known.agents.get(agent.handle));
    let row = PmcRow {
        agent_id: agent,
        target_arch: Some(b"GPU"),
        name: counter.name.as_bytes(),
        symbol: counter.name.as_bytes(),
        description: text(&counter.description),
        long_description: Some(b""),
        component: Some(b"rocm"),
        units: Some(b""),
        value_type: Some(b"ABS"),
        block: text(&counter.block),
        expression: text(&counter.expression),
        is_constant: Some(i64::from(counter.is_constant.0).into()),
        is_derived: Some(i64::from(counter.is_derived.0).into()),
        extdata: Some(bytes),
        ..PmcRow::default()
    };
    known.counters.add(counter.id.handle, out, &row)?;
    Ok(())
}

/// Returns the object with other ids: extdata uses the keys of the shard.
fn with_ids(bytes: &[u8], ids: &[(&str, i64)]) -> Result<String, ElementError> {
    let mut object: Map<String, Json> = serde_json::from_slice(bytes)?;
    for (name, id) in ids {
        object.insert((*name).to_owned(), Json::from(*id));
    }
    Ok(Json::Object(object).to_string())
}

fn text(text: &Option<String>) -> Option<&[u8]> {
    text.as_deref().map(str::as_bytes)
}

fn number(number: Option<u64>) -> Option<WholeNumber> {
    number.map(WholeNumber::Unsigned)
}
