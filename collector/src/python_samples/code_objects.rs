//! Code objects of an interpreter: name, file and lines of a function.

use super::interpreter::PythonInterpreter;
use super::layout::{BYTES_LENGTH, BYTES_START, InstructionPlace, OBJECT_TYPE, TEXT_LENGTH, TEXT_STATE};
use super::line_table::line_at;
use super::memory::{ProcessMemory, ReadError, i32_in, u64_in};
use std::collections::HashMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Maximum number of code objects that are known at a time.
const MAX_CODE_OBJECTS: usize = 1 << 16;
/// Maximum number of characters of a name or path. Longer ones are cut.
const MAX_TEXT: usize = 1024;
/// Maximum number of bytes of a table of lines.
const MAX_TABLE_BYTES: u64 = 1 << 20;
/// Maximum number of bytes of all tables of lines, names and paths.
const MAX_HELD_BYTES: usize = 64 << 20;
/// Time after which a known code object is compared with the memory again: another one may have its address.
const CHECK_AFTER: Duration = Duration::from_secs(1);

/// A function of the program.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub(super) struct PythonFunction {
    /// Qualified name where the interpreter has it (3.11 and later), otherwise the name.
    pub(super) name: Box<str>,
    /// Path of the file, as the interpreter has it.
    pub(super) file: Box<str>,
}

/// Why a stack cannot be read.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub(super) enum StackError {
    /// The program changed the structures while they were read.
    #[error("the program changed its stack during the read")]
    Changed,
    /// The outermost frame is that of a generator, which may have just returned to its caller.
    #[error("its outermost frame is that of a generator")]
    NoCaller,
    #[error(transparent)]
    Read(#[from] ReadError),
}

/// The code objects that were read, by their addresses.
#[derive(Debug, Default)]
pub(super) struct CodeObjects {
    known: HashMap<u64, KnownCode>,
    /// Bytes of the tables of lines, names and paths in `known`.
    held_bytes: usize,
}

#[derive(Debug)]
struct KnownCode {
    checked: Instant,
    signature: CodeSignature,
    function: Arc<PythonFunction>,
    /// It is a generator or coroutine.
    is_generator: bool,
    line_table: Box<[u8]>,
    /// Bytes of its table of lines, name and path.
    bytes: usize,
}

/// Flags of generators, coroutines and asynchronous generators.
const GENERATOR_FLAGS: i32 = 0x20 | 0x80 | 0x200;

/// Fields that tell a code object from another one at its address.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct CodeSignature {
    name: u64,
    file: u64,
    line_table: u64,
    first_line: i32,
}

/// An instruction of a code object.
#[derive(Clone, Copy, Debug)]
pub(super) struct CodePlace {
    /// Address of the code object.
    pub(super) code: u64,
    /// Address of the instruction, or for older interpreters its index.
    pub(super) instruction: i64,
    /// Whether to compare a known code object with the memory in any case.
    pub(super) must_check: bool,
}

impl CodeObjects {
    /// Returns the function and the line of an instruction, and whether that is a generator.
    pub(super) fn function_at(
        &mut self,
        memory: &ProcessMemory,
        interpreter: &PythonInterpreter,
        place: CodePlace,
        now: Instant,
    ) -> Result<(Arc<PythonFunction>, i32, bool), StackError> {
        let CodePlace { code, instruction, must_check } = place;
        let is_fresh =
            !must_check && self.known.get(&code).is_some_and(|known| now - known.checked < CHECK_AFTER);
        if !is_fresh {
            self.check(memory, interpreter, code, now)?;
        }
        let layout = &interpreter.layout;
        let known = self.known.get(&code).ok_or(StackError::Changed)?;
        let offset = match layout.frame.instruction {
            InstructionPlace::Index(_, unit) => instruction.saturating_mul(unit),
            InstructionPlace::Address(_) => {
                let start = code.wrapping_add(layout.code.instructions);
                instruction.wrapping_sub(start as i64)
            }
        };
        let first = known.signature.first_line;
        let line = line_at(layout.code.line_table_form, &known.line_table, first, offset);
        Ok((Arc::clone(&known.function), line.unwrap_or(first), known.is_generator))
    }

    /// Reads a code object, unless it is still the known one.
    fn check(
        &mut self,
        memory: &ProcessMemory,
        interpreter: &PythonInterpreter,
        code: u64,
        now: Instant,
    ) -> Result<(), StackError> {
        let layout = &interpreter.layout.code;
        let mut object = [0; 1024];
        let object = object.get_mut(..layout.bytes).ok_or(StackError::Changed)?;
        memory.read(code, object)?;
        if u64_in(object, OBJECT_TYPE) != Some(interpreter.code_type) {
            return Err(StackError::Changed);
        }
        let address = |at| u64_in(object, at).ok_or(StackError::Changed);
        let signature = CodeSignature {
            name: address(layout.name)?,
            file: address(layout.file)?,
            line_table: address(layout.line_table)?,
            first_line: i32_in(object, layout.first_line).ok_or(StackError::Changed)?,
        };
        if let Some(known) = self.known.get_mut(&code).filter(|known| known.signature == signature) {
            known.checked = now;
            return Ok(());
        }
        let text = |address| read_text(memory, interpreter, address);
        let function = PythonFunction { name: text(signature.name)?, file: text(signature.file)? };
        let line_table = read_bytes(memory, signature.line_table)?;
        if self.known.len() >= MAX_CODE_OBJECTS || self.held_bytes >= MAX_HELD_BYTES {
            self.known.clear();
            self.held_bytes = 0;
        }
        let bytes = line_table.len() + function.name.len() + function.file.len();
        self.held_bytes += bytes;
        let function = Arc::new(function);
        let flags = i32_in(object, layout.flags).ok_or(StackError::Changed)?;
        let is_generator = flags & GENERATOR_FLAGS != 0;
        let new = KnownCode { checked: now, signature, function, is_generator, line_table, bytes };
        if let Some(old) = self.known.insert(code, new) {
            self.held_bytes -= old.bytes;
        }
        Ok(())
    }
}

/// Reads a string object.
fn read_text(
    memory: &ProcessMemory,
    interpreter: &PythonInterpreter,
    address: u64,
) -> Result<Box<str>, StackError> {
    let mut head = [0; TEXT_STATE + 4];
    memory.read(address, &mut head)?;
    let length = u64_in(&head, TEXT_LENGTH).ok_or(StackError::Changed)?;
    let state = i32_in(&head, TEXT_STATE).ok_or(StackError::Changed)? as u32;
    // interned: 2 bits, kind: 3 bits, compact: 1 bit, ascii: 1 bit.
    let (kind, is_compact, is_ascii) = ((state >> 2) & 7, state & 1 << 5 != 0, state & 1 << 6 != 0);
    if !is_compact || !matches!(kind, 1 | 2 | 4) {
        return Err(StackError::Changed);
    }
    let layout = interpreter.layout.text;
    let start = address.wrapping_add(if is_ascii { layout.ascii_bytes } else { layout.other_bytes });
    let mut bytes = vec![0; length.min(MAX_TEXT as u64) as usize * kind as usize];
    memory.read(start, &mut bytes)?;
    let letter = |number: u32| char::from_u32(number).unwrap_or(char::REPLACEMENT_CHARACTER);
    let text: String = match kind {
        1 => bytes.iter().map(|byte| char::from(*byte)).collect(),
        2 => {
            bytes.chunks_exact(2).map(|pair| letter(u16::from_ne_bytes([pair[0], pair[1]]).into())).collect()
        }
        _ => bytes
            .chunks_exact(4)
            .map(|four| letter(u32::from_ne_bytes([four[0], four[1], four[2], four[3]])))
            .collect(),
    };
    Ok(text.into())
}

/// Reads a bytes object.
fn read_bytes(memory: &ProcessMemory, address: u64) -> Result<Box<[u8]>, StackError> {
    let length = memory.u64_at(address.wrapping_add(BYTES_LENGTH as u64))?;
    if length > MAX_TABLE_BYTES {
        return Err(StackError::Changed);
    }
    let mut bytes = vec![0; length as usize];
    memory.read(address.wrapping_add(BYTES_START), &mut bytes)?;
    Ok(bytes.into())
}
