//! Prints why threads are not recorded, once for each reason.

use crate::log;
use rpd_ring::message::RingObstacle;

/// The reasons that were printed.
#[derive(Debug, Default)]
pub(super) struct UntracedWarnings {
    /// For threads without a ring.
    of_threads: Vec<RingObstacle>,
    of_events: bool,
    of_small_ring: bool,
    of_nonsense: bool,
}

impl UntracedWarnings {
    /// A thread has no ring.
    pub(super) fn warn_of_thread(&mut self, pid: i32, why: RingObstacle) {
        if self.of_threads.contains(&why) {
            return;
        }
        self.of_threads.push(why);
        let (reason, next) = match why {
            RingObstacle::NoMemory => (
                "--ring-memory or the job has no memory left for its ring",
                "raise --ring-memory, or give the job more, or choose smaller rings with --ring-size",
            ),
            RingObstacle::FileLimit => (
                "`ulimit -f` allows no file as large as its ring",
                "raise that limit, or choose smaller rings with --ring-size",
            ),
            RingObstacle::OpenFiles => {
                ("the program may open no more files, as its ring is one at first", "raise `ulimit -n`")
            }
        };
        log::warn(format_args!("warning: a thread of process {pid} is not recorded: {reason}; {next}"));
    }

    /// Threads without a ring had events. Mostly these threads have reported why they have none.
    pub(super) fn warn_of_events(&mut self, pid: i32, events: u64) {
        if self.of_threads.is_empty() && events > 0 && !std::mem::replace(&mut self.of_events, true) {
            log::warn(format_args!(
                "warning: {events} events of process {pid} are not recorded, only counted: some of its threads could not connect to \
                 rpd-collect, as if the program may open no more files (`ulimit -n`), or rpd-collect got no CPU"
            ));
        }
    }

    /// The ring of a thread cannot grow as `--ring-size` allows.
    pub(super) fn warn_of_small_ring(&mut self, pid: i32) {
        if !std::mem::replace(&mut self.of_small_ring, true) {
            log::warn(format_args!(
                "warning: the ring of a thread of process {pid} is smaller than --ring-size, and may lose events: `ulimit -f` allows no \
                 larger one; raise that limit"
            ));
        }
    }

    /// A process sent data that is not a message.
    pub(super) fn warn_of_nonsense(&mut self, pid: i32) {
        if !std::mem::replace(&mut self.of_nonsense, true) {
            log::warn(format_args!(
                "warning: process {pid} sent data that are no message of this version's librpd_intercept.so; whether events are lost is not \
                 known"
            ));
        }
    }
}
