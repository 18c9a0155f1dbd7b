//! Reads call stacks: interned ones from tables, and inline ones from events.

use super::texts::InternedTexts;
use super::wire::{Field, Fields, MalformedField};
use serde_json::json;
use std::collections::HashMap;
use std::rc::Rc;

/// Maximum number of frames of one call stack, counted from the innermost; the second constant limits the bytes of
/// their names.
const MAX_FRAMES: usize = 1024;
const MAX_BYTES: usize = 256 << 10;

/// A frame of a call stack.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct StackFrame<'a> {
    pub(super) name: &'a [u8],
    /// Program or library, and the offset in it.
    library: Option<(Vec<u8>, u64)>,
    source: Option<&'a [u8]>,
    line: Option<u64>,
}

/// A frame of the tables.
#[derive(Clone, Copy, Debug, Default)]
struct InternedFrame {
    function: u64,
    mapping: Option<u64>,
    offset: u64,
    source: Option<u64>,
    line: Option<u64>,
}

/// The tables that define interned call stacks.
#[derive(Debug, Default)]
pub(super) struct StackTables {
    pub(super) functions: InternedTexts,
    pub(super) paths: InternedTexts,
    pub(super) sources: InternedTexts,
    frames: HashMap<u64, InternedFrame>,
    mappings: HashMap<u64, Vec<u64>>,
    stacks: HashMap<u64, Rc<[u64]>>,
}

impl StackTables {
    pub(super) fn add_frame(&mut self, entry: Fields<'_>) -> Result<(), MalformedField> {
        let (mut iid, mut frame) = (0, InternedFrame::default());
        for field in entry {
            match field? {
                (1, id) => iid = id.uint()?,
                (2, id) => frame.function = id.uint()?,
                (3, id) => frame.mapping = Some(id.uint()?),
                (4, offset) => frame.offset = offset.uint()?,
                (5, id) => frame.source = Some(id.uint()?),
                (6, line) => frame.line = Some(line.uint()?),
                _ => {}
            }
        }
        self.frames.insert(iid, frame);
        Ok(())
    }

    pub(super) fn add_mapping(&mut self, entry: Fields<'_>) -> Result<(), MalformedField> {
        let (mut iid, mut parts) = (0, Vec::new());
        for field in entry {
            match field? {
                (1, id) => iid = id.uint()?,
                (7, ids) => ids.uints(&mut parts)?,
                _ => {}
            }
        }
        self.mappings.insert(iid, parts);
        Ok(())
    }

    pub(super) fn add_stack(&mut self, entry: Fields<'_>) -> Result<(), MalformedField> {
        let (mut iid, mut frames) = (0, Vec::new());
        for field in entry {
            match field? {
                (1, id) => iid = id.uint()?,
                (2, ids) => ids.uints(&mut frames)?,
                _ => {}
            }
        }
        self.stacks.insert(iid, frames.into());
        Ok(())
    }

    /// Returns the frames of a call stack, outermost first; `None` if it does not exist.
    pub(super) fn frames(&self, stack: u64) -> Option<Vec<StackFrame<'_>>> {
        let ids = self.stacks.get(&stack)?;
        // The innermost frames are last.
        let ids = &ids[ids.len().saturating_sub(MAX_FRAMES)..];
        Some(
            ids.iter()
                .map(|id| self.frames.get(id).map_or_else(StackFrame::default, |f| self.frame(f)))
                .collect(),
        )
    }

    fn frame(&self, frame: &InternedFrame) -> StackFrame<'_> {
        let text = |texts: &'_ InternedTexts, id: u64| texts.get(&id).cloned();
        let library = frame.mapping.and_then(|id| self.mappings.get(&id)).map(|parts| {
            let parts: Vec<Rc<[u8]>> =
                parts.iter().take(64).filter_map(|part| text(&self.paths, *part)).collect();
            parts.join(&b'/')
        });
        StackFrame {
            name: self.functions.get(&frame.function).map_or(&[][..], |name| name),
            library: library.filter(|path| !path.is_empty()).map(|path| (path, frame.offset)),
            source: frame.source.and_then(|id| self.sources.get(&id)).map(|path| &path[..]),
            line: frame.line,
        }
    }
}

/// Reads the frames of an inline call stack, outermost first.
pub(super) fn inline<'a>(stack: Field<'a>) -> Result<Vec<StackFrame<'a>>, MalformedField> {
    let mut frames = Vec::new();
    for field in stack.message()? {
        let (1, entry) = field? else { continue };
        let mut frame = StackFrame::default();
        for field in entry.message()? {
            match field? {
                (1, name) => frame.name = name.bytes()?,
                (2, source) => frame.source = Some(source.bytes()?),
                (3, line) => frame.line = Some(line.uint()?),
                _ => {}
            }
        }
        frames.push(frame);
    }
    frames.drain(..frames.len().saturating_sub(MAX_FRAMES));
    Ok(frames)
}

/// Returns a call stack as the JSON of an event, innermost frame first.
pub(super) fn json(frames: &[StackFrame<'_>]) -> Option<String> {
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    let mut bytes = 0;
    let fits = |frame: &&StackFrame<'_>| {
        let library = frame.library.as_ref().map_or(0, |(path, _)| path.len());
        bytes += frame.name.len() + library + frame.source.map_or(0, <[u8]>::len);
        bytes <= MAX_BYTES
    };
    let frames: Vec<_> = (frames.iter().rev().take_while(fits).enumerate())
        .map(|(depth, frame)| {
            let mut json = json!({ "depth": depth, "name": text(frame.name) });
            if let Some((library, offset)) = &frame.library {
                json["library"] = text(library).into();
                json["offset"] = (*offset).into();
            }
            if let Some(source) = frame.source {
                json["file"] = text(source).into();
            }
            if let Some(line) = frame.line {
                json["line"] = line.into();
            }
            json
        })
        .collect();
    (!frames.is_empty()).then(|| json!({ "frames": frames }).to_string())
}
