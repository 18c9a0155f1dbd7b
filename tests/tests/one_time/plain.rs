//! Long jobs of many nodes with few rows: one rank a node, and nothing but an allreduce now and then.

use rpd_shard::ShardWriter;
use rpd_shard::model::{Value, native, rocpd};
use rpd_tests::harness::Database;
use rpd_tests::synthetic::{
    ModelClock, ModelRank, ObservedClocks, RUN_START, RandomSource, Run, SyntheticRun, process_record,
    run_identity,
};
use std::fs::{self, File};
use std::io::BufWriter;
use std::path::{Path, PathBuf};

/// A job of which only the clocks come from the run.
pub(crate) struct PlainJob {
    pub(crate) run: Run,
    /// How long it takes, ns.
    pub(crate) length: i64,
    /// Between two collectives, ns; none if 0.
    pub(crate) every: i64,
    /// On which communicator a rank calls them.
    pub(crate) comm: fn(u32) -> &'static str,
    /// The rank that always comes last.
    pub(crate) late: Option<u32>,
}

impl PlainJob {
    /// Clocks that drift by up to 20 ppm, walls that are up to 3 ms off.
    pub(crate) fn new(nodes: u32, seconds: i64, every: i64) -> PlainJob {
        let config = SyntheticRun {
            nodes,
            ranks_per_node: 1,
            max_drift_ppb: 20_000,
            max_anchor_error: 3_000_000,
            ..SyntheticRun::default()
        };
        let comm = |_| "MPI_COMM_WORLD";
        PlainJob { run: config.plan(), length: seconds * 1_000_000_000, every, comm, late: None }
    }

    /// All that a collector can see.
    pub(crate) fn seen(&self, rank: &ModelRank) -> ObservedClocks {
        let node = rank.node;
        let mut random = RandomSource::new(&[11, node as u64]);
        let sets = self.clock(rank).sets(RUN_START, RUN_START + self.length, &mut random);
        let asks = |parent| self.run.probes_between(node, parent, [0, self.length]);
        ObservedClocks { sets, bursts: if node == 0 { Vec::new() } else { asks(node & (node - 1)) } }
    }

    pub(crate) fn clock(&self, rank: &ModelRank) -> &ModelClock {
        &self.run.nodes[rank.node].clock
    }

    /// Writes the shards of ranks with collectors that saw this.
    pub(crate) fn shards(
        &self,
        folder: &Path,
        seen: &dyn Fn(&ModelRank) -> Option<ObservedClocks>,
    ) -> Vec<PathBuf> {
        fs::create_dir_all(folder).unwrap();
        let write = |rank: &ModelRank| {
            let path = folder.join(format!("rank-{:05}.rpdshard", rank.rank));
            self.write(rank, &seen(rank)?, &path);
            Some(path)
        };
        self.run.ranks.iter().filter_map(write).collect()
    }

    /// When a rank is in its calls: an allreduce, else a send, true times.
    fn calls(&self, rank: &ModelRank) -> Vec<(i64, i64)> {
        let every = if self.every == 0 { self.length / 200 } else { self.every };
        let mut random = RandomSource::new(&[12, u64::from(rank.rank)]);
        let call = |n: i64| {
            let all = RUN_START + n * every;
            let early = random.between(5_000, 900_000);
            (
                all - if self.late == Some(rank.rank) { 0 } else { early },
                all + 8_000 + random.between(0, 3_000),
            )
        };
        (1..self.length / every).map(call).collect()
    }

    fn write(&self, rank: &ModelRank, seen: &ObservedClocks, path: &Path) {
        let sink = BufWriter::new(File::create(path).unwrap());
        let mut shard = ShardWriter::new(sink, &run_identity(&self.run, rank.rank)).unwrap();
        shard.process(&process_record(&self.run, &rank.processes[0])).unwrap();
        let (none, one) = (Value::Null, Value::Int(1));
        shard.push(1, rocpd::INFO_THREAD, &[one, one, one, Value::Int(7), none, none, none, none]).unwrap();
        let world = Value::Int(shard.string((self.comm)(rank.rank).as_bytes()).unwrap());
        let name: &[u8] = if self.every == 0 { b"MPI_Send" } else { b"MPI_Allreduce" };
        let name = Value::Int(shard.string(name).unwrap());
        for (n, (enter, exit)) in (1..).zip(self.calls(rank)) {
            let [enter, exit] = [enter, exit].map(|at| Value::Int(self.clock(rank).local(at)));
            let seq = Value::Int(n);
            let zero = Value::Int(0);
            let row = [one, enter, exit, name, seq, zero, world, none, none, none, Value::Int(1_024), seq];
            shard.push(1, native::MPI_CALL, &row).unwrap();
        }
        seen.bursts.iter().for_each(|burst| shard.probes(burst).unwrap());
        seen.sets.iter().for_each(|set| shard.clock(set).unwrap());
        shard.finish().unwrap();
    }

    /// How far the calls of a rank end from when they truly did on the clock of a node, ns.
    pub(crate) fn errors(&self, rank: &ModelRank, reference: usize, database: &Database) -> Vec<i64> {
        let sql = format!(
            "SELECT r.end FROM rocpd_region r JOIN rocpd_info_process p ON p.id = r.pid WHERE p.pid = {} ORDER BY 1",
            rank.processes[0].pid
        );
        let merged: Vec<i64> = database.rows(&sql).iter().map(|row| row[0].parse().unwrap()).collect();
        let calls = self.calls(rank);
        assert_eq!((merged.len(), merged.is_empty()), (calls.len(), false));
        let reference = &self.run.nodes[reference].clock;
        merged.iter().zip(calls).map(|(end, (_, exit))| end - reference.local(exit)).collect()
    }
}
