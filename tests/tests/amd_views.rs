//! What AMD's views show of a merge is what they show of its inputs.

use rpd_tests::content::{DatabaseContent, differences};
use rpd_tests::databases::{change, content_of};
use rpd_tests::fixtures;
use rpd_tests::harness::{Database, JobOutcome, dump_difference, rpd_merge};
use rpd_tests::plain;
use rpd_tests::synthetic::{SyntheticRun, write_rocpd};
use rpd_tests::views::view_rows;
use rusqlite::Connection;
use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};

/// Databases of rocprofv3, or what stands for them: synthetic ones are always here, real ones not.
fn kinds_of_databases(folder: &Path) -> Vec<Vec<PathBuf>> {
    let run = SyntheticRun { events_per_rank: 150, ..SyntheticRun::default() };
    let synthetic = write_rocpd(&run.plan(), &folder.join("synthetic")).unwrap();
    let mut kinds = vec![synthetic, fixtures::rocpd_databases(&folder.join("real"))];
    kinds.retain(|kind| !kind.is_empty());
    kinds
}

fn opened(paths: &[PathBuf]) -> Vec<Database> {
    paths.iter().map(|path| Database::open(path)).collect()
}

/// The rows of the views of all files together.
fn rows(paths: &[PathBuf]) -> DatabaseContent {
    let databases = opened(paths);
    let connections: Vec<&Connection> = databases.iter().map(|database| &database.connection).collect();
    view_rows(&connections).unwrap()
}

/// Rows for the views that have few: scratch memory, streams in arguments, names around kernels and
/// copies, code objects in line information, references to nothing.
const ENRICHMENT: [&str; 9] = [
    "UPDATE rocpd_memory_allocate<uuid> SET level = 'SCRATCH', extdata = '{\"flags\": 3}' WHERE id % 3 = 0",
    "UPDATE rocpd_arg<uuid> SET name = 'stream', extdata = '{\"stream_id\": ' || (id % 4) || '}' WHERE id % 5 = 0",
    "UPDATE rocpd_kernel_dispatch<uuid> SET region_name_id = 3 WHERE id % 2 = 0",
    "UPDATE rocpd_memory_copy<uuid> SET region_name_id = 4, queue_id = 1 WHERE id % 2 = 0",
    "UPDATE rocpd_event<uuid> SET line_info = '{\"pc\": {\"code_object_id\": 2, \"offset\": 7}}' WHERE id % 10 = 0",
    "UPDATE rocpd_event<uuid> SET call_stack = '[\"main\", \"a \u{fc}\"]', correlation_id = id * 3 WHERE id % 10 = 1",
    "UPDATE rocpd_event<uuid> SET category_id = NULL WHERE id % 21 = 0",
    "UPDATE rocpd_memory_allocate<uuid> SET agent_id = NULL WHERE id % 5 = 0",
    "UPDATE rocpd_pmc_event<uuid> SET value = value + 0.125 WHERE id % 2 = 0",
];

/// Copies of files in a folder of their own.
fn copies(paths: &[PathBuf], folder: &Path) -> Vec<PathBuf> {
    fs::create_dir_all(folder).unwrap();
    let copy = |path: &PathBuf| {
        let copy = folder.join(path.file_name().unwrap());
        fs::copy(path, &copy).unwrap();
        copy
    };
    paths.iter().map(copy).collect()
}

/// The inputs as they are, and with rows for every view.
fn inputs(folder: &Path) -> Vec<Vec<PathBuf>> {
    let mut all = Vec::new();
    for (number, plain) in kinds_of_databases(folder).into_iter().enumerate() {
        let rich = copies(&plain, &folder.join(format!("rich-{number}")));
        rich.iter().for_each(|path| change(path, &ENRICHMENT));
        all.extend([plain, rich]);
    }
    all
}

/// Those with rows for every view.
fn rich_inputs(folder: &Path) -> Vec<Vec<PathBuf>> {
    inputs(folder).into_iter().skip(1).step_by(2).collect()
}

/// Merges with these arguments into a new file.
fn merged(inputs: &[PathBuf], arguments: &[&str], output: &Path) -> JobOutcome {
    rpd_merge().args(arguments).args(["--force", "-o"]).arg(output).args(inputs).run().success()
}

// --- the comparison itself ---------------------------------------------------------------------------------

#[test]
fn databases_beside_each_other_show_what_each_of_them_shows() {
    let folder = tempfile::tempdir().unwrap();
    for (number, inputs) in rich_inputs(folder.path()).into_iter().enumerate() {
        let output = folder.path().join(format!("stacked-{number}.db"));
        plain::stacked(&inputs, &output).unwrap();
        let mut expected = rows(&inputs);
        assert!(expected.len() >= 22, "{:?}", expected.keys());
        for view in
            ["regions", "kernels", "memory_copies", "counters_collection", "top", "kernels JOIN regions"]
        {
            assert!(expected[view].len() >= 10, "{view} has {} rows", expected[view].len());
        }
        assert!(expected.values().all(|rows| !rows.is_empty()), "a view without rows");
        let mut found = rows(&[output]);
        // AMD's statement takes the threads of other guids too, where their ids are the same.
        for rows in [&mut expected, &mut found] {
            rows.remove("memory_allocations");
        }
        assert_eq!(differences(&expected, &found), "");
    }
}

#[test]
fn a_changed_row_is_a_difference() {
    let folder = tempfile::tempdir().unwrap();
    let inputs = inputs(folder.path()).swap_remove(1);
    let expected = rows(&inputs);
    // In one input only, one change at a time.
    for sql in [
        "UPDATE rocpd_event<uuid> SET stack_id = stack_id + 1 WHERE id = 9",
        "UPDATE rocpd_event<uuid> SET parent_stack_id = 2 WHERE id = 9",
        "UPDATE rocpd_kernel_dispatch<uuid> SET queue_id = 1 WHERE id <= 3",
        "UPDATE rocpd_kernel_dispatch<uuid> SET stream_id = 1 WHERE id <= 3",
        "UPDATE rocpd_kernel_dispatch<uuid> SET kernel_id = 1 + kernel_id % 4 WHERE id = 3",
        "UPDATE rocpd_region<uuid> SET tid = (SELECT tid + 0 FROM rocpd_region ORDER BY tid DESC LIMIT 1) WHERE event_id IN (1, 3)",
        "UPDATE rocpd_info_code_object<uuid> SET uri = 'another' WHERE id = 2",
        "UPDATE rocpd_pmc_event<uuid> SET pmc_id = 3 - pmc_id WHERE id = 1",
        "UPDATE rocpd_pmc_event<uuid> SET value = value + 1 WHERE id = 1",
        "UPDATE rocpd_arg<uuid> SET event_id = 3 WHERE event_id = 1",
        "UPDATE rocpd_arg<uuid> SET extdata = '{\"stream_id\": 3}' WHERE extdata = '{\"stream_id\": 1}'",
        "UPDATE rocpd_event<uuid> SET line_info = '{\"pc\": {\"code_object_id\": 1, \"offset\": 7}}'
            WHERE id = (SELECT event_id FROM rocpd_region WHERE event_id % 10 = 0 LIMIT 1)",
        "UPDATE rocpd_memory_copy<uuid> SET src_agent_id = dst_agent_id WHERE id = 1",
        "UPDATE rocpd_sample<uuid> SET timestamp = timestamp + 1 WHERE id = (SELECT min(id) FROM rocpd_sample)",
    ] {
        let changed = copies(&inputs, &folder.path().join("changed"));
        change(&changed[1], &[sql]);
        assert_ne!(differences(&expected, &rows(&changed)), "", "{sql}");
    }
}

#[test]
fn ids_inside_json_that_were_not_moved_are_a_difference() {
    let folder = tempfile::tempdir().unwrap();
    let inputs = inputs(folder.path()).swap_remove(1);
    let output = folder.path().join("shifted.db");
    plain::shifted(&inputs, &output).unwrap();
    let (mut expected, mut found) = (rows(&inputs), rows(&[output]));
    // What SQL alone does not know, and nothing else.
    for view in
        ["kernel_symbols", "stream_args", "regions", "regions_and_samples", "samples", "sample_regions"]
    {
        assert!(expected[view] != found[view] || view.starts_with("sample"), "{view}");
        for rows in [&mut expected, &mut found] {
            rows.remove(view);
        }
    }
    assert_eq!(differences(&expected, &found), "");
}

// --- merges ------------------------------------------------------------------------------------------------

#[test]
fn a_merge_shows_what_its_inputs_show() {
    let folder = tempfile::tempdir().unwrap();
    let output = folder.path().join("out.db");
    for inputs in inputs(folder.path()) {
        let _ = merged(&inputs, &["--strict"], &output);
        Database::open(&output).assert_sound();
        assert_eq!(differences(&rows(&inputs), &rows(std::slice::from_ref(&output))), "");
    }
}

#[test]
fn a_merge_has_every_row_of_every_table() {
    let folder = tempfile::tempdir().unwrap();
    let output = folder.path().join("out.db");
    for inputs in rich_inputs(folder.path()) {
        let _ = merged(&inputs, &["--strict"], &output);
        let found = content_of(std::slice::from_ref(&output));
        assert_eq!(differences(&content_of(&inputs), &found), "");
    }
}

#[test]
fn amds_own_merge_is_an_input_like_its_parts() {
    let folder = tempfile::tempdir().unwrap();
    let output = folder.path().join("out.db");
    for (number, inputs) in rich_inputs(folder.path()).into_iter().enumerate() {
        let stacked = folder.path().join(format!("stacked-{number}.db"));
        plain::stacked(&inputs, &stacked).unwrap();
        let _ = merged(&[stacked], &["--strict"], &output);
        Database::open(&output).assert_sound();
        assert_eq!(differences(&rows(&inputs), &rows(std::slice::from_ref(&output))), "");
    }
}

#[test]
fn a_partitioned_merge_shows_the_same_and_has_a_guid_for_each_process() {
    let folder = tempfile::tempdir().unwrap();
    let (output, again) = (folder.path().join("out.db"), folder.path().join("again.db"));
    for inputs in rich_inputs(folder.path()) {
        let _ = merged(&inputs, &["--strict", "--layout", "partitioned"], &output);
        let expected = rows(&inputs);
        assert_eq!(differences(&expected, &rows(std::slice::from_ref(&output))), "");
        let database = Database::open(&output);
        let guids = database.number("SELECT count(DISTINCT guid) FROM rocpd_info_process");
        assert_eq!(guids, inputs.len() as i64);
        assert_eq!(database.rows("PRAGMA integrity_check"), [["'ok'"]]);
        // It is an input as well.
        let _ = merged(std::slice::from_ref(&output), &["--strict"], &again);
        assert_eq!(differences(&expected, &rows(std::slice::from_ref(&again))), "");
    }
}

/// All rows of all tables with their ids, without what a merge says about itself.
fn dump_without_provenance(path: &Path) -> String {
    let database = Connection::open(path).unwrap();
    let tag = "SELECT value FROM rocpd_metadata WHERE tag = 'uuid'";
    let uuid: String = database.query_row(tag, [], |row| row.get(0)).unwrap();
    let database = Database { connection: database };
    let mut out = String::new();
    for table in database.names("table").iter().filter(|table| table.starts_with("rocpd_")) {
        let name = table.strip_suffix(&uuid).unwrap();
        if name == "rocpd_metadata" {
            continue;
        }
        let columns = database.rows(&format!("SELECT name FROM pragma_table_info('{table}')"));
        let columns = columns.iter().flatten().map(|column| column.trim_matches('\''));
        let columns = columns.filter(|column| *column != "guid").map(|column| match (name, column) {
            ("rocpd_info_process", "extdata") => "json_remove(extdata, '$.rpd')".to_owned(),
            _ => format!("\"{column}\""),
        });
        let columns = columns.collect::<Vec<_>>().join(", ");
        let _ = writeln!(out, "table {name}");
        for row in database.rows(&format!("SELECT {columns} FROM \"{table}\" ORDER BY id")) {
            let _ = writeln!(out, "{}", row.join("|"));
        }
    }
    out
}

#[test]
fn merging_a_merge_changes_provenance_only() {
    let folder = tempfile::tempdir().unwrap();
    let [once, twice, thrice] = ["once.db", "twice.db", "thrice.db"].map(|name| folder.path().join(name));
    for inputs in rich_inputs(folder.path()) {
        let _ = merged(&inputs, &["--strict"], &once);
        let _ = merged(std::slice::from_ref(&once), &["--strict"], &twice);
        let _ = merged(std::slice::from_ref(&twice), &["--strict"], &thrice);
        let [once, twice, thrice] = [&once, &twice, &thrice].map(|path| dump_without_provenance(path));
        assert_eq!(dump_difference(&once, &twice), None);
        assert_eq!(dump_difference(&twice, &thrice), None);
    }
}

#[test]
fn the_order_of_the_arguments_does_not_matter() {
    let folder = tempfile::tempdir().unwrap();
    let (one, other) = (folder.path().join("one.db"), folder.path().join("other.db"));
    for inputs in rich_inputs(folder.path()) {
        let _ = merged(&inputs, &[], &one);
        let backwards: Vec<PathBuf> = inputs.iter().rev().cloned().collect();
        let _ = merged(&backwards, &[], &other);
        assert!(fs::read(&one).unwrap() == fs::read(&other).unwrap(), "{} bytes", inputs.len());
    }
}

// --- ids that a merge gives anew ---------------------------------------------------------------------------------

#[test]
fn busy_names_the_device_and_the_process_of_each_agent() {
    let folder = tempfile::tempdir().unwrap();
    let output = folder.path().join("out.db");
    // Host name, pid, index of the device, time: what no merge renumbers.
    let by_agent = |table: &str, agent: &str| {
        format!("SELECT {agent} AS agent, guid, \"end\" - start AS ns FROM {table} WHERE {agent} IS NOT NULL")
    };
    let of_input = format!(
        "SELECT node.hostname, proc.pid, agent.absolute_index, sum(ns) FROM ({} UNION ALL {}) used
           JOIN rocpd_info_agent agent ON agent.id = used.agent AND agent.guid = used.guid
           JOIN rocpd_info_process proc ON proc.id = agent.pid AND proc.guid = agent.guid
           JOIN rocpd_info_node node ON node.id = agent.nid AND node.guid = agent.guid
          GROUP BY agent.id",
        by_agent("rocpd_kernel_dispatch", "agent_id"),
        by_agent("rocpd_memory_copy", "dst_agent_id"),
    );
    let of_merge = "SELECT node.hostname, busy.pid, agent_abs_index, GpuTime FROM busy
           JOIN rocpd_info_node node ON node.id = busy.nid";
    for inputs in inputs(folder.path()) {
        let _ = merged(&inputs, &["--strict"], &output);
        let mut expected: Vec<_> = opened(&inputs).iter().flat_map(|input| input.rows(&of_input)).collect();
        let mut found = Database::open(&output).rows(of_merge);
        assert!(expected.len() >= 8, "{expected:?}");
        expected.sort();
        found.sort();
        assert_eq!(found, expected);
        found.dedup_by_key(|row| row[..3].to_vec());
        assert_eq!(found.len(), expected.len(), "an agent is there twice");
        // The id is that of the row, by which other tables and views name the agent.
        let strangers =
            "SELECT count(*) FROM busy LEFT JOIN rocpd_info_agent agent ON agent.id = busy.agent_id
              WHERE agent.absolute_index IS NOT busy.agent_abs_index";
        assert_eq!(Database::open(&output).number(strangers), 0);
    }
}
