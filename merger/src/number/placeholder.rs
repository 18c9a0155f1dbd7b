//! Placeholder rows, for mandatory references to lost rows.

use crate::input::{BuiltinString, InputSource, JobSchema};
use rpd_shard::model::{Kind, Local, OwnedValue, Rows, RowsBuilder, Value, rocpd};

/// Returns the placeholder rows for which the survey reserved keys.
pub(crate) fn placeholders(source: &InputSource, job: &JobSchema) -> Vec<Rows<Local>> {
    let mut all = Vec::new();
    for (id, space) in source.spaces.iter() {
        let (Some(key), Some(table)) = (space.placeholder, job.get(id)) else { continue };
        let lost = BuiltinString::Lost.text();
        let row: Vec<OwnedValue> = table
            .columns
            .iter()
            .map(|column| match &column.kind {
                // The referenced row is a placeholder, too, or the source's first node or process.
                Kind::Ref(rocpd::INFO_NODE) => OwnedValue::Int(source.nodes.first().map_or(0, |n| n.0)),
                Kind::Ref(rocpd::INFO_PROCESS) => OwnedValue::Int(source.first_process()),
                Kind::Ref(_) if column.sql.not_null => OwnedValue::Int(0),
                Kind::Str => OwnedValue::Int(BuiltinString::Lost.id()),
                Kind::Text if column.name.ends_with("name") || column.sql.not_null => {
                    OwnedValue::Text(lost.as_bytes().into())
                }
                Kind::Int | Kind::Time if column.sql.not_null => OwnedValue::Int(0),
                _ => OwnedValue::Null,
            })
            .collect();
        let mut rows = RowsBuilder::new(table);
        let row: Vec<Value<'_>> = row.iter().map(OwnedValue::as_value).collect();
        rows.push(&row);
        all.push(rows.finish(key));
    }
    all
}
