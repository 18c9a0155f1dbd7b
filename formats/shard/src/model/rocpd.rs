//! The tables of RocPD schema 3.0.0 (rocprofiler-sdk, ROCm 7) in merge order: a table follows the tables that it
//! refers to.

use super::columns::{int, reference, text, time};
use super::native::is_native;
use super::row_types;
use super::table::{Table, TableId};

/// `rocpd_string`: text, `UNIQUE`. Shards store it as string blocks, databases as a table.
pub const STRING: TableId = TableId(1);
/// `rocpd_info_node`: one row per node, deduplicated over the job.
pub const INFO_NODE: TableId = TableId(2);
/// `rocpd_info_process`.
pub const INFO_PROCESS: TableId = TableId(3);
/// `rocpd_info_thread`.
pub const INFO_THREAD: TableId = TableId(4);
/// `rocpd_info_agent`: a CPU or GPU as one process sees it.
pub const INFO_AGENT: TableId = TableId(5);
/// `rocpd_info_queue`.
pub const INFO_QUEUE: TableId = TableId(6);
/// `rocpd_info_stream`.
pub const INFO_STREAM: TableId = TableId(7);
/// `rocpd_info_pmc`: a counter.
pub const INFO_PMC: TableId = TableId(8);
/// `rocpd_info_code_object`.
pub const INFO_CODE_OBJECT: TableId = TableId(9);
/// `rocpd_info_kernel_symbol`.
pub const INFO_KERNEL_SYMBOL: TableId = TableId(10);
/// `rocpd_track`.
pub const TRACK: TableId = TableId(11);
/// `rocpd_event`.
pub const EVENT: TableId = TableId(12);
/// `rocpd_arg`.
pub const ARG: TableId = TableId(13);
/// `rocpd_pmc_event`.
pub const PMC_EVENT: TableId = TableId(14);
/// `rocpd_region`.
pub const REGION: TableId = TableId(15);
/// `rocpd_sample`.
pub const SAMPLE: TableId = TableId(16);
/// `rocpd_kernel_dispatch`.
pub const KERNEL_DISPATCH: TableId = TableId(17);
/// `rocpd_memory_copy`.
pub const MEMORY_COPY: TableId = TableId(18);
/// `rocpd_memory_allocate`.
pub const MEMORY_ALLOCATE: TableId = TableId(19);

/// Declares the RocPD tables. Order and spelling of the columns are AMD's. Strings, nodes and processes are declared
/// here, since they have no typed rows.
pub(super) fn tables() -> Vec<Table> {
    let string = vec![text("string").not_null().unique()];
    let node = vec![
        int("hash").declared("BIGINT").not_null().unique(),
        text("machine_id").not_null().unique(),
        text("system_name"),
        text("hostname"),
        text("release"),
        text("version"),
        text("hardware_name"),
        text("domain_name"),
    ];
    let process = vec![
        reference("nid", INFO_NODE).not_null(),
        int("ppid"),
        int("pid").not_null(),
        time("init"),
        time("fini"),
        time("start"),
        time("end"),
        text("command"),
        text("environment").json(&[]),
        text("extdata").json(&[]),
    ];
    let mut tables = vec![
        Table { id: STRING, name: "rocpd_string".to_owned(), columns: string },
        Table { id: INFO_NODE, name: "rocpd_info_node".to_owned(), columns: node },
        Table { id: INFO_PROCESS, name: "rocpd_info_process".to_owned(), columns: process },
    ];
    tables.extend(row_types::tables().into_iter().filter(|table| !is_native(table.id)));
    tables
}
