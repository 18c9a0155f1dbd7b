//! The tables of RocPD schema 3.0.0 (rocprofiler-sdk, ROCm 7) in merge order: a table follows the tables that it
//! refers to.

use super::table::{Column, Table, TableId, int, json, real, reference, stack, string, text, time};

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

/// Declares `nid` and `pid`, the first columns of most tables. They are keys of the node and process rows.
fn owner() -> [Column; 2] {
    [reference("nid", INFO_NODE).not_null(), reference("pid", INFO_PROCESS).not_null()]
}

fn extdata() -> Column {
    json("extdata", &[])
}

fn table<const N: usize>(id: TableId, name: &str, owned: bool, columns: [Column; N]) -> Table {
    let owner = if owned { owner().to_vec() } else { Vec::new() };
    Table { id, name: name.to_owned(), columns: owner.into_iter().chain(columns).collect() }
}

/// Declares the RocPD tables. Order and spelling of the columns are AMD's.
pub(super) fn tables() -> Vec<Table> {
    let processor = ["CPU", "GPU"];
    vec![
        table(STRING, "rocpd_string", false, [text("string").not_null().unique()]),
        table(
            INFO_NODE,
            "rocpd_info_node",
            false,
            [
                int("hash").declared("BIGINT").not_null().unique(),
                text("machine_id").not_null().unique(),
                text("system_name"),
                text("hostname"),
                text("release"),
                text("version"),
                text("hardware_name"),
                text("domain_name"),
            ],
        ),
        table(
            INFO_PROCESS,
            "rocpd_info_process",
            false,
            [
                reference("nid", INFO_NODE).not_null(),
                int("ppid"),
                int("pid").not_null(),
                time("init"),
                time("fini"),
                time("start"),
                time("end"),
                text("command"),
                json("environment", &[]),
                extdata(),
            ],
        ),
        table(
            INFO_THREAD,
            "rocpd_info_thread",
            false,
            [
                reference("nid", INFO_NODE).not_null(),
                int("ppid"),
                reference("pid", INFO_PROCESS).not_null(),
                int("tid").not_null(),
                text("name"),
                time("start"),
                time("end"),
                extdata(),
            ],
        ),
        table(
            INFO_AGENT,
            "rocpd_info_agent",
            true,
            [
                text("type").one_of(&processor),
                int("absolute_index"),
                int("logical_index"),
                int("type_index"),
                int("uuid"),
                text("name"),
                text("model_name"),
                text("vendor_name"),
                text("product_name"),
                text("user_name"),
                extdata(),
            ],
        ),
        table(INFO_QUEUE, "rocpd_info_queue", true, [text("name"), extdata()]),
        table(INFO_STREAM, "rocpd_info_stream", true, [text("name"), extdata()]),
        table(
            INFO_PMC,
            "rocpd_info_pmc",
            true,
            [
                reference("agent_id", INFO_AGENT),
                text("target_arch").one_of(&processor),
                int("event_code").declared("INT"),
                int("instance_id"),
                text("name").not_null(),
                text("symbol").not_null(),
                text("description"),
                text("long_description").default(""),
                text("component"),
                text("units").default(""),
                text("value_type").one_of(&["ABS", "ACCUM", "RELATIVE"]),
                text("block"),
                text("expression"),
                int("is_constant"),
                int("is_derived"),
                extdata(),
            ],
        ),
        table(
            INFO_CODE_OBJECT,
            "rocpd_info_code_object",
            true,
            [
                reference("agent_id", INFO_AGENT),
                text("uri"),
                int("load_base").declared("BIGINT"),
                int("load_size").declared("BIGINT"),
                int("load_delta").declared("BIGINT"),
                text("storage_type").one_of(&["FILE", "MEMORY"]),
                json("extdata", &[(&["code_object_id"], INFO_CODE_OBJECT)]),
            ],
        ),
        table(
            INFO_KERNEL_SYMBOL,
            "rocpd_info_kernel_symbol",
            true,
            [
                reference("code_object_id", INFO_CODE_OBJECT).not_null(),
                text("kernel_name"),
                text("display_name"),
                int("kernel_object"),
                int("kernarg_segment_size"),
                int("kernarg_segment_alignment"),
                int("group_segment_size"),
                int("private_segment_size"),
                int("sgpr_count"),
                int("arch_vgpr_count"),
                int("accum_vgpr_count"),
                json(
                    "extdata",
                    &[(&["kernel_id"], INFO_KERNEL_SYMBOL), (&["code_object_id"], INFO_CODE_OBJECT)],
                ),
            ],
        ),
        table(
            TRACK,
            "rocpd_track",
            false,
            [
                reference("nid", INFO_NODE).not_null(),
                reference("pid", INFO_PROCESS),
                reference("tid", INFO_THREAD),
                string("name_id"),
                extdata(),
            ],
        ),
        table(
            EVENT,
            "rocpd_event",
            false,
            [
                string("category_id"),
                stack("stack_id"),
                stack("parent_stack_id").near(1),
                int("correlation_id"),
                json("call_stack", &[]),
                json("line_info", &[(&["pc", "code_object_id"], INFO_CODE_OBJECT)]),
                extdata(),
            ],
        ),
        table(
            ARG,
            "rocpd_arg",
            false,
            [
                reference("event_id", EVENT).not_null(),
                int("position").not_null(),
                text("type").not_null(),
                text("name").not_null(),
                text("value"),
                json("extdata", &[(&["stream_id"], INFO_STREAM)]),
            ],
        ),
        table(
            PMC_EVENT,
            "rocpd_pmc_event",
            false,
            [
                reference("event_id", EVENT),
                reference("pmc_id", INFO_PMC).not_null(),
                real("value").default("0.0"),
                extdata().nullable(),
            ],
        ),
        table(
            REGION,
            "rocpd_region",
            true,
            [
                reference("tid", INFO_THREAD).not_null(),
                time("start").not_null(),
                time("end").not_null().near(3),
                string("name_id").not_null(),
                reference("event_id", EVENT),
                extdata(),
            ],
        ),
        table(
            SAMPLE,
            "rocpd_sample",
            false,
            [
                reference("track_id", TRACK).not_null(),
                time("timestamp").not_null(),
                reference("event_id", EVENT),
                extdata(),
            ],
        ),
        table(
            KERNEL_DISPATCH,
            "rocpd_kernel_dispatch",
            true,
            [
                reference("tid", INFO_THREAD),
                reference("agent_id", INFO_AGENT).not_null(),
                reference("kernel_id", INFO_KERNEL_SYMBOL).not_null(),
                int("dispatch_id").not_null(),
                reference("queue_id", INFO_QUEUE).not_null(),
                reference("stream_id", INFO_STREAM).not_null(),
                time("start").not_null(),
                time("end").not_null().near(8),
                int("private_segment_size"),
                int("group_segment_size"),
                int("workgroup_size_x").not_null(),
                int("workgroup_size_y").not_null(),
                int("workgroup_size_z").not_null(),
                int("grid_size_x").not_null(),
                int("grid_size_y").not_null(),
                int("grid_size_z").not_null(),
                string("region_name_id"),
                reference("event_id", EVENT),
                extdata(),
            ],
        ),
        table(
            MEMORY_COPY,
            "rocpd_memory_copy",
            true,
            [
                reference("tid", INFO_THREAD),
                time("start").not_null(),
                time("end").not_null().near(3),
                string("name_id").not_null(),
                reference("dst_agent_id", INFO_AGENT),
                int("dst_address"),
                reference("src_agent_id", INFO_AGENT),
                int("src_address"),
                int("size").not_null(),
                reference("queue_id", INFO_QUEUE),
                reference("stream_id", INFO_STREAM),
                string("region_name_id"),
                reference("event_id", EVENT),
                extdata(),
            ],
        ),
        table(
            MEMORY_ALLOCATE,
            "rocpd_memory_allocate",
            true,
            [
                reference("tid", INFO_THREAD),
                reference("agent_id", INFO_AGENT),
                text("type").one_of(&["ALLOC", "FREE", "REALLOC", "RECLAIM"]),
                text("level").one_of(&["REAL", "VIRTUAL", "SCRATCH"]),
                time("start").not_null(),
                time("end").not_null().near(6),
                int("address"),
                int("size").not_null(),
                reference("queue_id", INFO_QUEUE),
                reference("stream_id", INFO_STREAM),
                reference("event_id", EVENT),
                extdata(),
            ],
        ),
    ]
}
