//! Classes of the names of regions: functions of MPI, and ranges that differ in a number only.

use crate::functions::{FunctionKind, function_named};
use rpd_run::RunStrings;
use std::collections::HashMap;

/// Maximum number of names that differ in their last number only and have a label each.
const MAX_NUMBERED_NAMES: u32 = 64;
/// No function.
const NO_FUNCTION: u16 = u16::MAX;

/// What the strings of a run mean as names of regions. Strings are known by their places in [`RunStrings`].
#[derive(Debug, Default)]
pub(crate) struct RegionNames {
    /// Class of each string: strings that differ in their last number only.
    classes: Vec<u32>,
    /// A string of each class, and the number of its strings.
    class_names: Vec<(u32, u32)>,
    functions_of: Vec<u16>,
    /// The functions of MPI that the strings name.
    functions: Vec<(String, FunctionKind)>,
}

impl RegionNames {
    /// Classifies all strings.
    pub(crate) fn new(strings: &RunStrings) -> RegionNames {
        let mut names = RegionNames::default();
        let mut classes: HashMap<&[u8], u32> = HashMap::new();
        let mut functions: HashMap<String, u16> = HashMap::new();
        for place in 0..strings.len() {
            let text = strings.at(place);
            let class = *classes.entry(without_number(text)).or_insert(names.class_names.len() as u32);
            if class as usize == names.class_names.len() {
                names.class_names.push((place as u32, 0));
            }
            names.class_names[class as usize].1 += 1;
            names.classes.push(class);
            let function = function_named(text).map_or(NO_FUNCTION, |(name, kind)| {
                *functions.entry(name.to_owned()).or_insert_with(|| {
                    names.functions.push((name.to_owned(), kind));
                    // More functions than this has no MPI; a file may name any number.
                    (names.functions.len() - 1).min(usize::from(NO_FUNCTION)) as u16
                })
            });
            names.functions_of.push(function);
        }
        names
    }

    /// Returns whether a string names a function that sends messages.
    pub(crate) fn has_sends(&self) -> bool {
        let sends = |kind: &FunctionKind| {
            use FunctionKind::{Prepare, Send, SendAndReceive};
            matches!(kind, Send { .. } | SendAndReceive { .. } | Prepare(_))
        };
        self.functions.iter().any(|(_, kind)| sends(kind))
    }

    /// Returns the function of MPI that a string names.
    #[inline]
    pub(crate) fn function(&self, place: u32) -> Option<u16> {
        self.functions_of.get(place as usize).copied().filter(|function| *function != NO_FUNCTION)
    }

    /// Returns what a function means.
    #[inline]
    pub(crate) fn kind(&self, function: u16) -> FunctionKind {
        self.functions.get(usize::from(function)).map_or(FunctionKind::Other, |(_, kind)| *kind)
    }

    /// Returns the name of a function.
    pub(crate) fn function_name(&self, function: u16) -> &str {
        self.functions.get(usize::from(function)).map_or("", |(name, _)| name)
    }

    /// Returns whether there is a string at a place.
    pub(crate) fn has_string(&self, place: u32) -> bool {
        (place as usize) < self.classes.len()
    }

    /// Returns whether there is a class.
    pub(crate) fn has_class(&self, class: u32) -> bool {
        (class as usize) < self.class_names.len()
    }

    /// Returns whether there is a function.
    pub(crate) fn has_function(&self, function: u16) -> bool {
        usize::from(function) < self.functions.len()
    }

    /// Returns the class of a string.
    #[inline]
    pub(crate) fn class(&self, place: u32) -> u32 {
        self.classes.get(place as usize).copied().unwrap_or(u32::MAX)
    }

    /// Returns whether the strings of a class share one label.
    #[inline]
    pub(crate) fn is_shared(&self, class: u32) -> bool {
        self.class_names.get(class as usize).is_some_and(|(_, names)| *names > MAX_NUMBERED_NAMES)
    }

    /// Returns the class with this name, with or without a number.
    pub(crate) fn class_named(&self, name: &str, strings: &RunStrings) -> Option<u32> {
        let base = without_number(name.as_bytes());
        let is_it = |(place, _): &(u32, u32)| without_number(strings.at(*place as usize)) == base;
        self.class_names.iter().position(is_it).map(|class| class as u32)
    }

    /// Returns the name of a class: its strings without their number, or its only string.
    pub(crate) fn class_name(&self, class: u32, strings: &RunStrings) -> String {
        let Some((place, names)) = self.class_names.get(class as usize) else { return String::new() };
        let text = strings.at(*place as usize);
        let text = if *names > 1 { without_number(text) } else { text };
        String::from_utf8_lossy(text).into_owned()
    }
}

/// Returns a name without its last number, if that is at its end: `step` of `step 17`, `step=17` and `step[17]`.
/// Other names are returned unchanged.
pub(crate) fn without_number(name: &[u8]) -> &[u8] {
    let is_end = |byte: &u8| b")]}".contains(byte);
    let is_separator = |byte: &u8| b" #=:_-./([{".contains(byte);
    let unclosed = trim_end(name, is_end);
    let base = trim_end(unclosed, u8::is_ascii_digit);
    if base.len() == unclosed.len() {
        return name;
    }
    let base = trim_end(base, is_separator);
    if base.is_empty() { name } else { base }
}

fn trim_end(text: &[u8], is_cut: impl Fn(&u8) -> bool) -> &[u8] {
    let end = text.iter().rposition(|byte| !is_cut(byte)).map_or(0, |last| last + 1);
    &text[..end]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_taken_off_names() {
        let without = |name: &'static str| std::str::from_utf8(without_number(name.as_bytes())).unwrap();
        for name in ["step 17", "step#17", "step=17", "step_17", "step[17]", "step17", "step: 17", "step"] {
            assert_eq!(without(name), "step", "{name}");
        }
        assert_eq!(without("ProfilerStep#17"), "ProfilerStep");
        assert_eq!(without("epoch 3 step 17"), "epoch 3 step");
        assert_eq!([without("17"), without(" 17"), without("f(x)"), without("")], ["17", " 17", "f(x)", ""]);
    }
}
