use super::cell::{ModelCell, Row};
use super::clock::RUN_START;
use super::native::{NativeCall, NativeRows};
use super::process::ProcessRows;
use super::run::{ModelRank, PlannedProcess, Run};
use rpd_shard::file::folder_of_ranks;
use rpd_shard::model::{TableId, Value, native, rocpd};
use rpd_shard::record::{Clock, ClockSet, ProbeBurst, Process, ProcessExit, RunIdentity};
use rpd_shard::{ShardWriter, WriteError};
use std::fs::{self, File};
use std::io::{self, BufWriter, Write};
use std::path::{Path, PathBuf};

/// The rows of every table come in this many portions at least, so that also a small shard has
/// several blocks of a table.
const PORTIONS: usize = 3;
/// Most rows of a table in one portion.
const PORTION_ROWS: usize = 40_000;

/// Writes the shard of every rank that is there below `<dir>/<run id>`, which is returned: where rpd-collect puts them,
/// those of more than 1,000 ranks in folders of 1,000.
pub fn write_shards(run: &Run, dir: &Path) -> io::Result<PathBuf> {
    let dir = dir.join(&run.run_id);
    fs::create_dir_all(&dir)?;
    for rank in run.present() {
        let below = folder_of_ranks(Some(rank.rank), Some(run.ranks.len() as u32));
        let folder = below.map_or(dir.clone(), |below| dir.join(below));
        fs::create_dir_all(&folder)?;
        let path = folder.join(format!("rank-{:05}.rpdshard", rank.rank));
        let file = BufWriter::with_capacity(1 << 20, File::create(path)?);
        write_shard(run, rank, file).map_err(io::Error::other)?.flush()?;
    }
    Ok(dir)
}

/// The identity that all shards of a run carry, but for the rank.
pub fn run_identity(run: &Run, rank: u32) -> RunIdentity {
    RunIdentity {
        run_id: run.run_id.clone(),
        run_id_from: "--run-id".into(),
        rank: Some(rank),
        size: Some(run.ranks.len() as u32),
        version: env!("CARGO_PKG_VERSION").into(),
    }
}

/// How a shard describes a process.
pub fn process_record(run: &Run, process: &PlannedProcess) -> Process {
    let node = &run.nodes[process.node];
    let rank = process.rank;
    Process {
        source: process.source,
        rank: Some(rank),
        size: Some(run.ranks.len() as u32),
        local_rank: Some(process.local_rank),
        rank_from: Some("OMPI_COMM_WORLD_RANK".into()),
        worker: process.worker(),
        restart: 0,
        node: node.node.clone(),
        domain: node.clock.domain.clone(),
        clock: Clock::Boottime,
        pid: process.pid,
        ppid: process.ppid,
        start_ticks: 100 * u64::from(rank) + u64::from(process.source),
        first_seen: node.clock.local(RUN_START),
        last_seen: Some(node.clock.local(RUN_START + run.length())),
        command: format!("python3 train.py --rank {rank}"),
        environment: vec![("OMPI_COMM_WORLD_RANK".into(), rank.to_string())],
        exit: Some(ProcessExit::Code(0)),
    }
}

/// What a collector saw of the clocks, in the order of time.
#[derive(Clone, Debug, Default)]
pub struct ObservedClocks {
    /// The clocks of its own node.
    pub sets: Vec<ClockSet>,
    /// Those of its node against others.
    pub bursts: Vec<ProbeBurst>,
}

impl ObservedClocks {
    /// All that a collector of the run can see.
    pub fn of(run: &Run, rank: &ModelRank) -> ObservedClocks {
        let bursts = if run.config.probes { run.probes(rank) } else { Vec::new() };
        ObservedClocks { sets: run.clock_sets(rank), bursts }
    }
}

/// Writes the shard of a rank.
pub fn write_shard<W: Write>(run: &Run, rank: &ModelRank, sink: W) -> Result<W, WriteError> {
    write_shard_that_saw(run, rank, &ObservedClocks::of(run, rank), sink)
}

/// Writes the shard of a rank with a collector that saw this of the clocks.
pub fn write_shard_that_saw<W: Write>(
    run: &Run,
    rank: &ModelRank,
    seen: &ObservedClocks,
    sink: W,
) -> Result<W, WriteError> {
    let mut shard = ShardWriter::new(sink, &run_identity(run, rank.rank))?;
    for process in &rank.processes {
        shard.process(&Process { last_seen: None, exit: None, ..process_record(run, process) })?;
    }
    let ObservedClocks { sets, bursts } = seen;
    let (last, first) = sets.split_last().map_or((None, &sets[..]), |(last, first)| (Some(last), first));
    first.iter().try_for_each(|set| shard.clock(set))?;
    let (last_burst, first_bursts) =
        bursts.split_last().map_or((None, &bursts[..]), |(last, first)| (Some(last), first));
    first_bursts.iter().try_for_each(|burst| shard.probes(burst))?;
    for process in &rank.processes {
        let rows = run.rows(process);
        ShardRows { run, process, shard: &mut shard }.write(&rows)?;
        shard.process(&process_record(run, process))?;
    }
    last_burst.into_iter().try_for_each(|burst| shard.probes(burst))?;
    last.into_iter().try_for_each(|set| shard.clock(set))?;
    shard.finish()
}

struct ShardRows<'a, W: Write> {
    run: &'a Run,
    process: &'a PlannedProcess,
    shard: &'a mut ShardWriter<W>,
}

impl<W: Write> ShardRows<'_, W> {
    fn write(&mut self, rows: &ProcessRows) -> Result<(), WriteError> {
        let longest = rows.tables.values().map(Vec::len).max().unwrap_or(0);
        let portions = PORTIONS.max(longest.div_ceil(PORTION_ROWS));
        let part =
            |length: usize, portion: usize| length * portion / portions..length * (portion + 1) / portions;
        for portion in 0..portions {
            for (table, rows) in &rows.tables {
                for row in &rows[part(rows.len(), portion)] {
                    self.row(*table, row)?;
                }
            }
            for event in &rows.native[part(rows.native.len(), portion)] {
                self.native(event)?;
            }
            self.shard.flush()?;
        }
        Ok(())
    }

    /// Keys of a table are dense from 1.
    fn key(_: TableId, row: usize) -> i64 {
        row as i64 + 1
    }

    fn local(&self, true_ns: i64) -> i64 {
        self.run.nodes[self.process.node].clock.local(true_ns)
    }

    fn row(&mut self, table: TableId, row: &Row) -> Result<(), WriteError> {
        let mut json = Vec::new();
        for cell in row {
            if let ModelCell::Json(value) = cell {
                json.push(value.render(&Self::key));
            }
        }
        let mut json = json.iter();
        let mut values = Vec::with_capacity(row.len());
        for cell in row {
            values.push(match cell {
                ModelCell::Null => Value::Null,
                ModelCell::Int(v) | ModelCell::Stack(v) => Value::Int(*v),
                ModelCell::Real(v) => Value::Real(*v),
                ModelCell::Text(v) => Value::Text(v.as_bytes()),
                ModelCell::Name(v) => Value::Int(self.shard.string(v.as_bytes())?),
                ModelCell::Time(v) => Value::Int(self.local(*v)),
                ModelCell::Row(table, row) => Value::Int(Self::key(*table, *row)),
                // Nothing stored stands for the default.
                ModelCell::Json(_) => match json.next().map_or("{}", String::as_str) {
                    "{}" if table != rocpd::PMC_EVENT => Value::Null,
                    text => Value::Text(text.as_bytes()),
                },
            });
        }
        self.shard.push(self.process.source, table, &values).map(drop)
    }

    fn native(&mut self, event: &NativeRows) -> Result<(), WriteError> {
        let tid = Value::Int(Self::key(rocpd::INFO_THREAD, event.thread));
        let name = Value::Int(self.shard.string(event.name().as_bytes())?);
        let (start, end) = (Value::Int(self.local(event.start)), Value::Int(self.local(event.end)));
        let (stack, parent) = (Value::Int(event.stack), Value::Int(event.parent));
        let source = self.process.source;
        let mut string = |text: Option<&str>| -> Result<Value<'_>, WriteError> {
            Ok(Value::from(text.map(|text| self.shard.string(text.as_bytes())).transpose()?))
        };
        let key = match &event.call {
            NativeCall::Range(_) => {
                self.shard.push(source, native::RANGE, &[tid, start, end, name, stack, parent])
            }
            NativeCall::Mark(_) => self.shard.push(source, native::MARK, &[tid, start, name, stack, parent]),
            NativeCall::Mpi { comm, peer, root, tag, bytes, seq, .. } => {
                let comm = string(*comm)?;
                let [peer, root, tag, bytes, seq] = [*peer, *root, *tag, *bytes, *seq].map(Value::from);
                let row = [tid, start, end, name, stack, parent, comm, peer, root, tag, bytes, seq];
                self.shard.push(source, native::MPI_CALL, &row)
            }
            NativeCall::Rccl { comm, root, elements, seq, .. } => {
                let (comm, datatype) = (string(*comm)?, string(elements.map(|(_, datatype, _)| datatype))?);
                let count = Value::from(elements.map(|(count, ..)| count));
                let bytes = Value::from(elements.map(|(.., bytes)| bytes));
                let (peer, root, seq) = (Value::Null, Value::from(*root), Value::from(*seq));
                let row =
                    [tid, start, end, name, stack, parent, comm, peer, root, count, datatype, bytes, seq];
                self.shard.push(source, native::RCCL_CALL, &row)
            }
            NativeCall::Request { message, bytes, .. } => {
                let peer = Value::from(message.map(|(peer, _)| peer));
                let tag = Value::from(message.map(|(_, tag)| tag));
                let row = [tid, start, name, stack, parent, peer, tag, Value::from(*bytes)];
                self.shard.push(source, native::MPI_REQUEST, &row)
            }
            NativeCall::Communicator { comm, label, size_rank, .. } => {
                let (comm, label) = (string(Some(comm))?, string(*label)?);
                let size = Value::from(size_rank.map(|(size, _)| size));
                let rank = Value::from(size_rank.map(|(_, rank)| rank));
                let row = [tid, start, name, stack, parent, comm, label, size, rank];
                self.shard.push(source, native::COMMUNICATOR, &row)
            }
        };
        key.map(drop)
    }
}
