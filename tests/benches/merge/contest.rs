//! The contestants, and one turn of each.

use crate::checks::{Checked, checked};
use crate::inputs::Inputs;
use crate::sync::SyncWatch;
use rpd_tests::harness::{Job, binary, mpi_missing, mpirun, rpd_merge, rpd_merge_mpi};
use rpd_tests::measure::peak_of_merge_ranks;
use rpd_tests::plain;
use std::fmt;
use std::fs::File;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::process::{Child, Command};
use std::time::Instant;

/// Longest turn, seconds.
const LIMIT: &str = "1800";

/// One way from inputs to an output.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Contestant {
    /// rpd-merge.
    Ours(From, How),
    /// SQLite alone, ids shifted into one set of tables.
    Shifted,
    /// SQLite alone, every table copied as it is: AMD's layout.
    Stacked,
    /// `cat` of the databases.
    Cat,
    /// `mpirun`, and an rpd-merge that does next to nothing.
    Start(usize),
}

/// What rpd-merge reads.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum From {
    Shards,
    Databases,
}

/// How rpd-merge runs.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum How {
    /// Alone, with so many threads.
    Threads(usize),
    /// So many ranks with a thread each.
    Ranks(usize),
}

/// All of them, those of rpd-merge first.
pub(crate) fn contestants() -> Vec<Contestant> {
    let mut ways = vec![How::Threads(1), How::Threads(2)];
    let mut all = Vec::new();
    match mpi_missing() {
        Some(why) => eprintln!("not measured under mpirun: {why}"),
        None => ways.extend([How::Ranks(1), How::Ranks(2)]),
    }
    for from in [From::Shards, From::Databases] {
        all.extend(ways.iter().map(|how| Contestant::Ours(from, *how)));
    }
    all.extend([Contestant::Shifted, Contestant::Stacked, Contestant::Cat]);
    all.extend(ways.iter().filter_map(|how| match how {
        How::Ranks(ranks) => Some(Contestant::Start(*ranks)),
        How::Threads(_) => None,
    }));
    all
}

/// One turn.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Lap {
    /// Seconds, without the sync.
    pub(crate) seconds: f64,
    /// Seconds of the sync of the output.
    pub(crate) sync: f64,
}

pub(crate) struct Contest<'a> {
    inputs: &'a Inputs,
    output: PathBuf,
    watch: SyncWatch,
}

impl<'a> Contest<'a> {
    pub(crate) fn new(inputs: &'a Inputs, folder: &Path) -> Result<Contest<'a>, String> {
        Ok(Contest { inputs, output: folder.join("out.db"), watch: SyncWatch::new(folder)? })
    }

    /// A turn that is timed. One that failed is taken again, once: now and then ranks do not come up.
    pub(crate) fn lap(&self, contestant: Contestant) -> Result<Lap, String> {
        self.timed(contestant).or_else(|error| {
            eprintln!("AGAIN after: {error}");
            self.timed(contestant)
        })
    }

    fn timed(&self, contestant: Contestant) -> Result<Lap, String> {
        self.clear()?;
        let began = Instant::now();
        self.run(contestant, |_| {})?;
        let seconds = began.elapsed().as_secs_f64();
        match contestant {
            Contestant::Start(_) => Ok(Lap { seconds, sync: 0.0 }),
            Contestant::Ours(..) => {
                let sync = self.watch.seconds().ok_or("rpd-merge was not seen to sync its output")?;
                Ok(Lap { seconds: seconds - sync, sync })
            }
            _ => {
                let began = Instant::now();
                File::open(&self.output).and_then(|file| file.sync_all()).map_err(|e| e.to_string())?;
                Ok(Lap { seconds, sync: began.elapsed().as_secs_f64() })
            }
        }
    }

    /// A turn that is looked at.
    pub(crate) fn check(&self, contestant: Contestant) -> Result<Option<Checked>, String> {
        self.clear()?;
        let mut peak = 0;
        self.run(contestant, |child| peak = peak_of_merge_ranks(child))?;
        match contestant {
            Contestant::Start(_) => Ok(None),
            _ => checked(&self.output, peak, contestant != Contestant::Cat).map(Some),
        }
    }

    fn run(&self, contestant: Contestant, watch: impl FnOnce(&mut Child)) -> Result<(), String> {
        let databases = &self.inputs.databases;
        let mut child = match contestant {
            Contestant::Shifted => {
                return plain::shifted(databases, &self.output).map_err(|error| error.to_string());
            }
            Contestant::Stacked => {
                return plain::stacked(databases, &self.output).map_err(|error| error.to_string());
            }
            Contestant::Cat => {
                let output = File::create(&self.output).map_err(|error| error.to_string())?;
                let mut cat = Command::new("cat");
                cat.args(databases).stdout(output).spawn().map_err(|error| error.to_string())?
            }
            Contestant::Start(ranks) => {
                let shard = self.inputs.shards.join("rank-00000.rpdshard");
                // Under its own name it initialises MPI before it looks what there is to do.
                self.started(mpirun(ranks).arg(binary("rpd-merge-mpi")).arg("inspect").arg(shard))
            }
            Contestant::Ours(from, how) => {
                let job = match how {
                    How::Threads(threads) => rpd_merge().args(["--threads", &threads.to_string()]),
                    How::Ranks(ranks) => rpd_merge_mpi(ranks).args(["--threads", "1"]),
                };
                let job = job.args(["--quiet", "-o"]).arg(&self.output);
                self.started(match from {
                    From::Shards => job.arg(&self.inputs.shards),
                    From::Databases => job.args(databases),
                })
            }
        };
        watch(&mut child);
        let status = child.wait().map_err(|error| format!("{contestant}: {error}"))?;
        if status.success() {
            return Ok(());
        }
        let mut said = String::new();
        if let Some(mut stderr) = child.stderr.take() {
            let _ = stderr.read_to_string(&mut said);
        }
        Err(format!("{contestant}: {status}: {said}"))
    }

    fn started(&self, job: Job) -> Child {
        job.env("LD_PRELOAD", &self.watch.library)
            .env("RPD_SYNC_LOG", &self.watch.log)
            .wrapped("timeout", &[LIMIT])
            .start()
    }

    /// Nothing is left to be written from before.
    fn clear(&self) -> Result<(), String> {
        rpd_tests::harness::remove(&self.output);
        self.watch.clear().map_err(|error| error.to_string())?;
        rustix::fs::sync();
        Ok(())
    }
}

impl fmt::Display for Contestant {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Contestant::Ours(from, how) => {
                let from = if *from == From::Shards { "shards" } else { "databases" };
                match how {
                    How::Threads(1) => write!(f, "rpd-merge, {from}, 1 thread"),
                    How::Threads(threads) => write!(f, "rpd-merge, {from}, {threads} threads"),
                    How::Ranks(ranks) => write!(f, "rpd-merge, {from}, mpirun -n {ranks}"),
                }
            }
            Contestant::Shifted => write!(f, "SQLite, ids shifted into one table set"),
            Contestant::Stacked => write!(f, "SQLite, AMD's layout copied as it is"),
            Contestant::Cat => write!(f, "cat of the databases"),
            Contestant::Start(ranks) => write!(f, "start of mpirun -n {ranks} alone"),
        }
    }
}
