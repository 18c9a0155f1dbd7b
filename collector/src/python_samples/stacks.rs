//! The Python stack of a thread at one moment.

use super::code_objects::{CodeObjects, CodePlace, PythonFunction, StackError};
use super::interpreter::PythonInterpreter;
use super::layout::{CurrentFramePlace, InstructionPlace, LOCK_HOLDER, LockHolderPlace, ThreadIdPlace};
use super::memory::{MemoryWindow, ProcessMemory, ReadError, i32_in, u64_in};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Maximum number of frames of a stack, the innermost ones.
const MAX_FRAMES: usize = 256;
/// Maximum number of frames that are followed, with those of the interpreter itself.
const MAX_STEPS: usize = 2 * MAX_FRAMES;
/// Maximum number of interpreters of a process and of their thread states.
const MAX_INTERPRETERS: usize = 16;
const MAX_STATES: usize = 4096;
/// Number of reads by which a garbage collection is confirmed, and the time before each: the thread must not run Python
/// meanwhile.
const GARBAGE_READS: usize = 4;
const GARBAGE_PAUSE: Duration = Duration::from_micros(150);
/// Bytes of a thread state that have all fields that are read.
const STATE_BYTES: usize = 256;
/// Bytes below a frame that are read with it: most stacks fit.
const WINDOW_BYTES: usize = 6 << 10;
/// Name of the frame that stands for garbage collection, which has none of its own.
const GARBAGE_COLLECTION: &str = "<garbage collection>";
/// Owner of a frame that the interpreter itself makes to enter Python from C.
const OWNED_BY_INTERPRETER: u8 = 3;
/// Offset of the thread id in glibc's `struct pthread`, which 3.10 and earlier identify threads by. A thread id that is
/// not one of the wanted thread is ignored.
#[cfg(target_arch = "x86_64")]
const TID_IN_PTHREAD: u64 = 720;
#[cfg(not(target_arch = "x86_64"))]
const TID_IN_PTHREAD: u64 = 208;

/// A function on a stack, and the line that runs.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub(super) struct PythonFrame {
    pub(super) function: Arc<PythonFunction>,
    pub(super) line: i32,
}

/// Reads the stacks of the threads of one interpreter.
#[derive(Debug)]
pub(super) struct StackReader {
    pub(super) memory: ProcessMemory,
    interpreter: PythonInterpreter,
    codes: CodeObjects,
    window: MemoryWindow,
    garbage_collection: Arc<PythonFunction>,
}

/// A thread state: its address, and how it identifies its thread.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct ThreadState {
    address: u64,
    identity: u64,
    /// Thread id from the kernel.
    tid: i32,
}

impl StackReader {
    pub(super) fn new(memory: ProcessMemory, interpreter: PythonInterpreter) -> StackReader {
        // Older interpreters allocate each frame by itself.
        let below = if interpreter.layout.frame.owner.is_some() { WINDOW_BYTES } else { 0 };
        let garbage_collection =
            Arc::new(PythonFunction { name: GARBAGE_COLLECTION.into(), file: "".into() });
        let (codes, window) = (CodeObjects::default(), MemoryWindow::new(below));
        StackReader { memory, interpreter, codes, window, garbage_collection }
    }

    /// Finds the thread states, with the thread ids of their threads.
    pub(super) fn thread_states(&self) -> Result<Vec<(i32, ThreadState)>, ReadError> {
        let layout = &self.interpreter.layout;
        let mut found = Vec::new();
        let mut interpreter =
            self.memory.u64_at(self.interpreter.runtime.wrapping_add(layout.interpreters))?;
        for _ in 0..MAX_INTERPRETERS {
            if interpreter == 0 {
                break;
            }
            let mut address = self.memory.u64_at(interpreter.wrapping_add(layout.threads))?;
            for _ in 0..MAX_STATES {
                if address == 0 || found.len() >= MAX_STATES {
                    break;
                }
                let identity = self.memory.u64_at(address.wrapping_add(identity_offset(layout.thread_id)))?;
                if let Some(tid) = self.tid_of(identity) {
                    found.push((tid, ThreadState { address, identity, tid }));
                }
                address = self.memory.u64_at(address.wrapping_add(layout.next_thread))?;
            }
            interpreter = self.memory.u64_at(interpreter.wrapping_add(layout.next_interpreter))?;
        }
        Ok(found)
    }

    /// Returns the thread id of the kernel for what a thread state has; `None` if there is no such thread any more.
    fn tid_of(&self, identity: u64) -> Option<i32> {
        let tid = match self.interpreter.layout.thread_id {
            ThreadIdPlace::Native(_) => identity,
            // The upper half is another field.
            ThreadIdPlace::Posix(_) => {
                self.memory.u64_at(identity.wrapping_add(TID_IN_PTHREAD)).ok()? & 0xffff_ffff
            }
        };
        i32::try_from(tid).ok()
    }

    /// Returns whether a thread with this frame collects garbage: the interpreter does, the thread has the lock, and it runs
    /// nothing of Python for a while. While a finalizer waits, another thread has the lock, but runs.
    fn is_collecting(&self, state: ThreadState, bytes: &[u8], frame: u64) -> Result<bool, StackError> {
        if self.collector(bytes)? != Some(state.address) {
            return Ok(false);
        }
        let (InstructionPlace::Address(at) | InstructionPlace::Index(at, _)) =
            self.interpreter.layout.frame.instruction;
        let instruction = frame.wrapping_add(at as u64);
        let before = self.memory.u64_at(instruction)?;
        for _ in 0..GARBAGE_READS {
            // This thread may have taken the CPU from the other one.
            std::thread::sleep(GARBAGE_PAUSE);
            match self.collector(bytes)? {
                None => return Ok(true),
                Some(collector) if collector != state.address => return Ok(false),
                Some(_) => {}
            }
            let mut now = [0; STATE_BYTES];
            self.memory.read(state.address, &mut now)?;
            if self.current_frame(&now)? != frame || self.memory.u64_at(instruction)? != before {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// Returns the thread state that has the lock while the interpreter of a thread collects garbage; `None` if it does not.
    fn collector(&self, bytes: &[u8]) -> Result<Option<u64>, StackError> {
        let garbage = self.interpreter.layout.garbage;
        let interpreter = u64_in(bytes, garbage.interpreter).ok_or(StackError::Changed)?;
        let mut collecting = [0; 4];
        self.memory.read(interpreter.wrapping_add(garbage.collecting), &mut collecting)?;
        if i32::from_ne_bytes(collecting) == 0 {
            return Ok(None);
        }
        let holder = match garbage.lock_holder {
            LockHolderPlace::Runtime(offset) => self.interpreter.runtime.wrapping_add(offset),
            LockHolderPlace::Lock(offset) => {
                self.memory.u64_at(interpreter.wrapping_add(offset))?.wrapping_add(LOCK_HOLDER)
            }
        };
        Ok(Some(self.memory.u64_at(holder)?))
    }

    /// Returns the address of the frame that runs, by the bytes of a thread state; 0 if there is none.
    fn current_frame(&self, bytes: &[u8]) -> Result<u64, StackError> {
        let pointer = |offset: u64| u64_in(bytes, offset as usize).ok_or(StackError::Changed);
        match self.interpreter.layout.current_frame {
            CurrentFramePlace::Direct(offset) => pointer(offset),
            CurrentFramePlace::ThroughCframe(offset, inner) => match pointer(offset)? {
                0 => Ok(0),
                cframe => Ok(self.memory.u64_at(cframe.wrapping_add(inner))?),
            },
        }
    }

    /// Reads the stack of a thread, the innermost frame first. It is empty if the thread runs no Python. The outermost frame may
    /// be that of a generator only if `may_begin_with_generator`: a generator that has just returned to its caller has no
    /// caller any more.
    ///
    /// # Errors
    /// If the thread state is gone, or the program changed the stack during the read.
    pub(super) fn stack(
        &mut self,
        state: ThreadState,
        now: Instant,
        may_begin_with_generator: bool,
    ) -> Result<Vec<PythonFrame>, StackError> {
        let layout = self.interpreter.layout;
        let mut bytes = [0; STATE_BYTES];
        self.memory.read(state.address, &mut bytes)?;
        let identity = u64_in(&bytes, identity_offset(layout.thread_id) as usize);
        if identity != Some(state.identity) || self.tid_of(state.identity) != Some(state.tid) {
            return Err(StackError::Changed);
        }
        let mut frame = self.current_frame(&bytes)?;
        let is_collecting = frame != 0 && self.is_collecting(state, &bytes, frame)?;
        let StackReader { memory, interpreter, codes, window, garbage_collection } = self;
        window.clear();
        let function = Arc::clone(garbage_collection);
        let mut frames: Vec<PythonFrame> =
            is_collecting.then_some(PythonFrame { function, line: 0 }).into_iter().collect();
        let (mut is_generator, mut is_innermost) = (false, true);
        for _ in 0..MAX_STEPS {
            if frame == 0 || frames.len() >= MAX_FRAMES {
                break;
            }
            let bytes = window.bytes(memory, frame, layout.frame.bytes)?;
            let number = |at| u64_in(bytes, at).ok_or(StackError::Changed);
            let (previous, code) = (number(layout.frame.previous)?, number(layout.frame.code)?);
            let owner = layout.frame.owner.and_then(|at| bytes.get(at)).copied();
            let instruction = match layout.frame.instruction {
                InstructionPlace::Address(at) => number(at)? as i64,
                InstructionPlace::Index(at, _) => i64::from(i32_in(bytes, at).ok_or(StackError::Changed)?),
            };
            frame = previous;
            match owner {
                Some(OWNED_BY_INTERPRETER) => {
                    // C has called the frame before.
                    is_generator = false;
                    continue;
                }
                Some(owner) if owner > OWNED_BY_INTERPRETER => return Err(StackError::Changed),
                _ => {}
            }
            let place = CodePlace { code, instruction, must_check: is_innermost };
            let (function, line, generates) = codes.function_at(memory, interpreter, place, now)?;
            (is_generator, is_innermost) = (generates, false);
            frames.push(PythonFrame { function, line });
        }
        let is_whole = frames.len() < MAX_FRAMES;
        match frame {
            0 if is_whole && is_generator && !may_begin_with_generator => Err(StackError::NoCaller),
            // The frames are a circle.
            1.. if is_whole => Err(StackError::Changed),
            _ => Ok(frames),
        }
    }
}

fn identity_offset(place: ThreadIdPlace) -> u64 {
    match place {
        ThreadIdPlace::Native(offset) | ThreadIdPlace::Posix(offset) => offset,
    }
}

#[cfg(test)]
mod tests {
    use super::super::layout::layout_of;
    use super::*;
    use proptest::prelude::*;

    /// A word of hostile memory: an address in it, the address of the type of code objects, or a number.
    #[derive(Clone, Copy, Debug)]
    enum HostileWord {
        Address(usize),
        CodeType,
        Number(u64),
    }

    fn hostile_words() -> impl Strategy<Value = Vec<HostileWord>> {
        let number = prop_oneof![0..64_u64, Just(0), any::<u64>(), Just(0x0000_0001_0000_0064)];
        let word = prop_oneof![
            6 => (0..4000_usize).prop_map(HostileWord::Address),
            2 => Just(HostileWord::CodeType),
            3 => number.prop_map(HostileWord::Number),
        ];
        proptest::collection::vec(word, 600)
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(400))]
        #[test]
        fn hostile_memory_is_read_within_limits(words in hostile_words(), minor in 9..=12_u8) {
            let mut memory = vec![0_u64; words.len()];
            let start = memory.as_ptr() as u64;
            for (place, word) in memory.iter_mut().zip(&words) {
                *place = match word {
                    HostileWord::Address(at) => start + *at as u64,
                    HostileWord::CodeType => start,
                    HostileWord::Number(number) => *number,
                };
            }
            let own = std::process::id() as i32;
            let open = || ProcessMemory::open(own).unwrap();
            let layout = layout_of((3, minor), start, &open()).unwrap();
            let interpreter = PythonInterpreter { runtime: start, code_type: start, layout };
            let mut reader = StackReader::new(open(), interpreter);
            if let Ok(states) = reader.thread_states() {
                prop_assert!(states.len() <= MAX_STATES);
            }
            for at in 0..16 {
                let address = start + at * 8;
                let offset = identity_offset(layout.thread_id);
                let Ok(identity) = reader.memory.u64_at(address + offset) else { continue };
                let tid = reader.tid_of(identity).unwrap_or_default();
                let state = ThreadState { address, identity, tid };
                if let Ok(frames) = reader.stack(state, Instant::now(), at % 2 == 0) {
                    prop_assert!(frames.len() <= MAX_FRAMES);
                }
            }
            // The words must be there until here.
            prop_assert_eq!(memory.len(), words.len());
        }
    }
}
