//! A recorded run beside busy loops, and the events that it recorded and lost.

use crate::busy_loops::BusyLoops;
use rpd_shard::Shard;
use rpd_shard::model::native::RANGE;
use rpd_tests::harness::binary;
use rpd_tests::measure::family;
use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

/// How often memory and CPU time are read while a program runs.
const LOOK_EVERY: Duration = Duration::from_millis(20);
/// Clock ticks of `/proc/PID/stat` are this long.
const TICK_NS: u64 = 10_000_000;

/// Least share of the best speed of a busy loop where no other virtual machine uses the core.
const WHOLE_CORE: f64 = 0.95;

/// A run with its surroundings.
pub(crate) struct DropRun<'a> {
    pub(crate) folder: &'a Path,
    pub(crate) program: &'a Path,
    /// Busy loops beside it.
    pub(crate) loops: u64,
    /// Pairs a second; 0 for as many as possible.
    pub(crate) rate: u64,
    pub(crate) seconds: f64,
}

/// The pairs of a run: how many the program emitted, and how many were recorded and lost.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct RunOutcome {
    /// By the program's own count.
    pub(crate) emitted: u64,
    /// Rows in the shard.
    pub(crate) recorded: u64,
    /// Rows in the loss ledger.
    pub(crate) lost: u64,
    /// CPU time of the collector.
    pub(crate) collector_ns: u64,
    /// The part of it until the program ended.
    pub(crate) beside_program_ns: u64,
    /// Largest memory of the rings that was seen, with their headers.
    pub(crate) ring_bytes: u64,
    /// Steps per second of CPU time of the slowest busy loop.
    pub(crate) loop_speed: f64,
}

impl RunOutcome {
    /// Whether each core did as much in its time as the core of this speed.
    pub(crate) fn has_whole_cores(&self, best: f64) -> bool {
        self.loop_speed >= WHOLE_CORE * best
    }

    /// Whether each pair is recorded or in the ledger.
    pub(crate) fn is_whole(&self) -> bool {
        self.recorded + self.lost == self.emitted
    }

    /// CPU time of the collector for a pair.
    pub(crate) fn cost_ns(&self) -> f64 {
        self.collector_ns as f64 / self.recorded.max(1) as f64
    }
}

impl DropRun<'_> {
    pub(crate) fn outcome(&self) -> Result<RunOutcome, String> {
        let out = self.folder.join("out");
        let _ = fs::remove_dir_all(&out);
        let loops = BusyLoops::start(self.loops);
        let mut command = Command::new(binary("rpd-collect"));
        command.arg("-o").arg(&out).args(["--run-id", "run", "--trace", "roctx", "--"]).arg(self.program);
        command.args([self.rate.to_string(), self.seconds.to_string()]).current_dir(self.folder);
        let mut child = command.stdout(Stdio::piped()).spawn().map_err(|error| error.to_string())?;
        let mut outcome = RunOutcome::default();
        while child.try_wait().map_err(|error| error.to_string())?.is_none() {
            self.look(child.id(), &mut outcome);
            std::thread::sleep(LOOK_EVERY);
        }
        outcome.loop_speed = loops.slowest();
        let output = child.wait_with_output().map_err(|error| error.to_string())?;
        let text = String::from_utf8_lossy(&output.stdout);
        outcome.emitted = text.parse().map_err(|_| format!("the program printed {text:?}"))?;
        let shard = Shard::open(&out.join("run/rank-00000.rpdshard")).map_err(|error| error.to_string())?;
        let ledger = shard.ledger.as_ref().ok_or("the shard is incomplete")?;
        let of_ranges = ledger.written.iter().filter(|(_, table, _)| *table == RANGE);
        outcome.recorded = of_ranges.map(|(_, _, rows)| rows).sum();
        outcome.lost = ledger.losses.iter().map(|loss| loss.rows.unwrap_or(u64::MAX / 1024)).sum();
        Ok(outcome)
    }

    /// Reads CPU time of the collector and memory of the rings.
    fn look(&self, launcher: u32, outcome: &mut RunOutcome) {
        let family = family(launcher);
        let read_of =
            |pid: u32, file: &str| fs::read_to_string(format!("/proc/{pid}/{file}")).unwrap_or_default();
        let is_program =
            |pid: &u32| Some(read_of(*pid, "comm").trim_end().as_ref()) == self.program.file_name();
        let is_running = family.iter().any(is_program);
        for pid in family {
            let read = |file: &str| read_of(pid, file);
            if !read("comm").starts_with("rpd-collector") {
                continue;
            }
            let stat = read("stat");
            let fields = stat.rsplit_once(") ").map_or("", |(_, fields)| fields).split(' ');
            let ticks: u64 = fields.skip(11).take(2).filter_map(|field| field.parse::<u64>().ok()).sum();
            outcome.collector_ns = outcome.collector_ns.max(ticks * TICK_NS);
            if is_running {
                outcome.beside_program_ns = outcome.collector_ns;
            }
            let rings = read("smaps");
            let mut is_ring = false;
            let mut bytes = 0;
            for line in rings.lines() {
                let mut words = line.split_whitespace();
                let first = words.next().unwrap_or_default();
                if !first.ends_with(':') {
                    is_ring = line.contains("memfd:rpd-ring");
                } else if is_ring && first == "Rss:" {
                    bytes += words.next().and_then(|kib| kib.parse::<u64>().ok()).unwrap_or(0) << 10;
                }
            }
            outcome.ring_bytes = outcome.ring_bytes.max(bytes);
        }
    }
}
