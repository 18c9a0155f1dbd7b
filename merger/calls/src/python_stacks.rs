//! Call stacks of Python as a tree, in which stacks share the frames that they have in common.

use serde::{Deserialize, Serialize};
use std::collections::HashMap;

/// Number of a stack that has no frames, or is not known.
pub(crate) const NO_STACK: u32 = u32::MAX;
/// Maximum number of frames of a stack, the innermost ones.
pub(crate) const MAX_FRAMES: usize = 256;
/// Maximum length of the name of a function, and of a file, bytes.
pub(crate) const MAX_NAME_BYTES: usize = 256;
pub(crate) const MAX_FILE_BYTES: usize = 4096;

/// A function of Python. Two functions of a file with one name are the same.
#[derive(Clone, PartialEq, Eq, Hash, Debug, Serialize, Deserialize)]
pub struct PythonFunction {
    /// Name, as Python qualifies it: `Dataset.augment`.
    pub name: String,
    /// Path of its file, as Python has it.
    pub file: String,
}

/// A line of a function that runs, or calls the next frame.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Serialize, Deserialize)]
pub struct PythonFrame {
    /// Index of the function.
    pub function: u32,
    /// Number of the line in its file; 0 if it is not known.
    pub line: u32,
}

/// A frame with the one that calls it.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Serialize, Deserialize)]
struct StackNode {
    /// Index of the frame that calls it, which is lower, or [`NO_STACK`].
    caller: u32,
    frame: PythonFrame,
}

/// Call stacks. The number of a stack is that of its innermost frame.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct PythonStacks {
    functions: Vec<PythonFunction>,
    nodes: Vec<StackNode>,
}

impl PythonStacks {
    /// Returns a function.
    pub fn function(&self, number: u32) -> Option<&PythonFunction> {
        self.functions.get(number as usize)
    }

    /// Returns the frames of a stack, the innermost first; none, if the stack is not known.
    pub fn frames(&self, stack: u32) -> impl Iterator<Item = PythonFrame> {
        let node = |number: u32| self.nodes.get(number as usize);
        std::iter::successors(node(stack), move |found| node(found.caller)).map(|found| found.frame)
    }

    /// Returns whether it has a stack.
    pub(crate) fn has(&self, stack: u32) -> bool {
        (stack as usize) < self.nodes.len()
    }

    /// Returns how many bytes it takes.
    pub(crate) fn bytes(&self) -> u64 {
        let names = self.functions.iter().map(|function| function.name.len() + function.file.len());
        let texts: usize = names.sum();
        (texts + size_of_val(&self.functions[..]) + size_of_val(&self.nodes[..])) as u64
    }

    /// Returns whether each frame has a function and a caller before it, and no stack or name is too long.
    pub(crate) fn is_valid(&self) -> bool {
        let mut depths: Vec<usize> = Vec::with_capacity(self.nodes.len());
        for node in &self.nodes {
            let depth = match node.caller {
                NO_STACK => 1,
                caller => depths.get(caller as usize).map_or(usize::MAX, |depth| depth + 1),
            };
            if depth > MAX_FRAMES || self.function(node.frame.function).is_none() {
                return false;
            }
            depths.push(depth);
        }
        let is_short = |function: &PythonFunction| {
            function.name.len() <= MAX_NAME_BYTES && function.file.len() <= MAX_FILE_BYTES
        };
        self.functions.iter().all(is_short)
    }
}

/// Maximum sizes of the stacks of a unit or of a run.
#[derive(Clone, Copy, Debug)]
pub(crate) struct StackLimits {
    /// Maximum number of frames in the tree.
    pub(crate) nodes: usize,
    /// Maximum length of all names of functions and files, bytes.
    pub(crate) text_bytes: usize,
}

/// Adds stacks to a tree.
#[derive(Debug)]
pub(crate) struct StackTreeBuilder {
    limits: StackLimits,
    stacks: PythonStacks,
    functions: HashMap<PythonFunction, u32>,
    nodes: HashMap<StackNode, u32>,
    text_bytes: usize,
}

impl StackTreeBuilder {
    pub(crate) fn new(limits: StackLimits) -> StackTreeBuilder {
        let stacks = PythonStacks::default();
        StackTreeBuilder { limits, stacks, functions: HashMap::new(), nodes: HashMap::new(), text_bytes: 0 }
    }

    /// Returns the number of a function; `None` if there are too many.
    pub(crate) fn function(&mut self, name: &str, file: &str) -> Option<u32> {
        let function =
            PythonFunction { name: cut_end(name, MAX_NAME_BYTES), file: cut_end(file, MAX_FILE_BYTES) };
        if let Some(known) = self.functions.get(&function) {
            return Some(*known);
        }
        let bytes = function.name.len() + function.file.len() + size_of::<PythonFunction>();
        if self.text_bytes + bytes > self.limits.text_bytes {
            return None;
        }
        self.text_bytes += bytes;
        let number = self.stacks.functions.len() as u32;
        self.stacks.functions.push(function.clone());
        self.functions.insert(function, number);
        Some(number)
    }

    /// Returns the number of the stack with a frame that `caller` calls, which is [`NO_STACK`] for the outermost frame;
    /// `None` if there are too many.
    pub(crate) fn stack(&mut self, caller: u32, frame: PythonFrame) -> Option<u32> {
        let node = StackNode { caller, frame };
        if let Some(known) = self.nodes.get(&node) {
            return Some(*known);
        }
        if self.stacks.nodes.len() >= self.limits.nodes {
            return None;
        }
        let number = self.stacks.nodes.len() as u32;
        self.stacks.nodes.push(node);
        self.nodes.insert(node, number);
        Some(number)
    }

    /// Adds all stacks of another tree. Returns the number here of each one; [`NO_STACK`] where there are too many.
    pub(crate) fn add(&mut self, other: &PythonStacks) -> Vec<u32> {
        let functions: Vec<Option<u32>> =
            other.functions.iter().map(|function| self.function(&function.name, &function.file)).collect();
        let mut numbers: Vec<u32> = Vec::with_capacity(other.nodes.len());
        for node in &other.nodes {
            let caller = match node.caller {
                NO_STACK => Some(NO_STACK),
                caller => numbers.get(caller as usize).copied().filter(|caller| *caller != NO_STACK),
            };
            let function = functions.get(node.frame.function as usize).copied().flatten();
            let number = caller.zip(function).and_then(|(caller, function)| {
                self.stack(caller, PythonFrame { function, line: node.frame.line })
            });
            numbers.push(number.unwrap_or(NO_STACK));
        }
        numbers
    }

    /// Returns the tree.
    pub(crate) fn finish(mut self) -> PythonStacks {
        self.stacks.functions.shrink_to_fit();
        self.stacks.nodes.shrink_to_fit();
        self.stacks
    }
}

/// Returns the beginning of a text, so many bytes at most.
fn cut_end(text: &str, max_bytes: usize) -> String {
    let end = (0..=max_bytes.min(text.len())).rev().find(|end| text.is_char_boundary(*end));
    text[..end.unwrap_or(0)].to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIMITS: StackLimits = StackLimits { nodes: 1000, text_bytes: 100_000 };

    /// Adds a stack, the outermost frame first.
    fn stack(builder: &mut StackTreeBuilder, frames: &[(&str, u32)]) -> Option<u32> {
        frames.iter().try_fold(NO_STACK, |caller, (name, line)| {
            let function = builder.function(name, "a.py")?;
            builder.stack(caller, PythonFrame { function, line: *line })
        })
    }

    fn names(stacks: &PythonStacks, number: u32) -> Vec<(String, u32)> {
        let name = |frame: PythonFrame| {
            (stacks.function(frame.function).map_or(String::new(), |one| one.name.clone()), frame.line)
        };
        stacks.frames(number).map(name).collect()
    }

    #[test]
    fn stacks_share_their_outer_frames_and_are_the_same_in_another_tree() {
        let mut builder = StackTreeBuilder::new(LIMITS);
        let one = stack(&mut builder, &[("main", 1), ("step", 5), ("augment", 9)]).unwrap();
        let other = stack(&mut builder, &[("main", 1), ("step", 6)]).unwrap();
        assert_eq!(stack(&mut builder, &[("main", 1), ("step", 6)]), Some(other));
        let tree = builder.finish();
        assert_eq!((tree.nodes.len(), tree.functions.len()), (4, 3));
        let mut run = StackTreeBuilder::new(LIMITS);
        stack(&mut run, &[("load", 3), ("step", 6)]).unwrap();
        let numbers = run.add(&tree);
        let joined = run.finish();
        for number in [one, other] {
            assert_eq!(names(&joined, numbers[number as usize]), names(&tree, number));
        }
        assert_eq!(
            names(&tree, one),
            [("augment", 9), ("step", 5), ("main", 1)].map(|(name, line)| (name.to_owned(), line))
        );
        assert_eq!(names(&tree, NO_STACK), []);
        assert!(tree.is_valid() && joined.is_valid());
    }

    #[test]
    fn too_many_stacks_and_names_have_no_number() {
        let mut builder = StackTreeBuilder::new(StackLimits { nodes: 2, text_bytes: 300 });
        assert!(stack(&mut builder, &[("a", 1), ("b", 1)]).is_some());
        assert_eq!(stack(&mut builder, &[("a", 1), ("b", 2)]), None);
        assert_eq!(builder.function(&"x".repeat(200), "b.py"), None);
        assert!(stack(&mut builder, &[("a", 1), ("b", 1)]).is_some(), "known stacks stay");
        let tree = builder.finish();
        let mut small = StackTreeBuilder::new(StackLimits { nodes: 1, ..LIMITS });
        assert_eq!(small.add(&tree), [0, NO_STACK]);
        let mut long = StackTreeBuilder::new(LIMITS);
        let number = long.function(&"é".repeat(300), "a.py").unwrap();
        assert_eq!(long.stacks.functions[number as usize].name.len(), MAX_NAME_BYTES);
    }

    #[test]
    fn trees_that_no_samples_yield_are_invalid() {
        let function = |length: usize| PythonFunction { name: "x".repeat(length), file: String::new() };
        let tree = |callers: &[u32], functions: u32| PythonStacks {
            functions: (0..functions).map(|_| function(1)).collect(),
            nodes: callers
                .iter()
                .map(|caller| StackNode { caller: *caller, frame: PythonFrame { function: 0, line: 0 } })
                .collect(),
        };
        assert!(tree(&[NO_STACK, 0, 1, 0], 1).is_valid());
        assert!(!tree(&[0], 1).is_valid(), "a frame calls itself");
        assert!(!tree(&[NO_STACK, 2, 0], 1).is_valid(), "a caller comes later");
        assert!(!tree(&[NO_STACK], 0).is_valid(), "a frame has no function");
        let deep: Vec<u32> = std::iter::once(NO_STACK).chain(0..MAX_FRAMES as u32).collect();
        assert!(!tree(&deep, 1).is_valid() && tree(&deep[..MAX_FRAMES], 1).is_valid());
        let long = PythonStacks { functions: vec![function(MAX_NAME_BYTES + 1)], nodes: Vec::new() };
        assert!(!long.is_valid());
    }
}
