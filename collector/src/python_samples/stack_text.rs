//! Stacks as JSON, in the form in which other profilers write them to RocPD.

use super::stacks::PythonFrame;
use serde::Serialize;
use std::collections::HashMap;
use std::sync::Arc;

/// Maximum number of bytes of the texts and frames that are kept of a process.
const MAX_KEPT_BYTES: usize = 8 << 20;

/// Maximum number of bytes of a text. Outer frames beyond it are left out.
const MAX_STACK_BYTES: usize = 64 << 10;

/// Texts of stacks, so that a stack that occurs often is written once.
#[derive(Debug, Default)]
pub(super) struct StackTexts {
    known: HashMap<Vec<PythonFrame>, Arc<str>>,
    bytes: usize,
}

#[derive(Serialize)]
struct JsonFrame<'a> {
    name: &'a str,
    file: &'a str,
    line: i32,
}

impl StackTexts {
    /// Returns the text of a stack, the innermost frame first.
    pub(super) fn json(&mut self, frames: Vec<PythonFrame>) -> Arc<str> {
        if let Some(known) = self.known.get(&frames) {
            return Arc::clone(known);
        }
        let json = |frame: &PythonFrame| {
            serde_json::to_string(&JsonFrame {
                name: &frame.function.name,
                file: &frame.function.file,
                line: frame.line,
            })
        };
        let mut text = r#"{"frames":["#.to_owned();
        for (place, frame) in frames.iter().filter_map(|frame| json(frame).ok()).enumerate() {
            if text.len() + frame.len() > MAX_STACK_BYTES {
                break;
            }
            text.push_str(if place > 0 { "," } else { "" });
            text.push_str(&frame);
        }
        text.push_str("]}");
        let text: Arc<str> = text.into();
        if self.bytes >= MAX_KEPT_BYTES {
            (self.known, self.bytes) = (HashMap::new(), 0);
        }
        self.bytes += text.len() + size_of_val(&frames[..]);
        self.known.insert(frames, Arc::clone(&text));
        text
    }
}

#[cfg(test)]
mod tests {
    use super::super::code_objects::PythonFunction;
    use super::*;

    #[test]
    fn a_stack_is_valid_json_whatever_its_names_are() {
        let function = Arc::new(PythonFunction { name: "f\"\u{1}é".into(), file: "C:\\a\n".into() });
        let frames = vec![PythonFrame { function, line: 3 }; 2];
        let mut texts = StackTexts::default();
        let text = texts.json(frames.clone());
        let json: serde_json::Value = serde_json::from_str(&text).unwrap();
        let frame = serde_json::json!({"name": "f\"\u{1}é", "file": "C:\\a\n", "line": 3});
        assert_eq!(json, serde_json::json!({"frames": [frame, frame]}));
        assert!(Arc::ptr_eq(&text, &texts.json(frames)));
    }
}
