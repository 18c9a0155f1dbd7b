//! Size of the page that `rpd-report html` writes, and how long Chromium takes to load it.
//!
//! ```text
//! ci/bench html [--ranks N] [--steps N] [--loads N] [--run FOLDER]
//! ```
//!
//! The runs are stencils of 16 and of 4,096 ranks with one slow rank. Loading ends when all parts of the page are filled.

use clap::Parser;
use rpd_tests::harness::{PageBrowser, binary};
use rpd_tests::measure::{exit_code, machine, median, peak_of_process};
use rpd_tests::truth::{Scenario, ScenarioKind, ScenarioSize, write_scenario};
use std::error::Error;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, Stdio};
use std::time::Instant;

/// Ranks of a node.
const RANKS_PER_NODE: u32 = 64;
/// Ranks and steps of the runs.
const RUNS: [(u32, u32); 2] = [(16, 1_000), (4_096, 100)];

/// Size and load time of pages of `rpd-report html`
#[derive(Parser)]
#[command(name = "ci/bench html")]
struct Arguments {
    /// Ranks of the only run [default: 16 and 4,096]
    #[arg(long)]
    ranks: Option<u32>,
    /// Steps of each run [default: 1,000 of 16 ranks, 100 of 4,096]
    #[arg(long)]
    steps: Option<u32>,
    /// Times that each page is loaded
    #[arg(long, default_value_t = 9)]
    loads: usize,
    /// A run to report instead, such as a folder of shards
    #[arg(long, value_name = "FOLDER")]
    run: Option<PathBuf>,
    /// Passed by cargo bench
    #[arg(long, hide = true)]
    bench: bool,
}

fn main() -> ExitCode {
    exit_code("html", run(&Arguments::parse()))
}

fn run(arguments: &Arguments) -> Result<(), Box<dyn Error>> {
    let browser = PageBrowser::find("the benchmark html").ok_or("Chromium and Node are needed")?;
    let folder = tempfile::tempdir()?;
    println!("{}\n", machine(folder.path()));
    println!(
        "| run | page, KiB | load, ms, median of {} | report, s | MiB |\n|---|--:|--:|--:|--:|",
        arguments.loads
    );
    if let Some(run) = &arguments.run {
        return print_page(browser, "the run", run, folder.path(), arguments.loads);
    }
    let runs: Vec<(u32, u32)> = match arguments.ranks {
        Some(ranks) => vec![(ranks, 100)],
        None => RUNS.to_vec(),
    };
    for (ranks, steps) in runs {
        let steps = arguments.steps.unwrap_or(if arguments.bench { steps } else { 20 });
        let drawn = ScenarioSize::drawn(ScenarioKind::Stencil, 30);
        let size = ScenarioSize {
            ranks,
            ranks_per_node: RANKS_PER_NODE.min(ranks / 2),
            steps,
            subject: ranks / 3,
            ..drawn
        };
        let scenario = Scenario::sized(ScenarioKind::Stencil, size);
        let shards = write_scenario(&scenario, &[], &folder.path().join(format!("ranks-{ranks}")))?;
        print_page(
            browser,
            &format!("{ranks} ranks, {steps} steps"),
            &shards,
            folder.path(),
            arguments.loads,
        )?;
        std::fs::remove_dir_all(shards)?;
    }
    Ok(())
}

/// Prints the size of the page of a run, the median of its load times, and the time and the memory of the report.
fn print_page(
    browser: PageBrowser,
    name: &str,
    run: &Path,
    folder: &Path,
    loads: usize,
) -> Result<(), Box<dyn Error>> {
    let page = folder.join("page.html");
    let began = Instant::now();
    let mut command = Command::new(binary("rpd-report"));
    command
        .args(["html", "--quiet", "--force", "--memory", "2GiB", "-o"])
        .arg(&page)
        .arg(run)
        .stdout(Stdio::null());
    let mut child = command.spawn()?;
    let peak = peak_of_process(&mut child);
    if !child.wait()?.success() {
        return Err("rpd-report html failed".into());
    }
    let seconds = began.elapsed().as_secs_f64();
    let ms: Vec<f64> = (0..loads.max(1)).map(|_| browser.load_ms(&page)).collect();
    let (kib, mib) = (page.metadata()?.len() >> 10, peak >> 20);
    println!("| {name} | {kib} | {:.0} | {seconds:.1} | {mib} |", median(ms.into_iter()));
    Ok(())
}
