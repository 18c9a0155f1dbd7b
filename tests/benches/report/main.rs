//! How long `rpd-report summary` takes from a database and from shards, beside the same query in SQLite, in the same
//! rounds.
//!
//! ```text
//! ci/bench report [--rounds N] [--events N] [--minutes N] [--only-ranks] [--screen-ranks N] [--dir FOLDER]
//! ```
//!
//! The database has about four million rows with times. Each round runs the report over it and over its shards, SQL for
//! its counts, sums and extremes, and SQL for the percentiles too; they change places every round. One turn of each
//! warms the page cache. Ratios are taken within a round. Then follow the report on two ranks beside that on all cores, over
//! the shards of a longer run, and the times that rpd-graph takes for a call, without a database. With `--only-ranks`, only
//! the former is timed; with `--screen-ranks`, only the first screen of a run of so many ranks and ten million calls. It
//! needs MPI.
//!
//! The run and the seconds of each round remain in the folder until all rounds are done. After `--minutes`, the benchmark
//! stops, and the same command goes on with the next round.

mod first_screen;
mod graph_speed;
mod ranks;
mod rounds;

use clap::Parser;
use rounds::TimedRounds;
use rpd_tests::harness::{Job, binary, repository, rpd_merge};
use rpd_tests::measure::{RatioInterval, exit_code, machine, median};
use rpd_tests::synthetic::{BulkRun, write_bulk_shards};
use rusqlite::{Connection, OpenFlags};
use std::error::Error;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::{Duration, Instant};

/// Calls of the run with a first screen.
const SCREEN_CALLS: u32 = 10_000_000;
/// Longest turn.
const LIMIT: Duration = Duration::from_secs(900);
/// Rows with times, as `rpd-report summary` groups them.
const TIMED: &str = "
WITH timed(domain, name, ns) AS (
    SELECT c.string, n.string, r.\"end\" - r.start FROM rocpd_region r
      JOIN rocpd_string n ON n.id = r.name_id JOIN rocpd_event v ON v.id = r.event_id
      LEFT JOIN rocpd_string c ON c.id = v.category_id
     UNION ALL
    SELECT c.string, k.display_name, r.\"end\" - r.start FROM rocpd_kernel_dispatch r
      JOIN rocpd_info_kernel_symbol k ON k.id = r.kernel_id JOIN rocpd_event v ON v.id = r.event_id
      LEFT JOIN rocpd_string c ON c.id = v.category_id
     UNION ALL
    SELECT c.string, n.string, r.\"end\" - r.start FROM rocpd_memory_copy r
      JOIN rocpd_string n ON n.id = r.name_id JOIN rocpd_event v ON v.id = r.event_id
      LEFT JOIN rocpd_string c ON c.id = v.category_id
     UNION ALL
    SELECT c.string, r.type, r.\"end\" - r.start FROM rocpd_memory_allocate r
      JOIN rocpd_event v ON v.id = r.event_id LEFT JOIN rocpd_string c ON c.id = v.category_id)";
const SUMS: &str = "SELECT domain, name, count(*), sum(ns) AS total, avg(ns), min(ns), max(ns) FROM timed GROUP BY 1, 2 ORDER BY 4 DESC";
const PERCENTILES: &str = ",
ranked AS (
    SELECT *, row_number() OVER (PARTITION BY domain, name ORDER BY ns) AS k,
           count(*) OVER (PARTITION BY domain, name) AS n FROM timed)
SELECT domain, name, count(*), sum(ns) AS total, avg(ns), min(ns), max(ns),
       max(CASE WHEN k = (n * 50 + 99) / 100 THEN ns END), max(CASE WHEN k = (n * 95 + 99) / 100 THEN ns END),
       max(CASE WHEN k = (n * 99 + 99) / 100 THEN ns END)
  FROM ranked GROUP BY 1, 2 ORDER BY 4 DESC";

/// `rpd-report summary` beside SQLite
#[derive(Parser)]
#[command(name = "ci/bench report")]
struct Arguments {
    /// Rounds
    #[arg(long)]
    rounds: Option<usize>,
    /// Events of each of the eight ranks
    #[arg(long)]
    events: Option<usize>,
    /// Time only the report on two ranks
    #[arg(long)]
    only_ranks: bool,
    /// Time only the first screen of a run of this many ranks with ten million calls; 4,096 ranks need 20 GB of disk
    #[arg(long)]
    screen_ranks: Option<u32>,
    /// Stop after so many minutes; the same command goes on
    #[arg(long, default_value_t = 18)]
    minutes: u64,
    /// Where the run is written; in a folder in it, which is removed at the end [default: target/bench-report]
    #[arg(long, value_name = "FOLDER")]
    dir: Option<PathBuf>,
    /// Passed by cargo bench; without it, a short run
    #[arg(long, hide = true)]
    bench: bool,
}

/// What is timed.
#[derive(Clone, Copy)]
enum Contestant {
    Report,
    FromShards,
    Sums,
    Percentiles,
}

const CONTESTANTS: [(Contestant, &str); 4] = [
    (Contestant::Report, "rpd-report summary"),
    (Contestant::FromShards, "rpd-report summary, from shards"),
    (Contestant::Sums, "SQL: counts, sums, extremes"),
    (Contestant::Percentiles, "SQL: the same and percentiles"),
];

fn main() -> ExitCode {
    exit_code("report", run(&Arguments::parse()))
}

fn run(arguments: &Arguments) -> Result<(), Box<dyn Error>> {
    let rounds = arguments.rounds.unwrap_or(if arguments.bench { 15 } else { 2 }).max(2);
    let place = arguments.dir.clone().unwrap_or_else(|| repository().join("target/bench-report"));
    std::fs::create_dir_all(&place)?;
    if let Some(ranks) = arguments.screen_ranks {
        let folder = tempfile::Builder::new().prefix("report-").tempdir_in(&place)?;
        let steps = (SCREEN_CALLS / 5 / ranks.max(1)).max(10);
        return first_screen::print(folder.path(), rounds.min(3), (ranks, steps));
    }
    let events = arguments.events.unwrap_or(if arguments.bench { 500_000 } else { 1_000 });
    if arguments.only_ranks {
        return ranks::print(&place, rounds, events);
    }
    let folder = place.join(format!("events-{events}"));
    let began = Instant::now();
    let inputs = find_or_write_inputs(&folder, events)?;
    let mut done = TimedRounds::open(&folder.join("rounds.csv"))?;
    let (rows, all_rows) = count_rows(&inputs.database)?;
    println!(
        "{rounds} rounds, {} of them before, {rows} rows with times, {all_rows} with their events and arguments. {}",
        done.count(),
        machine(&folder)
    );
    for (contestant, _) in CONTESTANTS {
        time_turn(contestant, &inputs)?;
    }
    while done.count() < rounds {
        if began.elapsed() > Duration::from_secs(60 * arguments.minutes) {
            println!("{} of {rounds} rounds are done; the same command goes on", done.count());
            return Ok(());
        }
        let mut seconds = [0.0; CONTESTANTS.len()];
        for turn in 0..CONTESTANTS.len() {
            let at = (done.count() + turn) % CONTESTANTS.len();
            seconds[at] = time_turn(CONTESTANTS[at].0, &inputs)?;
        }
        done.add(seconds)?;
        eprintln!("round {} of {rounds}", done.count());
    }
    let seconds = done.by_contestant();
    std::fs::remove_dir_all(&folder)?;
    println!(
        "\n| | seconds | million rows with times a second | of all | times the report: mean and 95 % interval |"
    );
    println!("|---|--:|--:|--:|--:|");
    for (at, (_, name)) in CONTESTANTS.iter().enumerate() {
        let ratios = seconds[at].iter().zip(&seconds[0]).map(|(other, report)| other / report);
        let median = median(seconds[at].iter().copied());
        let [speed, of_all] = [rows, all_rows].map(|rows| rows as f64 / median / 1e6);
        println!("| {name} | {median:.3} | {speed:.1} | {of_all:.1} | {} |", RatioInterval::of(ratios));
    }
    ranks::print(&place, rounds, events)?;
    graph_speed::print(rounds, if arguments.bench { 500 } else { 10 })?;
    Ok(())
}

/// A run in two forms.
struct RunForms {
    database: PathBuf,
    shards: Vec<PathBuf>,
}

/// Writes and merges a run of eight ranks, unless an earlier part of the benchmark has done so.
fn find_or_write_inputs(folder: &Path, events: usize) -> Result<RunForms, Box<dyn Error>> {
    let run = BulkRun { ranks: 8, ranks_per_node: 8, events_per_rank: events, ..BulkRun::default() };
    let shards = write_bulk_shards(&folder.join("runs"), &run)?;
    let database = folder.join("run.db");
    if database.exists() {
        return Ok(RunForms { database, shards });
    }
    let _ = rpd_merge().limit(LIMIT).arg("--quiet").arg("-o").arg(&database).args(&shards).run().success();
    Ok(RunForms { database, shards })
}

/// Returns the number of rows with times, and with that of their events and arguments, which a report from shards
/// decodes to check them.
fn count_rows(database: &Path) -> Result<(i64, i64), rusqlite::Error> {
    let connection = Connection::open_with_flags(database, OpenFlags::SQLITE_OPEN_READ_ONLY)?;
    let rows = connection.query_row(&format!("{TIMED} SELECT count(*) FROM timed"), [], |row| row.get(0))?;
    let count = "SELECT (SELECT count(*) FROM rocpd_event) + (SELECT count(*) FROM rocpd_arg)";
    let others: i64 = connection.query_row(count, [], |row| row.get(0))?;
    Ok((rows, rows + others))
}

/// Returns the seconds of a turn.
fn time_turn(contestant: Contestant, forms: &RunForms) -> Result<f64, Box<dyn Error>> {
    let began = Instant::now();
    let query = match contestant {
        Contestant::Report | Contestant::FromShards => {
            let job =
                Job::new(binary("rpd-report")).limit(LIMIT).args(["--quiet", "--format", "csv", "summary"]);
            let outcome = match contestant {
                Contestant::FromShards => job.args(&forms.shards).run(),
                _ => job.arg(&forms.database).run(),
            };
            let seconds = began.elapsed().as_secs_f64();
            return if outcome.code() == Some(0) { Ok(seconds) } else { Err(outcome.to_string().into()) };
        }
        Contestant::Sums => format!("{TIMED} {SUMS}"),
        Contestant::Percentiles => format!("{TIMED} {PERCENTILES}"),
    };
    let connection = Connection::open_with_flags(&forms.database, OpenFlags::SQLITE_OPEN_READ_ONLY)?;
    let mut statement = connection.prepare(&query)?;
    let mut rows = statement.query([])?;
    while rows.next()?.is_some() {}
    Ok(began.elapsed().as_secs_f64())
}
