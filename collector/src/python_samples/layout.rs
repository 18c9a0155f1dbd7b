//! Where the structures of CPython have their fields, in each version that can be read.
//!
//! The offsets for 3.9 to 3.12 are those of the public headers on 64-bit systems (`Include/cpython`, `Include/internal`),
//! which do not change within a minor version. From 3.13 on, the interpreter has a table of them at the start of
//! `_PyRuntime` (`_Py_DebugOffsets` in `pycore_runtime.h`).

use super::memory::{ProcessMemory, ReadError, u64_in};

/// Offsets in bytes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct InterpreterLayout {
    /// In `_PyRuntime`: the first interpreter.
    pub(super) interpreters: u64,
    /// In an interpreter: the next one.
    pub(super) next_interpreter: u64,
    /// In an interpreter: the first thread state.
    pub(super) threads: u64,
    /// In a thread state: the next one.
    pub(super) next_thread: u64,
    /// In a thread state: the id of the thread.
    pub(super) thread_id: ThreadIdPlace,
    /// In a thread state: the frame that runs, or a pointer to where that is.
    pub(super) current_frame: CurrentFramePlace,
    pub(super) garbage: GarbageLayout,
    pub(super) frame: FrameLayout,
    pub(super) code: CodeLayout,
    pub(super) text: TextLayout,
}

/// Where an interpreter says that it collects garbage.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct GarbageLayout {
    /// In a thread state: its interpreter.
    pub(super) interpreter: usize,
    /// In an interpreter: an `int` that is not 0 during a collection.
    pub(super) collecting: u64,
    pub(super) lock_holder: LockHolderPlace,
}

/// Where the thread state is that holds the global lock.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum LockHolderPlace {
    /// At this offset in `_PyRuntime`.
    Runtime(u64),
    /// In the lock, to which the interpreter has a pointer at this offset.
    Lock(u64),
}

/// How a thread state identifies its thread.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum ThreadIdPlace {
    /// By the thread id of the kernel at this offset.
    Native(u64),
    /// By its `pthread_t` at this offset, which is an address in glibc.
    Posix(u64),
}

/// How a thread state refers to the frame that runs.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum CurrentFramePlace {
    /// By a pointer at this offset.
    Direct(u64),
    /// By a pointer at the first offset to a structure that has the pointer at the second.
    ThroughCframe(u64, u64),
}

/// Fields of a frame.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct FrameLayout {
    /// Bytes of a frame that have all of these fields.
    pub(super) bytes: usize,
    pub(super) previous: usize,
    pub(super) code: usize,
    pub(super) instruction: InstructionPlace,
    /// Byte that says to what the frame belongs, from 3.11 on.
    pub(super) owner: Option<usize>,
}

/// How a frame has the instruction that runs.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum InstructionPlace {
    /// As an address at this offset.
    Address(usize),
    /// As an `int` at this offset, in units of this many bytes. Another `int` after it has the line, if a tracer set it.
    Index(usize, i64),
}

/// Fields of a code object.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct CodeLayout {
    /// Bytes of a code object that have all of these fields.
    pub(super) bytes: usize,
    pub(super) file: usize,
    /// The qualified name where there is one, otherwise the name.
    pub(super) name: usize,
    pub(super) first_line: usize,
    pub(super) flags: usize,
    pub(super) line_table: usize,
    pub(super) line_table_form: LineTableForm,
    /// Offset of the instructions in the object, from 3.11 on.
    pub(super) instructions: u64,
}

/// Encoding of the table that maps instructions to lines.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum LineTableForm {
    /// `co_lnotab`, up to 3.9.
    Increments,
    /// `co_linetable` of 3.10.
    Ranges,
    /// `co_linetable` from 3.11 on.
    Locations,
}

/// Fields of strings and bytes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct TextLayout {
    /// Bytes before the characters of a string that is ASCII.
    pub(super) ascii_bytes: u64,
    /// Bytes before the characters of another string.
    pub(super) other_bytes: u64,
}

/// In a global lock of 3.12 and later: the thread state that has held it last.
pub(super) const LOCK_HOLDER: u64 = 8;
/// In a thread state: its interpreter.
const INTERPRETER: usize = 16;
/// In an object: its type.
pub(super) const OBJECT_TYPE: usize = 8;
/// In a string: its length in characters.
pub(super) const TEXT_LENGTH: usize = 16;
/// In a string: bits that describe its form.
pub(super) const TEXT_STATE: usize = 32;
/// In a bytes object: its length.
pub(super) const BYTES_LENGTH: usize = 16;
/// In a bytes object: its bytes.
pub(super) const BYTES_START: u64 = 32;

/// Why an interpreter cannot be read.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub(super) enum LayoutError {
    /// The version has another layout.
    #[error("CPython {0}.{1} is not supported; 3.9 to 3.13 are")]
    OtherVersion(u8, u8),
    /// A build without the global lock has other strings and frames.
    #[error("free-threaded builds of CPython are not supported")]
    FreeThreaded,
    /// The table of offsets is not one of 3.13.
    #[error("its table of offsets is not that of CPython 3.13")]
    NoTable,
    #[error(transparent)]
    Read(#[from] ReadError),
}

/// Versions whose stacks can be read.
pub(crate) const SUPPORTED_VERSIONS: [(u8, u8); 5] = [(3, 9), (3, 10), (3, 11), (3, 12), (3, 13)];

/// Returns the layout of a version. `runtime` is the address of `_PyRuntime`.
pub(super) fn layout_of(
    (major, minor): (u8, u8),
    runtime: u64,
    memory: &ProcessMemory,
) -> Result<InterpreterLayout, LayoutError> {
    match (major, minor) {
        (3, 9) => Ok(before_3_11(FrameLayout { instruction: InstructionPlace::Index(104, 1), ..OLD_FRAME })),
        (3, 10) => {
            let layout =
                before_3_11(FrameLayout { instruction: InstructionPlace::Index(96, 2), ..OLD_FRAME });
            let code = CodeLayout { line_table_form: LineTableForm::Ranges, ..layout.code };
            Ok(InterpreterLayout { code, ..layout })
        }
        (3, 11) => Ok(InterpreterLayout {
            interpreters: 40,
            next_interpreter: 0,
            threads: 16,
            next_thread: 8,
            thread_id: ThreadIdPlace::Native(160),
            current_frame: CurrentFramePlace::ThroughCframe(56, 8),
            garbage: GarbageLayout {
                interpreter: INTERPRETER,
                collecting: 848,
                lock_holder: LockHolderPlace::Runtime(576),
            },
            frame: FrameLayout {
                bytes: 72,
                previous: 48,
                code: 32,
                instruction: InstructionPlace::Address(56),
                owner: Some(69),
            },
            code: CodeLayout { first_line: 72, instructions: 184, ..NEW_CODE },
            text: TextLayout { ascii_bytes: 48, other_bytes: 72 },
        }),
        (3, 12) => Ok(InterpreterLayout {
            interpreters: 40,
            next_interpreter: 0,
            threads: 72,
            next_thread: 8,
            thread_id: ThreadIdPlace::Native(144),
            current_frame: CurrentFramePlace::ThroughCframe(56, 0),
            garbage: GarbageLayout {
                interpreter: INTERPRETER,
                collecting: 312,
                lock_holder: LockHolderPlace::Lock(384),
            },
            frame: FrameLayout {
                bytes: 72,
                previous: 8,
                code: 0,
                instruction: InstructionPlace::Address(56),
                owner: Some(70),
            },
            code: NEW_CODE,
            text: TextLayout { ascii_bytes: 40, other_bytes: 56 },
        }),
        (3, 13) => from_table(runtime, memory),
        _ => Err(LayoutError::OtherVersion(major, minor)),
    }
}

const OLD_FRAME: FrameLayout = FrameLayout {
    bytes: 112,
    previous: 24,
    code: 32,
    instruction: InstructionPlace::Index(0, 0),
    owner: None,
};

/// In a code object of 3.11 and later: its flags. The table of 3.13 does not have them.
const FLAGS: usize = 48;

const NEW_CODE: CodeLayout = CodeLayout {
    bytes: 192,
    file: 112,
    name: 128,
    first_line: 68,
    flags: FLAGS,
    line_table: 136,
    line_table_form: LineTableForm::Locations,
    instructions: 192,
};

fn before_3_11(frame: FrameLayout) -> InterpreterLayout {
    InterpreterLayout {
        interpreters: 32,
        next_interpreter: 0,
        threads: 8,
        next_thread: 8,
        thread_id: ThreadIdPlace::Posix(176),
        current_frame: CurrentFramePlace::Direct(24),
        garbage: GarbageLayout {
            interpreter: INTERPRETER,
            collecting: 816,
            lock_holder: LockHolderPlace::Runtime(568),
        },
        frame,
        code: CodeLayout {
            bytes: 128,
            file: 104,
            name: 112,
            first_line: 40,
            flags: 36,
            line_table: 120,
            line_table_form: LineTableForm::Increments,
            instructions: 0,
        },
        text: TextLayout { ascii_bytes: 48, other_bytes: 72 },
    }
}

/// Bytes of the table of offsets of 3.13.
const TABLE_BYTES: usize = 584;
/// First bytes of the table.
const COOKIE: &[u8; 8] = b"xdebugpy";
/// Maximum plausible offset.
const MAX_OFFSET: u64 = 1 << 20;
/// Maximum plausible offset in a structure of which all fields are read at once.
const MAX_FIELD: u64 = 1 << 10;

/// Reads the table of offsets at the start of `_PyRuntime`.
fn from_table(runtime: u64, memory: &ProcessMemory) -> Result<InterpreterLayout, LayoutError> {
    let mut table = [0; TABLE_BYTES];
    memory.read(runtime, &mut table)?;
    if !table.starts_with(COOKIE) || u64_in(&table, 8).map(|version| version >> 16) != Some(0x030d) {
        return Err(LayoutError::NoTable);
    }
    if u64_in(&table, 16) != Some(0) {
        return Err(LayoutError::FreeThreaded);
    }
    let entry = |at: usize, limit: u64| {
        u64_in(&table, at).filter(|offset| *offset < limit).ok_or(LayoutError::NoTable)
    };
    let far = |at| entry(at, MAX_OFFSET);
    let near = |at| entry(at, MAX_FIELD).map(|offset| offset as usize);
    let (previous, code, instruction, owner) = (near(232)?, near(240)?, near(248)?, near(264)?);
    let (file, name, line_table, first_line) = (near(280)?, near(296)?, near(304)?, near(312)?);
    let end = |fields: &[usize]| fields.iter().max().map_or(0, |last| last + 8);
    if (near(360)?, near(520)?, far(528)?) != (OBJECT_TYPE, BYTES_LENGTH, BYTES_START)
        || (near(544)?, near(552)?) != (TEXT_STATE, TEXT_LENGTH)
    {
        return Err(LayoutError::NoTable);
    }
    let ascii_bytes = far(560)?;
    Ok(InterpreterLayout {
        interpreters: far(40)?,
        next_interpreter: far(64)?,
        threads: far(72)?,
        next_thread: far(168)?,
        thread_id: ThreadIdPlace::Native(far(200)?),
        current_frame: CurrentFramePlace::Direct(far(184)?),
        garbage: GarbageLayout {
            interpreter: near(176)?,
            collecting: far(80)? + far(576)?,
            lock_holder: LockHolderPlace::Lock(far(112)?),
        },
        frame: FrameLayout {
            bytes: end(&[previous, code, instruction, owner]),
            previous,
            code,
            instruction: InstructionPlace::Address(instruction),
            owner: Some(owner),
        },
        code: CodeLayout {
            bytes: end(&[file, name, line_table, first_line]),
            file,
            name,
            first_line,
            flags: FLAGS,
            line_table,
            line_table_form: LineTableForm::Locations,
            instructions: far(344)?,
        },
        // A string that is not ASCII has its UTF-8 form and the length of that before its characters.
        text: TextLayout { ascii_bytes, other_bytes: ascii_bytes + 16 },
    })
}
