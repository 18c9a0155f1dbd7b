//! Reads the tables of a process: names, agents, counters, code objects, kernel symbols.

use crate::known::ReferredRows;
use crate::process_output::{ElementError, ProcessOutput};
use crate::record::{CodeObject, JsonAgent, JsonCounter, KernelSymbol, KindNames, NumberedText};
use crate::scan::JsonScanner;
use crate::source::JsonSource;
use crate::survey::ProcessSections;
use rpd_shard::model::row_types::{AgentRow, CodeObjectRow, KernelSymbolRow, PmcRow};
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
) -> Result<(), TranslateError> {
    out.known = ReferredRows::new(sections.metadata.as_ref().and_then(|m| m.ppid));
    let mut free_bytes = MAX_NAME_BYTES;
    let mut each = |name: &str, take: &mut dyn FnMut(&mut ProcessOutput<'_>, &[u8]) -> _| {
        let section = sections.tables.get(name).copied().unwrap_or_default();
        out.each(scanner, name, MAX_ELEMENT_BYTES, section, take)
    };
    each("strings.buffer_records", &mut |out, bytes| kind(out, &mut free_bytes, bytes))?;
    each("strings.marker_api", &mut |out, bytes| {
        let NumberedText { key, value } = serde_json::from_slice(bytes)?;
        out.known.markers.add(key, &value)
    })?;
    each("strings.correlation_id.external", &mut |out, bytes| {
        let NumberedText { key, value } = serde_json::from_slice(bytes)?;
        out.known.renames.add(key, &value)
    })?;
    each("agents", &mut agent)?;
    each("code_objects", &mut code_object)?;
    each("kernel_symbols", &mut kernel_symbol)?;
    each("counters", &mut counter)
}

fn kind(out: &mut ProcessOutput<'_>, free_bytes: &mut usize, bytes: &[u8]) -> Result<(), ElementError> {
    let names = match free_bytes.checked_sub(bytes.len()) {
        Some(left) => {
            *free_bytes = left;
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
    if out.known.kinds.len() < MAX_NAME_BYTES / 256 {
        out.known.kinds.push(names);
    }
    result
}

fn agent(out: &mut ProcessOutput<'_>, bytes: &[u8]) -> Result<(), ElementError> {
    let agent: JsonAgent = serde_json::from_slice(bytes)?;
    if out.known.agents.get(agent.id.handle).is_some() {
        return Err(ElementError::Bad(format!("agent {} was there before", agent.id.handle)));
    }
    let kind: Option<&[u8]> = match agent.kind {
        1 => Some(b"CPU"),
        2 => Some(b"GPU"),
        _ => None,
    };
    let row = AgentRow {
        kind,
        absolute_index: agent.node_id.map(Into::into),
        logical_index: agent.logical_node_id.map(Into::into),
        type_index: agent.logical_node_type_id.map(Into::into),
        uuid: agent.device_id.map(Into::into),
        name: text(&agent.name),
        model_name: text(&agent.model_name),
        vendor_name: text(&agent.vendor_name),
        product_name: text(&agent.product_name),
        user_name: text(&agent.product_name),
        extdata: Some(bytes),
    };
    out.known.agents.add(agent.id.handle, &mut out.translator, out.source, &row)?;
    Ok(())
}

fn code_object(out: &mut ProcessOutput<'_>, bytes: &[u8]) -> Result<(), ElementError> {
    let object: CodeObject = serde_json::from_slice(bytes)?;
    if object.size == Some(0) {
        // An entry of the profiler's list that was never filled.
        out.translator.ignored_names().add("code_objects[] (empty)", 1);
        return Ok(());
    }
    if out.known.code_objects.get(object.code_object_id).is_some() {
        return Err(ElementError::Bad(format!("code object {} was there before", object.code_object_id)));
    }
    let storage_type: Option<&[u8]> = match object.storage_type {
        1 => Some(b"FILE"),
        2 => Some(b"MEMORY"),
        _ => None,
    };
    let agent = object.agent_id.and_then(|agent| out.known.agents.get(agent.handle));
    let extdata = with_ids(bytes, &[("code_object_id", out.known.code_objects.next_key().get())])?;
    let row = CodeObjectRow {
        agent_id: agent,
        uri: object.uri.as_deref().filter(|uri| !uri.is_empty()).map(str::as_bytes),
        load_base: object.load_base.map(Into::into),
        load_size: object.load_size.map(Into::into),
        load_delta: object.load_delta,
        storage_type,
        extdata: Some(extdata.as_bytes()),
    };
    out.known.code_objects.add(object.code_object_id, &mut out.translator, out.source, &row)?;
    Ok(())
}

fn kernel_symbol(out: &mut ProcessOutput<'_>, bytes: &[u8]) -> Result<(), ElementError> {
    let symbol: KernelSymbol = serde_json::from_slice(bytes)?;
    if symbol.kernel_id == 0 && symbol.code_object_id == 0 {
        out.translator.ignored_names().add("kernel_symbols[] (empty)", 1);
        return Ok(());
    }
    if out.known.kernels.get(symbol.kernel_id).is_some() {
        return Err(ElementError::Bad(format!("kernel {} was there before", symbol.kernel_id)));
    }
    let object = out.code_object_key(symbol.code_object_id)?;
    let extdata = with_ids(
        bytes,
        &[("kernel_id", out.known.kernels.next_key().get()), ("code_object_id", object.get())],
    )?;
    let row = KernelSymbolRow {
        code_object_id: object,
        kernel_name: text(&symbol.kernel_name),
        display_name: text(&symbol.formatted_kernel_name),
        kernel_object: symbol.kernel_object.map(Into::into),
        kernarg_segment_size: symbol.kernarg_segment_size.map(Into::into),
        kernarg_segment_alignment: symbol.kernarg_segment_alignment.map(Into::into),
        group_segment_size: symbol.group_segment_size.map(Into::into),
        private_segment_size: symbol.private_segment_size.map(Into::into),
        sgpr_count: symbol.sgpr_count.map(Into::into),
        arch_vgpr_count: symbol.arch_vgpr_count.map(Into::into),
        accum_vgpr_count: symbol.accum_vgpr_count.map(Into::into),
        extdata: Some(extdata.as_bytes()),
    };
    out.known.kernels.add(symbol.kernel_id, &mut out.translator, out.source, &row)?;
    Ok(())
}

fn counter(out: &mut ProcessOutput<'_>, bytes: &[u8]) -> Result<(), ElementError> {
    let counter: JsonCounter = serde_json::from_slice(bytes)?;
    if out.known.counters.get(counter.id.handle).is_some() {
        return Err(ElementError::Bad(format!("counter {} was there before", counter.id.handle)));
    }
    let agent = counter.agent_id.and_then(|agent| out.known.agents.get(agent.handle));
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
    out.known.counters.add(counter.id.handle, &mut out.translator, out.source, &row)?;
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
