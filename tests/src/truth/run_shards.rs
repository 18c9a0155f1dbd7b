use super::call_recorder::DroppedCalls;
use super::conditions::PlantedExcess;
use super::row_recorder::{ColumnValue, RankRows, RecordedRow, RowRecorder};
use super::scenario::Scenario;
use crate::synthetic::{ObservedClocks, RUN_START, Run, SyntheticRun, process_record, run_identity};
use rpd_shard::model::{Schema, TableId, Value, native, rocpd};
use rpd_shard::record::{Loss, LossCause};
use rpd_shard::{ShardWriter, WriteError};
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
    let mut recorder = RowRecorder::new(&scenario.program, dropped);
    let durations = scenario.run(PlantedExcess::All, &mut recorder);
    let run = plan(scenario, durations.length_ns);
    let folder = folder.join(&run.run_id);
    fs::create_dir_all(&folder)?;
    for (rank, rows) in (0u32..).zip(&recorder.ranks) {
        let shard = shard(&run, rank, rows).map_err(io::Error::other)?;
        fs::write(folder.join(format!("rank-{rank:05}.rpdshard")), shard)?;
    }
    Ok(folder)
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
    run.ranks.truncate(scenario.program.ranks as usize);
    run
}

fn shard(run: &Run, rank: u32, rows: &RankRows) -> Result<Vec<u8>, WriteError> {
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
    for row in &rows.rows {
        push(&mut shard, row, |at_ns| clock.local(RUN_START + at_ns))?;
    }
    if rows.dropped > 0 {
        let (table, cause) = (Some(native::MPI_CALL), LossCause::RingFull);
        shard.loss(Loss { source: SOURCE, table, cause, rows: Some(rows.dropped) });
    }
    shard.finish()
}

/// Adds a row: its values by the names of their columns, so that it has those that this release knows.
fn push(
    shard: &mut ShardWriter<Vec<u8>>,
    row: &RecordedRow,
    local: impl Fn(i64) -> i64,
) -> Result<(), WriteError> {
    let Some(table) = Schema::builtin().get(row.table) else { return Ok(()) };
    let mut values = vec![Value::Null; table.columns.len()];
    let name = shard.string(row.name.as_bytes())?;
    let fixed = [
        ("tid", THREAD),
        ("start", local(row.start_ns)),
        ("end", local(row.end_ns)),
        ("timestamp", local(row.start_ns)),
        ("name_id", name),
        ("stack_id", row.stack),
        ("parent_stack_id", row.parent),
    ];
    for (column, value) in fixed {
        set(&mut values, row.table, column, value);
    }
    for (column, value) in &row.values {
        let value = match value {
            ColumnValue::Int(value) => *value,
            ColumnValue::Text(text) => shard.string(text.as_bytes())?,
        };
        set(&mut values, row.table, column, value);
    }
    shard.push(SOURCE, row.table, &values).map(drop)
}

fn set(values: &mut [Value<'_>], table: TableId, column: &str, value: i64) {
    let position = Schema::builtin().get(table).and_then(|table| table.position(column));
    if let Some(place) = position.and_then(|position| values.get_mut(position)) {
        *place = Value::Int(value);
    }
}
