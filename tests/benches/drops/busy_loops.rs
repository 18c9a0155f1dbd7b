//! Busy loops that see whether they have whole cores.

use rustix::time::{ClockId, clock_gettime};
use std::array::from_fn;
use std::hint::black_box;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;

/// Steps between two looks at the end.
const STEPS: u32 = 1 << 14;

/// Threads that use all CPU time they get, until this is dropped.
pub(crate) struct BusyLoops {
    ended: Arc<AtomicBool>,
    threads: Vec<JoinHandle<f64>>,
}

impl BusyLoops {
    pub(crate) fn start(count: u64) -> BusyLoops {
        let ended = Arc::new(AtomicBool::new(false));
        let start = |_| {
            let ended = ended.clone();
            std::thread::spawn(move || work_until(&ended))
        };
        BusyLoops { threads: (0..count).map(start).collect(), ended }
    }

    /// Ends the loops and returns the steps per second of CPU time of the slowest. Another user of a core's other hardware
    /// thread makes it smaller, a thread that waits for a CPU does not.
    pub(crate) fn slowest(mut self) -> f64 {
        self.ended.store(true, Ordering::Relaxed);
        let threads = std::mem::take(&mut self.threads);
        threads.into_iter().map(|thread| thread.join().unwrap_or(0.0)).fold(f64::INFINITY, f64::min)
    }
}

impl Drop for BusyLoops {
    fn drop(&mut self) {
        self.ended.store(true, Ordering::Relaxed);
    }
}

/// Works and returns the steps per second of CPU time.
fn work_until(ended: &AtomicBool) -> f64 {
    // More independent chains than a core can keep up with, so that its width counts and not the latency of a chain.
    let mut chains: [u64; 8] = from_fn(|chain| 1 + chain as u64);
    let mut steps = 0.0;
    while !ended.load(Ordering::Relaxed) {
        for _ in 0..STEPS {
            for chain in &mut chains {
                *chain ^= *chain << 13;
                *chain ^= *chain >> 7;
                *chain ^= *chain << 17;
            }
        }
        chains = black_box(chains);
        steps += f64::from(STEPS);
    }
    let time = clock_gettime(ClockId::ThreadCPUTime);
    steps / (time.tv_sec as f64 + time.tv_nsec as f64 / 1e9).max(f64::MIN_POSITIVE)
}
