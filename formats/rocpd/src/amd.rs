//! The tables of each version of AMD's schema, in the form that AMD's strict validators compare.

use crate::schema::{NEWEST, with_words_of};
use rpd_shard::model::columns::{int, reference, text, time};
use rpd_shard::model::{Column, FIRST_CARRIED_TABLE, Schema, Table, TableId, rocpd};

/// Tables and columns that a version added and of which only the name is published. `None` stands for a whole table.
const NAMED_ONLY: [([u32; 3], &str, Option<&str>); 3] = [
    ([3, 0, 4], "rocpd_hip_event", None),
    ([3, 0, 5], "rocpd_pmc_event", Some("shader_array")),
    ([3, 0, 5], "rocpd_pmc_event", Some("wgp")),
];

/// Returns the tables of a version, or `None` for a version that this release does not support.
///
/// The result lacks tables and columns of which only the name is published, see `named_only`.
pub fn schema_of(version: [u32; 3]) -> Option<Schema> {
    if version[..2] != NEWEST[..2] || version > NEWEST {
        return None;
    }
    let mut schema = Schema::builtin().clone();
    if version >= [3, 0, 2] {
        for (table, before) in [(rocpd::KERNEL_DISPATCH, "grid_size_z"), (rocpd::MEMORY_COPY, "stream_id")] {
            let of_graph = ["graph_exec_id", "graph_node_id"].map(|name| int(name).not_null().default("0"));
            insert(&mut schema, table, before, of_graph);
        }
        schema.define(graph_launch());
    }
    if version >= [3, 0, 3] {
        insert(&mut schema, rocpd::PMC_EVENT, "event_id", [reference("sample_id", rocpd::SAMPLE)]);
        let place = ["xcc", "shader_engine", "instance"].map(int);
        insert(&mut schema, rocpd::PMC_EVENT, "value", place);
        insert(&mut schema, rocpd::INFO_PMC, "is_derived", [int("spm_support")]);
    }
    Some(with_words_of(version, &schema))
}

/// Returns the tables and columns of a version of which only the name is published. A column comes with its table.
pub(crate) fn named_only(version: [u32; 3]) -> impl Iterator<Item = (&'static str, Option<&'static str>)> {
    let known = NAMED_ONLY.into_iter().filter(move |(since, ..)| *since <= version && version <= NEWEST);
    known.map(|(_, table, column)| (table, column))
}

/// Returns the table of 3.0.2 with one row per launch of a graph.
fn graph_launch() -> Table {
    let columns = vec![
        reference("nid", rocpd::INFO_NODE).not_null(),
        reference("pid", rocpd::INFO_PROCESS).not_null(),
        reference("tid", rocpd::INFO_THREAD),
        reference("agent_id", rocpd::INFO_AGENT),
        reference("queue_id", rocpd::INFO_QUEUE),
        time("start").not_null(),
        time("end").not_null(),
        int("graph_exec_id").not_null(),
        int("kernel_dispatch_count").not_null().default("0"),
        reference("event_id", rocpd::EVENT),
        text("extdata").json(&[]),
    ];
    Table { id: FIRST_CARRIED_TABLE, name: "rocpd_graph_launch".to_owned(), columns }
}

/// Inserts columns after the column `after`.
fn insert<const N: usize>(schema: &mut Schema, table: TableId, after: &str, columns: [Column; N]) {
    let Some(mut table) = schema.get(table).map(|table| (**table).clone()) else { return };
    let Some(place) = table.position(after) else { return };
    table.columns.splice(place + 1..place + 1, columns);
    // These positions of other columns have changed, and only shards need them.
    table.columns.iter_mut().for_each(|column| column.near = None);
    schema.define(table);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::guid::Guid;
    use crate::schema::create_all_of;
    use rusqlite::Connection;

    #[test]
    fn every_known_version_has_tables_that_sqlite_makes_and_no_other_has() {
        for patch in 0..=NEWEST[2] {
            let schema = schema_of([3, 0, patch]).unwrap();
            let conn = Connection::open_in_memory().unwrap();
            conn.execute_batch(&create_all_of(&schema, &[(&Guid::from_bits(1)).into()])).unwrap();
            let tables: i64 = conn
                .query_row("SELECT count(*) FROM sqlite_master WHERE name GLOB 'rocpd_*_0*'", [], |r| {
                    r.get(0)
                })
                .unwrap();
            assert_eq!(tables, if patch < 2 { 20 } else { 21 }, "3.0.{patch}");
        }
        for version in [[2, 0, 0], [3, 0, 6], [3, 1, 0], [4, 0, 0]] {
            assert!(schema_of(version).is_none(), "{version:?}");
        }
    }
}
