use super::call_recorder::DroppedCalls;
use super::conditions::PlantedExcess;
use super::gpu_clocks::{add_gpu_clocks, gpu_extdata};
use super::gpu_recorder::GpuRecorder;
use super::node_counters::add_node_counters;
use super::python_samples::{PythonProfile, add_python_samples};
use super::row_recorder::{ColumnValue, RankRows, RecordedRow, RowRecorder};
use super::scenario::Scenario;
use super::scenario_kind::ScenarioKind;
use crate::synthetic::{ObservedClocks, RUN_START, Run, SyntheticRun, process_record, run_identity};
use rpd_shard::model::{Schema, TableId, Value, native, rocpd};
use rpd_shard::record::{Loss, LossCause};
use rpd_shard::{ShardWriter, WriteError};
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

/// Key of the only thread of a rank.
const THREAD: i64 = 1;
/// Source of a rank in its shard.
const SOURCE: u32 = 1;
/// Events of a synthetic run in 20 ms, which gives it its length.
const EVENTS_IN_20_MS: i64 = 50;

/// Writes the run of a scenario as rpd-collect does: a shard of each rank in a run folder, which is returned. The nodes
/// have clocks of their own, which they measured against each other.
///
/// # Errors
/// If a file cannot be written.
pub fn write_scenario(scenario: &Scenario, dropped: &[DroppedCalls], folder: &Path) -> io::Result<PathBuf> {
    write_shards((scenario, dropped), MoreRows::default(), folder)
}

/// As [`write_scenario`], with counters of each node. Those of the node of the rank `subject` differ from the others.
///
/// # Errors
/// If a file cannot be written.
pub fn write_scenario_with_counters(scenario: &Scenario, subject: u32, folder: &Path) -> io::Result<PathBuf> {
    write_shards((scenario, &[]), MoreRows { subject: Some(subject), ..MoreRows::default() }, folder)
}

/// As [`write_scenario`], with sampled stacks of Python.
///
/// # Errors
/// If a file cannot be written.
pub fn write_scenario_in_python(
    scenario: &Scenario,
    profile: &PythonProfile,
    folder: &Path,
) -> io::Result<PathBuf> {
    write_shards((scenario, &[]), MoreRows { python: Some(profile), ..MoreRows::default() }, folder)
}

/// As [`write_scenario`], without the clocks of GPUs.
///
/// # Errors
/// If a file cannot be written.
pub fn write_scenario_without_clocks(scenario: &Scenario, folder: &Path) -> io::Result<PathBuf> {
    write_shards((scenario, &[]), MoreRows { lacks_clocks: true, ..MoreRows::default() }, folder)
}

/// Rows beside those of calls and ranges.
#[derive(Clone, Copy, Default)]
struct MoreRows<'a> {
    /// The rank of which the counters of the node differ, if nodes have some.
    subject: Option<u32>,
    python: Option<&'a PythonProfile>,
    /// Whether the clocks of GPUs are not recorded.
    lacks_clocks: bool,
}

fn write_shards(
    (scenario, dropped): (&Scenario, &[DroppedCalls]),
    more: MoreRows<'_>,
    folder: &Path,
) -> io::Result<PathBuf> {
    let (length_ns, ranks) = recorded_rows(scenario, dropped);
    let run = plan(scenario, length_ns);
    let folder = folder.join(&run.run_id);
    fs::create_dir_all(&folder)?;
    for (rank, rows) in (0u32..).zip(&ranks) {
        let shard = shard(&run, (rank, rows), (scenario, more, length_ns)).map_err(io::Error::other)?;
        fs::write(folder.join(format!("rank-{rank:05}.rpdshard")), shard)?;
    }
    Ok(folder)
}

/// Runs a scenario. Returns its length, ns, and the rows of each process.
fn recorded_rows(scenario: &Scenario, dropped: &[DroppedCalls]) -> (i64, Vec<RankRows>) {
    if scenario.program.gpus > 0 {
        let mut recorder = GpuRecorder::new(&scenario.program, scenario.size.seed.is_multiple_of(2));
        let durations = scenario.run(PlantedExcess::All, &mut recorder);
        return (durations.length_ns, recorder.processes);
    }
    let mut recorder = RowRecorder::new(&scenario.program, dropped);
    let durations = scenario.run(PlantedExcess::All, &mut recorder);
    (durations.length_ns, recorder.ranks)
}

fn plan(scenario: &Scenario, length_ns: i64) -> Run {
    let config = SyntheticRun {
        seed: scenario.size.seed,
        nodes: scenario.program.nodes(),
        ranks_per_node: scenario.program.ranks_per_node,
        events_per_rank: ((length_ns / 20_000_000 + 2) * EVENTS_IN_20_MS) as usize,
        max_drift_ppb: 30_000,
        max_anchor_error: 20_000_000,
        probes: true,
        ..SyntheticRun::default()
    };
    let mut run = config.plan();
    // The last node may have fewer ranks.
    run.ranks.truncate(scenario.program.processes() as usize);
    run
}

/// Writes a shard of a run of this length, ns.
fn shard(
    run: &Run,
    (rank, rows): (u32, &RankRows),
    (scenario, more, length_ns): (&Scenario, MoreRows<'_>, i64),
) -> Result<Vec<u8>, WriteError> {
    let planned = &run.ranks[rank as usize];
    let mut shard = ShardWriter::new(Vec::new(), &run_identity(run, rank))?;
    for process in &planned.processes {
        shard.process(&process_record(run, process))?;
    }
    let seen = ObservedClocks::of(run, planned);
    seen.sets.iter().try_for_each(|set| shard.clock(set))?;
    seen.bursts.iter().try_for_each(|burst| shard.probes(burst))?;
    let pid = planned.processes.first().map_or(1, |process| i64::from(process.pid));
    shard.push(
        SOURCE,
        rocpd::INFO_THREAD,
        &[Value::Int(1), Value::Int(1), Value::Int(1), Value::Int(pid)],
    )?;
    let clock = &run.nodes[planned.node].clock;
    let kernels =
        describe_gpu(&mut shard, rows, planned.processes.first().map_or(0, |process| process.local_rank))?;
    for row in &rows.rows {
        push(&mut shard, &kernels, row, |at_ns| clock.local(RUN_START + at_ns))?;
    }
    if let Some(subject) = more.subject {
        add_node_counters(&mut shard, run, rank, (subject, length_ns))?;
    }
    if let ScenarioKind::Gpu(fault) = scenario.kind
        && !more.lacks_clocks
    {
        add_gpu_clocks(&mut shard, (run, rank, length_ns), (scenario, fault))?;
    }
    if let Some(profile) = more.python {
        let local = |at_ns| clock.local(RUN_START + at_ns);
        add_python_samples(&mut shard, (rank, rows, length_ns), profile, local)?;
    }
    if rows.dropped > 0 {
        let (table, cause) = (Some(native::MPI_CALL), LossCause::RingFull);
        shard.loss(Loss { source: SOURCE, table, cause, rows: Some(rows.dropped) });
    }
    shard.finish()
}

/// Key of the only agent, queue and stream of a process, and size of a workgroup.
const GPU_COLUMNS: [(&str, i64); 12] = [
    ("agent_id", 1),
    ("queue_id", 1),
    ("stream_id", 1),
    ("dispatch_id", 1),
    ("private_segment_size", 0),
    ("group_segment_size", 0),
    ("workgroup_size_x", 256),
    ("workgroup_size_y", 1),
    ("workgroup_size_z", 1),
    ("grid_size_x", 4096),
    ("grid_size_y", 1),
    ("grid_size_z", 1),
];

/// Adds a GPU with its kernels if there are some. Returns the keys of these by their names.
fn describe_gpu(
    shard: &mut ShardWriter<Vec<u8>>,
    rows: &RankRows,
    local_rank: u32,
) -> Result<BTreeMap<String, i64>, WriteError> {
    let of_gpu = rows.rows.iter().filter(|row| row.table == rocpd::KERNEL_DISPATCH);
    let names: BTreeSet<&str> = of_gpu.map(|row| row.name.as_str()).collect();
    let mut kernels = BTreeMap::new();
    if names.is_empty() {
        return Ok(kernels);
    }
    let extdata = gpu_extdata(local_rank);
    let agent: [(&str, Value<'_>); 5] = [
        ("type", "GPU".into()),
        ("absolute_index", 0.into()),
        ("logical_index", 0.into()),
        ("type_index", 0.into()),
        ("extdata", extdata.as_str().into()),
    ];
    push_values(shard, rocpd::INFO_AGENT, &agent)?;
    push_values(shard, rocpd::INFO_QUEUE, &[("name", "Queue 0".into())])?;
    push_values(shard, rocpd::INFO_STREAM, &[("name", "Stream 0".into())])?;
    push_values(shard, rocpd::INFO_CODE_OBJECT, &[("agent_id", 1.into())])?;
    for (key, name) in (1..).zip(names) {
        let symbol =
            [("code_object_id", 1.into()), ("kernel_name", name.into()), ("display_name", name.into())];
        push_values(shard, rocpd::INFO_KERNEL_SYMBOL, &symbol)?;
        kernels.insert(name.to_owned(), key);
    }
    Ok(kernels)
}

pub(super) fn push_values(
    shard: &mut ShardWriter<Vec<u8>>,
    table: TableId,
    columns: &[(&str, Value<'_>)],
) -> Result<i64, WriteError> {
    push_values_of(shard, SOURCE, table, columns)
}

/// Adds a row of a source: its values by the names of their columns.
pub(super) fn push_values_of(
    shard: &mut ShardWriter<Vec<u8>>,
    source: u32,
    table: TableId,
    columns: &[(&str, Value<'_>)],
) -> Result<i64, WriteError> {
    let Some(described) = Schema::builtin().get(table) else { return Ok(0) };
    let mut values = vec![Value::Null; described.columns.len()];
    for (column, value) in columns {
        if let Some(place) = described.position(column).and_then(|position| values.get_mut(position)) {
            *place = *value;
        }
    }
    shard.push(source, table, &values)
}

/// Adds a row: its values by the names of their columns, so that it has those that this release knows.
fn push(
    shard: &mut ShardWriter<Vec<u8>>,
    kernels: &BTreeMap<String, i64>,
    row: &RecordedRow,
    local: impl Fn(i64) -> i64,
) -> Result<(), WriteError> {
    let mut columns: Vec<(&str, Value<'_>)> = vec![
        ("tid", THREAD.into()),
        ("start", local(row.start_ns).into()),
        ("end", local(row.end_ns).into()),
        ("timestamp", local(row.start_ns).into()),
        ("stack_id", row.stack.into()),
        ("parent_stack_id", row.parent.into()),
    ];
    match row.table {
        rocpd::KERNEL_DISPATCH => {
            columns.extend(GPU_COLUMNS.map(|(column, value)| (column, value.into())));
            columns.extend(kernels.get(&row.name).map(|key| ("kernel_id", Value::Int(*key))));
        }
        _ => columns.push(("name_id", shard.string(row.name.as_bytes())?.into())),
    }
    for (column, value) in &row.values {
        let value = match value {
            ColumnValue::Int(value) => *value,
            ColumnValue::Text(text) => shard.string(text.as_bytes())?,
        };
        columns.push((column, value.into()));
    }
    // Profilers have the stack ids of their rows in events.
    if matches!(row.table, rocpd::REGION | rocpd::KERNEL_DISPATCH) {
        let category = if row.table == rocpd::REGION { "HIP_RUNTIME_API" } else { "KERNEL_DISPATCH" };
        let category = shard.string(category.as_bytes())?;
        let event = [
            ("category_id", category.into()),
            ("stack_id", row.stack.into()),
            ("parent_stack_id", row.parent.into()),
        ];
        columns.push(("event_id", push_values(shard, rocpd::EVENT, &event)?.into()));
    }
    push_values(shard, row.table, &columns).map(drop)
}
