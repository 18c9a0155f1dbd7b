//! Progress on stderr: a bar on a terminal, a plain line every ten seconds elsewhere, nothing in
//! ranks other than 0.

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use std::io::IsTerminal;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// How often a plain line is printed.
const LINE_EVERY: Duration = Duration::from_secs(10);

/// The progress of one merge.
#[derive(Debug)]
pub struct Progress {
    bar: Option<ProgressBar>,
    /// Where there is no terminal: when the last line was printed.
    last_line: Option<Mutex<Instant>>,
    phase: &'static str,
    done: AtomicU64,
    total: u64,
}

impl Progress {
    /// Shows something only if `shown`.
    pub fn new(shown: bool) -> Progress {
        let terminal = std::io::stderr().is_terminal();
        let bar =
            (shown && terminal).then(|| ProgressBar::with_draw_target(None, ProgressDrawTarget::stderr()));
        let last_line = (shown && !terminal).then(|| Mutex::new(Instant::now()));
        Progress { bar, last_line, phase: "", done: AtomicU64::new(0), total: 0 }
    }

    /// A phase of unknown length begins.
    pub fn phase(&mut self, phase: &'static str) {
        self.phase_of_bytes(phase, 0);
    }

    /// A phase begins that works through so many bytes of inputs.
    pub fn phase_of_bytes(&mut self, phase: &'static str, total: u64) {
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

    /// So many bytes are done.
    pub fn add(&self, bytes: u64) {
        let done = self.done.fetch_add(bytes, Ordering::Relaxed) + bytes;
        if let Some(bar) = &self.bar {
            bar.set_position(done);
        }
        if let Some(last) = &self.last_line
            && let Ok(mut last) = last.try_lock()
            && last.elapsed() >= LINE_EVERY
        {
            *last = Instant::now();
            let percent = (done * 100).checked_div(self.total).unwrap_or(0);
            eprintln!("rpd-merge: {} {percent} % ({} of {} MB)", self.phase, done >> 20, self.total >> 20);
        }
    }

    /// Clears the bar.
    pub fn finish(&self) {
        if let Some(bar) = &self.bar {
            bar.finish_and_clear();
        }
    }
}
