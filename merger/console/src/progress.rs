//! Progress on stderr: a bar on a terminal, otherwise a plain line every ten seconds. Ranks other than 0 show
//! nothing.

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use serde::Serialize;
use std::io::IsTerminal;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// Interval between plain lines.
const LINE_INTERVAL: Duration = Duration::from_secs(10);

/// The progress of one merge.
#[derive(Debug)]
pub struct Progress {
    bar: Option<ProgressBar>,
    /// Time of the last plain line, if stderr is not a terminal.
    last_line: Option<Mutex<Instant>>,
    phase: &'static str,
    done: AtomicU64,
    total: u64,
    /// Start of the phase.
    phase_start: Instant,
    /// Durations of the previous phases.
    phase_times: Vec<PhaseTime>,
}

/// Duration of a phase.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct PhaseTime {
    /// Name of the phase, as the bar shows it.
    pub phase: &'static str,
    /// Wall time on this rank, including waiting for other ranks, in seconds. Repetitions of a phase are added
    /// up.
    pub seconds: f64,
}

impl Progress {
    /// Creates a progress that is visible only if `shown`.
    pub fn new(shown: bool) -> Progress {
        let terminal = std::io::stderr().is_terminal();
        let bar =
            (shown && terminal).then(|| ProgressBar::with_draw_target(None, ProgressDrawTarget::stderr()));
        let last_line = (shown && !terminal).then(|| Mutex::new(Instant::now()));
        Progress {
            bar,
            last_line,
            phase: "",
            done: AtomicU64::new(0),
            total: 0,
            phase_start: Instant::now(),
            phase_times: Vec::new(),
        }
    }

    /// Starts a phase of unknown length.
    pub fn phase(&mut self, phase: &'static str) {
        self.phase_of_bytes(phase, 0);
    }

    /// Starts a phase that processes `total` bytes of inputs.
    pub fn phase_of_bytes(&mut self, phase: &'static str, total: u64) {
        self.end_phase();
        self.phase = phase;
        self.total = total;
        self.done.store(0, Ordering::Relaxed);
        let Some(bar) = &self.bar else { return };
        let template = match total {
            0 => "{prefix:6} {spinner}",
            _ => "{prefix:6} [{bar:40}] {bytes}/{total_bytes} {bytes_per_sec} {eta}",
        };
        if let Ok(style) = ProgressStyle::with_template(template) {
            bar.set_style(style);
        }
        bar.set_prefix(phase);
        bar.reset();
        bar.set_length(total);
    }

    /// Adds the time since the last change to the phase that ends.
    fn end_phase(&mut self) {
        let seconds = self.phase_start.elapsed().as_secs_f64();
        self.phase_start = Instant::now();
        match self.phase_times.iter_mut().find(|known| known.phase == self.phase) {
            Some(known) => known.seconds += seconds,
            None if self.phase.is_empty() => {}
            None => self.phase_times.push(PhaseTime { phase: self.phase, seconds }),
        }
    }

    /// Reports further processed bytes.
    pub fn add(&self, bytes: u64) {
        let done = self.done.fetch_add(bytes, Ordering::Relaxed) + bytes;
        if let Some(bar) = &self.bar {
            bar.set_position(done);
        }
        if let Some(last) = &self.last_line
            && let Ok(mut last) = last.try_lock()
            && last.elapsed() >= LINE_INTERVAL
        {
            *last = Instant::now();
            let percent = (done * 100).checked_div(self.total).unwrap_or(0);
            eprintln!("rpd-merge: {} {percent} % ({} of {} MB)", self.phase, done >> 20, self.total >> 20);
        }
    }

    /// Clears the bar and returns the phases in order.
    pub fn finish(mut self) -> Vec<PhaseTime> {
        self.end_phase();
        if let Some(bar) = &self.bar {
            bar.finish_and_clear();
        }
        self.phase_times
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn phases_are_reported_in_their_order_and_once() {
        let mut progress = Progress::new(false);
        for phase in ["plan", "read", "plan", "read", "write"] {
            progress.phase(phase);
            std::thread::sleep(Duration::from_millis(2));
        }
        let phase_times = progress.finish();
        assert_eq!(phase_times.iter().map(|one| one.phase).collect::<Vec<_>>(), ["plan", "read", "write"]);
        assert!(phase_times[0].seconds >= 0.004 && phase_times[2].seconds >= 0.002, "{phase_times:?}");
    }
}
