//! How far off the times of real runs are: real collectors on emulated nodes with known true offsets.
//!
//! ```text
//! ci/bench real-clocks [--before BIN] [--clocks N] [--minutes N] [--folder DIR]
//! ci/bench real-clocks --measure DIR
//! ```
//!
//! Each batch has one idle run and four beside other work on the same cores: spinning ranks, spinning loops, and loops
//! that compile. With `--before` each run is made with the collector in that folder as well, in turns,
//! and is judged by the database that the rpd-merge beside it makes. Runs are kept in DIR, and a
//! second call goes on with what is missing. The first complete batches count; none is left out.

mod load;
mod table;

use clap::Parser;
use load::{KINDS, Kind, Load};
use rpd_clocks::AlignChoice;
use rpd_tests::clocks::{RecordedRun, judge, judge_merged};
use rpd_tests::cluster::{SlurmCluster, StepLauncher};
use rpd_tests::harness::{Job, binary, repository};
use rpd_tests::measure::machine;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::{Duration, Instant};
use table::Table;

/// Error bounds of clock alignment on real runs, measured
#[derive(Parser)]
#[command(name = "ci/bench real-clocks")]
struct Arguments {
    /// Folder of another build: its rpd-collect records each run as well, and its rpd-merge aligns that; librpd_intercept.so
    /// is there, too
    #[arg(long, value_name = "BIN")]
    before: Option<PathBuf>,
    /// Clocks to record, at least; each run has three
    #[arg(long, default_value_t = 105)]
    clocks: usize,
    /// Begin no run after this time; a later call goes on
    #[arg(long, default_value_t = 18)]
    minutes: u64,
    /// Where runs are kept
    #[arg(long, value_name = "DIR", default_value = "target/real-clocks")]
    folder: PathBuf,
    /// Measure recorded runs alone: DIR/NAME/RUN, where NAME begins with idle or busy
    #[arg(long, value_name = "DIR")]
    measure: Option<PathBuf>,
    /// Passed by cargo bench
    #[arg(long, hide = true)]
    bench: bool,
}

/// Seconds by which the clocks of the nodes are ahead.
const AHEAD: [i64; 4] = [0, 1_500, 777_777, 200];
/// Seconds of a run.
const SECONDS: usize = 10;

fn main() -> ExitCode {
    let arguments = Arguments::parse();
    let holds = match &arguments.measure {
        Some(folder) => measure(folder, "recorded runs").print(None),
        None => {
            let folder = repository().join(&arguments.folder);
            println!("{}", machine(&folder));
            let complete = record(&arguments, &folder);
            let now = measure(&folder.join("now"), "this build");
            let before = arguments
                .before
                .as_ref()
                .map(|bin| measure_merged(&folder.join("before"), &bin.join("rpd-merge")));
            now.print(before) && complete
        }
    };
    if holds { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

/// Records what is missing. False if time was too short.
fn record(arguments: &Arguments, folder: &Path) -> bool {
    let began = Instant::now();
    let runs = arguments.clocks.div_ceil(AHEAD.len() - 1).next_multiple_of(KINDS.len());
    let program = folder.join("meetings");
    fs::create_dir_all(folder).expect("the folder of the runs");
    let compiled = Job::new("mpicc").arg("-O1").arg("-o").arg(&program);
    let _ = compiled.arg(repository().join("tests/workloads/meetings.c")).run().success();
    let own = binary("rpd-collect");
    let before = arguments.before.as_ref().map(|bin| bin.join("rpd-collect"));
    for number in 0..runs {
        let kind = &KINDS[number % KINDS.len()];
        let mut builds: Vec<(&str, &Path)> = vec![("now", &own)];
        builds.extend(before.as_deref().map(|before| ("before", before)));
        if number % 2 == 1 {
            builds.reverse();
        }
        for (build, collector) in builds {
            let kept = folder.join(build).join(format!("{}_{number:03}", kind.name));
            if kept.exists() {
                continue;
            }
            if began.elapsed() > Duration::from_secs(60 * arguments.minutes) {
                println!("{number} of {runs} runs are there; call it again for the rest");
                return false;
            }
            println!("{build}: {} {number}", kind.name);
            record_one(collector, &program, kind, &kept);
        }
    }
    true
}

/// A run of four ranks on four nodes; its shards are in `kept` once it is complete.
fn record_one(collector: &Path, program: &Path, kind: &Kind, kept: &Path) {
    let cluster = SlurmCluster::new(&AHEAD, "runs on emulated nodes").expect("emulated nodes");
    let root = cluster.folder.join("runs");
    let load = Load::start(kind, &cluster.folder.join("load"));
    let job = cluster.launch(StepLauncher::Mpirun, AHEAD.len()).arg(collector).arg("-o").arg(&root).arg("--");
    let job = job.arg(program).arg(SECONDS.to_string()).args([kind.ranks, kind.gap_ms]);
    let outcome = job.run();
    drop(load);
    assert_eq!(outcome.code(), Some(0), "{outcome}");
    let draft = kept.with_extension("draft");
    let _ = fs::remove_dir_all(&draft);
    let run = only_folder(&root);
    let copy = draft.join(run.file_name().unwrap_or_default());
    fs::create_dir_all(&copy).expect("the folder of a run");
    for shard in fs::read_dir(&run).expect("the run").flatten() {
        if shard.path().extension().is_some_and(|ending| ending == "rpdshard") {
            let _ = fs::copy(shard.path(), copy.join(shard.file_name())).expect("a shard is kept");
        }
    }
    fs::rename(&draft, kept).expect("a run gets its name");
}

fn only_folder(root: &Path) -> PathBuf {
    let mut folders: Vec<PathBuf> = fs::read_dir(root).expect("runs").flatten().map(|e| e.path()).collect();
    assert_eq!(folders.len(), 1, "{folders:?}");
    folders.swap_remove(0)
}

/// Judges all runs below a folder by the merge of this build.
fn measure(folder: &Path, name: &str) -> Table {
    let mut table = Table::new(name, &[AlignChoice::Auto, AlignChoice::Probes]);
    for path in runs(folder) {
        let run = open(&path);
        for by in [AlignChoice::Auto, AlignChoice::Probes] {
            table.add(&name_of(&path), by, judge(&run, by));
        }
    }
    table
}

/// Judges all runs below a folder by the databases that another build makes of them.
fn measure_merged(folder: &Path, merge: &Path) -> Table {
    let mut table = Table::new("the build before", &[AlignChoice::Auto]);
    let database = folder.join("merged.db");
    for path in runs(folder) {
        let shards = only_folder(&path);
        let merged = Job::new(merge).args(["--force", "--quiet", "-o"]).arg(&database).arg(&shards);
        let _ = merged.run().success();
        table.add(&name_of(&path), AlignChoice::Auto, judge_merged(&open(&path), &shards, &database));
    }
    let _ = fs::remove_file(&database);
    table
}

/// The folders of complete runs, in the order of their names.
fn runs(folder: &Path) -> Vec<PathBuf> {
    let names = fs::read_dir(folder).into_iter().flatten().flatten().map(|entry| entry.path());
    let mut names: Vec<PathBuf> = names.filter(|path| path.extension().is_none()).collect();
    names.sort();
    names
}

fn open(path: &Path) -> RecordedRun {
    RecordedRun::open(&only_folder(path)).unwrap_or_else(|error| panic!("{path:?}: {error}"))
}

fn name_of(path: &Path) -> String {
    path.file_name().unwrap_or_default().to_string_lossy().into_owned()
}
