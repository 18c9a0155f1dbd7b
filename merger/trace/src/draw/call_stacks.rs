//! Reads call stacks in the JSON of events.
//!
//! There is no standard form. Accepted are a list of frames, an object with such a list in `frames`, and an
//! object with the frames as its values. A frame is a text or an object. The innermost frame is the first, in the
//! order in which profilers unwind.

use super::event_details::CountedEvents;
use crate::item::{CallStack, StackFrame, StackNumber, TextId, UnitDictionary};
use serde_json::Value as JsonText;
use std::collections::HashMap;

/// Maximum number of frames that are drawn of a call stack, the innermost ones.
const MAX_FRAMES: usize = 512;
/// Maximum number of bytes of a call stack's text as an annotation.
const MAX_STACK_BYTES: usize = 4096;

const FUNCTION_KEYS: [&str; 4] = ["name", "function", "symbol", "func"];
const FILE_KEYS: [&str; 6] = ["file", "library", "dso", "module", "image", "path"];
const OFFSET_KEYS: [&str; 4] = ["offset", "pc", "address", "ip"];

/// Numbers of call stacks.
#[derive(Debug, Default)]
pub(super) struct CallStacks {
    known: HashMap<CallStack, StackNumber>,
    /// Each call stack as one text, if it was requested.
    texts: HashMap<StackNumber, TextId>,
}

impl CallStacks {
    /// Returns the number of a call stack plus 1; 0 for none.
    pub(super) fn stack_number(
        &mut self,
        json: &[u8],
        dictionary: &mut UnitDictionary,
        counted: &mut CountedEvents,
    ) -> u32 {
        if matches!(json, b"" | b"{}" | b"[]" | b"null") {
            return 0;
        }
        let json = serde_json::from_slice::<JsonText>(json);
        let Ok(mut json) = json else {
            counted.cut_stacks += 1;
            return 0;
        };
        if let Some(frames) = json.get_mut("frames") {
            json = frames.take();
        }
        let mut frames: Vec<StackFrame> = match &json {
            JsonText::Array(frames) => {
                frames.iter().filter_map(|json| read_frame(json, dictionary)).collect()
            }
            JsonText::Object(frames) => {
                frames.values().filter_map(|json| read_frame(json, dictionary)).collect()
            }
            _ => Vec::new(),
        };
        if frames.is_empty() || frames.len() > MAX_FRAMES {
            counted.cut_stacks += 1;
            frames.truncate(MAX_FRAMES);
        }
        if frames.is_empty() {
            return 0;
        }
        frames.reverse();
        let stack = CallStack { frames };
        let next = StackNumber(dictionary.stacks.len() as u32);
        let number = *self.known.entry(stack).or_insert_with_key(|stack| {
            dictionary.stacks.push(stack.clone());
            next
        });
        number.0 + 1
    }

    /// Returns a call stack as one text, outermost frame first.
    pub(super) fn text(&mut self, number: u32, dictionary: &mut UnitDictionary) -> TextId {
        if let Some(text) = self.texts.get(&StackNumber(number)) {
            return *text;
        }
        let frames = dictionary.stacks.get(number as usize).map_or(&[][..], |stack| &stack.frames);
        let mut text = String::new();
        for (place, frame) in frames.iter().enumerate() {
            if text.len() > MAX_STACK_BYTES {
                text.push_str(" > ...");
                break;
            }
            text.push_str(if place > 0 { " > " } else { "" });
            text.push_str(dictionary.texts.get(frame.function));
        }
        let text = dictionary.texts.add(&text);
        self.texts.insert(StackNumber(number), text);
        text
    }
}

fn read_frame(json: &JsonText, dictionary: &mut UnitDictionary) -> Option<StackFrame> {
    let texts = &mut dictionary.texts;
    match json {
        JsonText::String(name) => Some(StackFrame { function: texts.add(name), file: TextId(0), offset: 0 }),
        JsonText::Object(of) => {
            let text = |names: &[&str]| names.iter().find_map(|name| of.get(*name)?.as_str());
            let offset = OFFSET_KEYS.iter().find_map(|name| match of.get(*name)? {
                JsonText::Number(number) => number.as_u64(),
                JsonText::String(text) => {
                    text.strip_prefix("0x").and_then(|digits| u64::from_str_radix(digits, 16).ok())
                }
                _ => None,
            });
            let function = texts.add(text(&FUNCTION_KEYS).unwrap_or("?"));
            Some(StackFrame {
                function,
                file: texts.add(text(&FILE_KEYS).unwrap_or("")),
                offset: offset.unwrap_or(0),
            })
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn call_stacks_of_several_forms_are_read_outermost_first() {
        let mut dictionary = UnitDictionary::default();
        let mut stacks = CallStacks::default();
        let mut counted = CountedEvents::default();
        let mut number = |text: &str| stacks.stack_number(text.as_bytes(), &mut dictionary, &mut counted);
        assert_eq!(number("{}"), 0);
        let first = number(r#"{"frames":[{"depth":0,"name":"f"},{"depth":1,"name":"main"}]}"#);
        assert_eq!(number(r#"["f", "main"]"#), first);
        let other = number(r#"[{"function":"f","file":"a.so","pc":"0x10"},{"name":"main","offset":7}]"#);
        assert_eq!((first, other), (1, 2));
        assert_eq!(number("[[["), 0);
        assert_eq!(number(&format!("[{}\"x\"]", "\"y\",".repeat(600))), 3);
        assert_eq!(counted.cut_stacks, 2);
        assert_eq!(dictionary.stacks[2].frames.len(), 512);
        let frames = |n: usize| -> Vec<_> {
            let frame =
                |f: &StackFrame| (dictionary.texts.get(f.function), dictionary.texts.get(f.file), f.offset);
            dictionary.stacks[n].frames.iter().map(frame).collect()
        };
        assert_eq!(frames(0), [("main", "", 0), ("f", "", 0)]);
        assert_eq!(frames(1), [("main", "", 7), ("f", "a.so", 16)]);
        let text = stacks.text(0, &mut dictionary);
        assert_eq!(dictionary.texts.get(text), "main > f");
    }
}
