//! The sampled threads of a process.

use super::code_objects::StackError;
use super::interpreter::{self, ExaminedFiles};
use super::memory::{ProcessMemory, ReadError};
use super::refusal::PythonRefusal;
use super::stack_text::StackTexts;
use super::stacks::{StackReader, ThreadState};
use crate::drain::RecordedThread;
use crate::host::{descriptors, process};
use std::collections::HashMap;
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Pauses between looks for an interpreter, which a program may load later: each is twice the one before.
const MAX_PAUSE: Duration = Duration::from_secs(10);
const FIRST_PAUSE: Duration = Duration::from_millis(200);
/// Interval between two reads of the list of thread states, while a thread has none.
const STATES_AGAIN: Duration = Duration::from_secs(1);
/// The same for a thread whose state was never looked for.
const STATES_FIRST: Duration = Duration::from_millis(50);
/// Number of failed reads in a row after which the thread state of a thread is looked up again.
const MAX_FAILURES: u32 = 16;
/// Number of samples in a row without a caller of a generator, from which on it has none indeed, as C runs it.
const MIN_WITHOUT_CALLER: u32 = 3;
/// Maximum number of reads of a stack for one sample: the program may change it during a read.
const MAX_READS: u32 = 4;
/// Bytes of a line of `schedstat`.
const LINE_BYTES: usize = 128;

/// A sample of a thread.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct ThreadSample {
    /// Key of the row of the thread.
    pub(super) thread: i64,
    /// The stack as JSON.
    pub(super) stack: Arc<str>,
}

/// A process with recorded threads.
#[derive(Debug)]
pub(super) struct SampledProcess {
    pub(super) source: u32,
    pid: i32,
    /// Start of the process, clock ticks since boot: a later process may have its number.
    start_ticks: Option<u64>,
    state: ProcessState,
    examined: ExaminedFiles,
    threads: Vec<SampledThread>,
    texts: StackTexts,
    /// Number of samples, and of those that were dropped because the program changed its stack during the read.
    pub(super) samples: u64,
    pub(super) changed: u64,
}

#[derive(Debug)]
enum ProcessState {
    /// It has shown no interpreter so far. The pause follows the next look.
    Searching { pause: Duration, next: Instant },
    /// Its stacks are read. The time is when its thread states were listed.
    Read(Box<StackReader>, Instant),
    /// It has no interpreter, or one that cannot be read.
    GivenUp,
}

#[derive(Debug)]
struct SampledThread {
    thread: RecordedThread,
    /// `schedstat`, which shows whether the thread has run; `None` if the system does not show it.
    times: Option<File>,
    /// Time on a CPU at the last read of its stack, as text.
    ran: Vec<u8>,
    /// The stack of the last read.
    stack: Option<Arc<str>>,
    /// The last read was successful.
    is_current: bool,
    state: Option<ThreadState>,
    /// Number of samples in a row whose outermost frame was that of a generator.
    without_caller: u32,
    /// Its state was looked for.
    was_listed: bool,
    failures: u32,
}

/// Whether a thread has run since its last sample.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum ThreadActivity {
    /// It was not on a CPU.
    None,
    /// It was on a CPU, or that is not known.
    MayHaveRun,
    /// It has ended.
    Ended,
}

impl SampledProcess {
    pub(super) fn new(source: u32, pid: i32, now: Instant) -> SampledProcess {
        SampledProcess {
            source,
            pid,
            start_ticks: process::stat(pid).map(|stat| stat.start_ticks),
            state: ProcessState::Searching { pause: FIRST_PAUSE, next: now },
            examined: ExaminedFiles::default(),
            threads: Vec::new(),
            texts: StackTexts::default(),
            samples: 0,
            changed: 0,
        }
    }

    pub(super) fn pid(&self) -> i32 {
        self.pid
    }

    /// Returns whether the stacks of the process are read.
    pub(super) fn is_read(&self) -> bool {
        matches!(self.state, ProcessState::Read(..))
    }

    /// Returns the number of its threads that are recorded.
    pub(super) fn threads(&self) -> usize {
        self.threads.len()
    }

    /// Takes over the threads that are recorded now. `has_ticks` is whether the kernel counts the time of all that run.
    pub(super) fn set_threads(&mut self, listed: Vec<RecordedThread>, has_ticks: bool) {
        let mut known = std::mem::take(&mut self.threads);
        let sampled = |thread: RecordedThread| {
            let same = known.iter().position(|known| known.thread.number == thread.number);
            same.map_or_else(
                || SampledThread::new(thread, self.pid, has_ticks),
                |same| known.swap_remove(same),
            )
        };
        self.threads = listed.into_iter().map(sampled).collect();
    }

    /// Looks for the interpreter, if it is time. Returns the reason if it cannot be read.
    pub(super) fn look(&mut self, now: Instant) -> Option<PythonRefusal> {
        let ProcessState::Searching { pause, next } = self.state else { return None };
        if now < next {
            return None;
        }
        if descriptors::are_exhausted() {
            self.search_again(pause, now);
            return Some(PythonRefusal::NoDescriptor);
        }
        let start_ticks = process::stat(self.pid).map(|stat| stat.start_ticks);
        // There may have been no descriptor to read it before.
        self.start_ticks = self.start_ticks.or(start_ticks);
        if start_ticks != self.start_ticks {
            self.state = ProcessState::GivenUp;
            return None;
        }
        let found = ProcessMemory::open(self.pid).map_err(|error| PythonRefusal::of_open(self.pid, &error));
        let found = found.and_then(|memory| match interpreter::find(self.pid, &memory, &mut self.examined) {
            Ok(interpreter) => Ok(StackReader::new(memory, interpreter)),
            Err(error) => Err(PythonRefusal::of_interpreter(error)),
        });
        let refused = match found {
            Ok(reader) => {
                let listed = now.checked_sub(STATES_AGAIN).unwrap_or(now);
                self.state = ProcessState::Read(Box::new(reader), listed);
                return None;
            }
            Err(refused) => refused,
        };
        match refused {
            PythonRefusal::NoInterpreter => {
                self.search_again(pause, now);
                return None;
            }
            PythonRefusal::NoDescriptor => {
                self.search_again(pause, now);
                return Some(refused);
            }
            _ => {}
        }
        self.state = ProcessState::GivenUp;
        (refused != PythonRefusal::Ended && !process::has_ended(self.pid)).then_some(refused)
    }

    /// Looks for the interpreter again after a pause.
    fn search_again(&mut self, pause: Duration, now: Instant) {
        self.state = ProcessState::Searching { pause: (pause * 2).min(MAX_PAUSE), next: now + pause };
    }

    /// Samples all threads.
    pub(super) fn sample(&mut self, now: Instant, found: &mut Vec<ThreadSample>) {
        let ProcessState::Read(reader, listed) = &mut self.state else { return };
        let mut has_ended = find_states(reader, listed, &mut self.threads, now) == Err(ReadError::Ended);
        for sampled in &mut self.threads {
            let activity = sampled.activity();
            if activity == ThreadActivity::Ended {
                sampled.stack = None;
                continue;
            }
            if activity == ThreadActivity::MayHaveRun || !sampled.is_current {
                match sampled.read(reader, &mut self.texts, now) {
                    Ok(()) => sampled.is_current = true,
                    Err(StackError::Read(ReadError::Ended)) => has_ended = true,
                    Err(_) => {
                        self.samples += 1;
                        self.changed += 1;
                        sampled.fail();
                    }
                }
            }
            if let Some(stack) = sampled.stack.clone() {
                self.samples += 1;
                found.push(ThreadSample { thread: sampled.thread.key, stack });
            }
        }
        if has_ended {
            // Another program may run in the process now.
            self.threads.iter_mut().for_each(SampledThread::forget);
            self.examined = ExaminedFiles::default();
            self.state = ProcessState::Searching { pause: FIRST_PAUSE, next: now + FIRST_PAUSE };
        }
    }
}

/// Finds the thread states of threads that have none, if it is time.
fn find_states(
    reader: &StackReader,
    listed: &mut Instant,
    threads: &mut [SampledThread],
    now: Instant,
) -> Result<(), ReadError> {
    let pause = if threads.iter().all(|sampled| sampled.was_listed) { STATES_AGAIN } else { STATES_FIRST };
    if now.duration_since(*listed) < pause || threads.iter().all(|sampled| sampled.state.is_some()) {
        return Ok(());
    }
    *listed = now;
    let states: HashMap<i32, ThreadState> = reader.thread_states()?.into_iter().collect();
    for sampled in threads.iter_mut().filter(|sampled| sampled.state.is_none()) {
        sampled.state = states.get(&sampled.thread.tid).copied();
        (sampled.is_current, sampled.was_listed) = (false, true);
    }
    Ok(())
}

impl SampledThread {
    fn new(thread: RecordedThread, pid: i32, has_ticks: bool) -> SampledThread {
        let path = format!("/proc/{pid}/task/{}/schedstat", thread.tid);
        let times = has_ticks.then(|| File::open(path).ok()).flatten();
        SampledThread {
            thread,
            times,
            ran: Vec::new(),
            stack: None,
            is_current: false,
            state: None,
            without_caller: 0,
            was_listed: false,
            failures: 0,
        }
    }

    /// Returns whether the thread has run since the last call.
    fn activity(&mut self) -> ThreadActivity {
        let mut line = [0; LINE_BYTES];
        let Some(file) = &self.times else { return ThreadActivity::MayHaveRun };
        let Ok(read) = file.read_at(&mut line, 0) else { return ThreadActivity::Ended };
        let ran = line.get(..read).unwrap_or_default();
        // A kernel that does not count has zeros.
        if ran.is_empty() || ran.starts_with(b"0 ") {
            return ThreadActivity::MayHaveRun;
        }
        if self.ran == ran {
            return ThreadActivity::None;
        }
        self.ran.clear();
        self.ran.extend_from_slice(ran);
        ThreadActivity::MayHaveRun
    }

    /// Reads the stack.
    fn read(
        &mut self,
        reader: &mut StackReader,
        texts: &mut StackTexts,
        now: Instant,
    ) -> Result<(), StackError> {
        self.stack = None;
        let Some(state) = self.state else { return Ok(()) };
        // To drop the sample would leave out short functions and generators more often than others.
        let without_caller = self.without_caller >= MIN_WITHOUT_CALLER;
        let mut read = reader.stack(state, now, without_caller);
        for _ in 1..MAX_READS {
            if matches!(read, Ok(_) | Err(StackError::Read(ReadError::Ended))) {
                break;
            }
            read = reader.stack(state, now, without_caller);
        }
        match read {
            Err(StackError::NoCaller) => self.without_caller += 1,
            Ok(_) if !without_caller => self.without_caller = 0,
            _ => {}
        }
        let frames = read?;
        self.failures = 0;
        self.stack = (!frames.is_empty()).then(|| texts.json(frames));
        Ok(())
    }

    /// Forgets what was read of another program.
    fn forget(&mut self) {
        (self.state, self.stack, self.is_current) = (None, None, false);
    }

    fn fail(&mut self) {
        self.failures += 1;
        self.is_current = false;
        if self.failures >= MAX_FAILURES {
            (self.failures, self.state) = (0, None);
        }
    }
}
