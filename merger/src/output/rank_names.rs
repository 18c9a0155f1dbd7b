//! Names of threads, queues and streams with the rank of their process.
//!
//! Viewers list these objects of all ranks side by side. So their names in the output begin with the rank, and
//! `extdata.rpd.recorded_name` has the name that the input recorded. Readers of this project use the recorded name.

use crate::input::OpenInput;
use crate::number::SourceMap;
use rpd_run::UnitNames;
use rpd_shard::model::{Cells, Merged, OwnedValue, Rows, Value, rocpd};
use serde_json::value::RawValue;
use serde_json::{Map, Value as Json, json};
use std::collections::BTreeMap;

/// Name of the column with the name of an object.
const NAME: &str = "name";
/// Name of the column with JSON.
const EXTDATA: &str = "extdata";

/// Puts the rank in front of each name, if the rows are threads, queues or streams of a process with a rank. A name of a
/// previous merge, and one that JSON cannot represent, stays as it is.
pub(super) fn add_ranks(rows: &mut Rows<Merged>, input: &OpenInput, map: &SourceMap<'_>) {
    if !matches!(rows.id(), rocpd::INFO_THREAD | rocpd::INFO_QUEUE | rocpd::INFO_STREAM) {
        return;
    }
    let (Some(name_at), Some(extdata_at)) = (rows.table.position(NAME), rows.table.position(EXTDATA)) else {
        return;
    };
    let ranks = ranks_by_process(input, map);
    let (mut names, mut extdatas) = (Vec::with_capacity(rows.len), Vec::with_capacity(rows.len));
    for i in 0..rows.len {
        let rank = rows.column("pid").int(i).and_then(|process| ranks.get(&process));
        let (name, extdata) = (rows.columns[name_at].get(i), rows.columns[extdata_at].get(i));
        let named = rank.and_then(|rank| with_rank(rank, name, extdata));
        let (name, extdata) = named.unwrap_or_else(|| (name.to_owned(), extdata.to_owned()));
        names.push(name);
        extdatas.push(extdata);
    }
    rows.columns[name_at] = Cells::Any(names);
    rows.columns[extdata_at] = Cells::Any(extdatas);
}

/// Returns the words for the rank of each process of a source, by its id in the output.
fn ranks_by_process(input: &OpenInput, map: &SourceMap<'_>) -> BTreeMap<i64, String> {
    let source = map.source;
    let words = |rank: u32, worker: bool| format!("rank {rank}{}", if worker { " worker" } else { "" });
    let id = |key: i64| {
        let number = source.spaces.get(&rocpd::INFO_PROCESS)?.stored(key)?;
        Some(map.bases.id(rocpd::INFO_PROCESS, number))
    };
    match input {
        OpenInput::None => BTreeMap::new(),
        OpenInput::Shard(_) => {
            let process = &source.process;
            let named = process
                .rank
                .and_then(|rank| Some((id(source.first_process())?, words(rank, process.worker))));
            named.into_iter().collect()
        }
        OpenInput::Database(open) => {
            let processes = open.table_set_of(source).map_or(&[][..], |set| &set.processes);
            let named = processes
                .iter()
                .filter_map(|process| Some((id(process.key)?, words(process.rank?, process.worker))));
            named.collect()
        }
    }
}

/// Returns a name with its rank, and JSON with the recorded name.
fn with_rank(rank: &str, name: Value<'_>, extdata: Value<'_>) -> Option<(OwnedValue, OwnedValue)> {
    let recorded = match name {
        Value::Text(text) => Some(std::str::from_utf8(text).ok()?),
        Value::Null => None,
        _ => return None,
    };
    let extdata = match extdata {
        Value::Text(text) => std::str::from_utf8(text).ok()?,
        Value::Null => "{}",
        _ => return None,
    };
    // Other members stay as they are spelled.
    let mut members: BTreeMap<String, Box<RawValue>> = serde_json::from_str(extdata).ok()?;
    let mut noted: Map<String, Json> = match members.get("rpd") {
        Some(noted) => serde_json::from_str(noted.get()).ok()?,
        None => Map::new(),
    };
    if noted.contains_key(UnitNames::RECORDED) {
        return None;
    }
    noted.insert(UnitNames::RECORDED.to_owned(), json!(recorded));
    members.insert("rpd".to_owned(), serde_json::value::to_raw_value(&noted).ok()?);
    let name = match recorded.unwrap_or_default() {
        "" => rank.to_owned(),
        recorded => format!("{rank} {recorded}"),
    };
    let text = |text: String| OwnedValue::Text(text.into_bytes().into());
    Some((text(name), text(serde_json::to_string(&members).ok()?)))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn named(name: Option<&str>, extdata: &str) -> Option<(String, String)> {
        let text = |value: OwnedValue| match value {
            OwnedValue::Text(text) => String::from_utf8_lossy(&text).into_owned(),
            other => format!("{other:?}"),
        };
        let name = name.map_or(Value::Null, Value::from);
        let (name, extdata) = with_rank("rank 3", name, extdata.into())?;
        Some((text(name), text(extdata)))
    }

    #[test]
    fn the_recorded_name_and_other_members_stay() {
        let found = named(Some("Queue 0"), r#"{"x":12345678901234567890.10,"rpd":{"id":7}}"#);
        let (name, extdata) = found.unwrap();
        assert_eq!(name, "rank 3 Queue 0");
        assert_eq!(extdata, r#"{"rpd":{"id":7,"recorded_name":"Queue 0"},"x":12345678901234567890.10}"#);
        let (name, extdata) = named(None, "{}").unwrap();
        assert_eq!((&*name, &*extdata), ("rank 3", r#"{"rpd":{"recorded_name":null}}"#));
    }

    #[test]
    fn a_name_with_a_rank_or_without_json_stays_as_it_is() {
        let (name, extdata) = named(Some("main"), "{}").unwrap();
        assert_eq!(named(Some(&name), &extdata), None);
        for extdata in ["", "[1]", r#"{"rpd":1}"#, "{"] {
            assert_eq!(named(Some("main"), extdata), None, "{extdata}");
        }
    }
}
