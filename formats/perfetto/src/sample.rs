use crate::iids::StringId;
use crate::sequence::Sequence;
use crate::text::text;
use crate::time::Timestamp;
use crate::track::Thread;
use crate::wire::{message, packet, uint};

/// The caller's number of a call stack. Numbers should be dense, like those of texts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct StackId(pub u32);

/// Interning id of a library or program, valid for the sequence and file that assigned it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Mapping(u32);

/// Interning id of a frame, valid for the sequence and file that assigned it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Frame(u32);

/// Interning id of a call stack, valid for the sequence and file that assigned it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CallStack(u32);

const FUNCTION_NAMES: u32 = 5;
const FRAMES: u32 = 6;
const CALL_STACKS: u32 = 7;
const MAPPING_PATHS: u32 = 17;
const MAPPINGS: u32 = 19;

impl Sequence {
    /// Returns the mapping of the file that contains code. Calls `path` at the first use. If the path is unknown,
    /// use an empty one: readers drop a frame without a mapping.
    pub fn mapping<T: AsRef<str>>(&mut self, id: StringId, path: impl FnOnce() -> T) -> Mapping {
        match self.interned.mappings.get(id.0) {
            0 => {
                let iid = self.interned.mappings.add(id.0);
                self.intern(MAPPING_PATHS, iid, path().as_ref());
                self.interned_data(MAPPINGS, |out, _| {
                    uint(out, 1, iid.into());
                    uint(out, 7, iid.into());
                });
                Mapping(iid)
            }
            iid => Mapping(iid),
        }
    }

    /// Adds a frame for [`Sequence::add_call_stack`]: a function, and its offset in the file of the mapping (0 if
    /// unknown).
    pub fn add_frame(&mut self, function: &str, mapping: Mapping, offset: u64) -> Frame {
        self.interned.frames += 1;
        let iid = self.interned.frames;
        self.packet(|out, mended| {
            message(out, packet::INTERNED_DATA, |out| {
                message(out, FUNCTION_NAMES, |out| {
                    uint(out, 1, iid.into());
                    text(out, 2, function, mended);
                });
                message(out, FRAMES, |out| {
                    uint(out, 1, iid.into());
                    uint(out, 2, iid.into());
                    uint(out, 3, mapping.0.into());
                    uint(out, 4, offset);
                });
            });
        });
        Frame(iid)
    }

    /// Returns the call stack with this number, if it was added to this file.
    #[inline]
    pub fn call_stack(&self, id: StackId) -> Option<CallStack> {
        let iid = self.interned.stacks.get(id.0);
        (iid != 0).then_some(CallStack(iid))
    }

    /// Adds a call stack: its frames, outermost first. Does not change a call stack that exists already.
    pub fn add_call_stack(&mut self, id: StackId, frames: &[Frame]) -> CallStack {
        if let Some(stack) = self.call_stack(id) {
            return stack;
        }
        let iid = self.interned.stacks.add(id.0);
        self.interned_data(CALL_STACKS, |out, _| {
            uint(out, 1, iid.into());
            frames.iter().for_each(|frame| uint(out, 2, frame.0.into()));
        });
        CallStack(iid)
    }

    /// Writes the call stack of a thread at a time.
    pub fn sample(&mut self, at: Timestamp, thread: Thread, stack: CallStack) {
        self.packet(|out, _| {
            uint(out, packet::TIMESTAMP, at.ns());
            message(out, packet::PERF_SAMPLE, |out| {
                // pid and tid are unsigned here, and signed in the track of the thread.
                uint(out, 2, (thread.pid as u32).into());
                uint(out, 3, (thread.tid as u32).into());
                uint(out, 4, stack.0.into());
                uint(out, 5, USER_MODE);
            });
        });
    }
}

const USER_MODE: u64 = 2;
