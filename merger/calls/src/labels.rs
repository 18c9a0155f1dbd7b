//! Numbers of labels: first in a process, then in the run.

use crate::region_names::RegionNames;
use foldhash::fast::RandomState;
use rpd_run::RunStrings;
use serde::{Deserialize, Serialize};
use std::collections::HashMap;

/// Maximum number of labels; all others share [`CallLabel::Other`].
const MAX_LABELS: usize = 1 << 16;

/// Label under which the time of a call or of work counts.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum CallLabel {
    /// Name of the innermost range. Many names that differ in a last number only have one label without it.
    Range(String),
    /// Function of MPI, HIP or CUDA.
    Function(String),
    /// Kernel or copy on a GPU.
    GpuWork(String),
    /// A stream of a GPU has no work.
    StreamIdle,
    /// In no range, between two calls.
    Between {
        /// Function of the call before, and whether that is on a subcommunicator; `None` at the start of a thread.
        before: Option<String>,
        /// The same of the call after; `None` at the end of a thread.
        after: Option<String>,
    },
    /// All labels beyond the maximum number.
    Other,
}

/// A label by numbers of [`RegionNames`].
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Serialize, Deserialize)]
pub(crate) enum LabelKey {
    /// Place of the name.
    Name(u32),
    /// Class of names.
    Class(u32),
    Function(u16),
    /// Index among the names of GPU work.
    GpuWork(u32),
    StreamIdle,
    Between(Option<WorkBorder>, Option<WorkBorder>),
    Other,
}

/// A call before or after work. Work between equal functions may differ by their communicators, which have other names in
/// other processes.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Serialize, Deserialize)]
pub(crate) struct WorkBorder {
    pub(crate) function: u16,
    /// Whether the call is on a communicator that has fewer ranks than another one of the process.
    pub(crate) is_of_part: bool,
}

/// Labels in the order of first use.
#[derive(Debug, Default)]
pub(crate) struct LabelNumbers {
    numbers: HashMap<LabelKey, u32, RandomState>,
    keys: Vec<LabelKey>,
}

impl LabelNumbers {
    /// Returns the number of a label.
    pub(crate) fn number(&mut self, key: LabelKey) -> u32 {
        if let Some(number) = self.numbers.get(&key) {
            return *number;
        }
        if self.keys.len() >= MAX_LABELS && key != LabelKey::Other {
            return self.number(LabelKey::Other);
        }
        let number = self.keys.len() as u32;
        self.numbers.insert(key, number);
        self.keys.push(key);
        number
    }

    /// Returns the labels in the order of their numbers.
    pub(crate) fn keys(&self) -> &[LabelKey] {
        &self.keys
    }

    /// Returns the labels alone.
    pub(crate) fn into_keys(self) -> Vec<LabelKey> {
        self.keys
    }

    /// Returns the texts of the labels. `gpu_work` has the names of GPU work.
    pub(crate) fn texts(
        &self,
        names: &RegionNames,
        strings: &RunStrings,
        gpu_work: &[String],
    ) -> Vec<CallLabel> {
        let function = |number: u16| names.function_name(number).to_owned();
        let border = |WorkBorder { function: number, is_of_part }| match is_of_part {
            true => function(number) + " on a subcommunicator",
            false => function(number),
        };
        let text = |key: &LabelKey| match *key {
            LabelKey::Name(place) => {
                CallLabel::Range(String::from_utf8_lossy(strings.at(place as usize)).into_owned())
            }
            LabelKey::Class(class) => CallLabel::Range(names.class_name(class, strings)),
            LabelKey::Function(number) => CallLabel::Function(function(number)),
            LabelKey::GpuWork(name) => {
                CallLabel::GpuWork(gpu_work.get(name as usize).cloned().unwrap_or_default())
            }
            LabelKey::StreamIdle => CallLabel::StreamIdle,
            LabelKey::Between(before, after) => {
                CallLabel::Between { before: before.map(border), after: after.map(border) }
            }
            LabelKey::Other => CallLabel::Other,
        };
        self.keys.iter().map(text).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn labels_beyond_the_limit_share_one() {
        let mut labels = LabelNumbers::default();
        let numbers: Vec<u32> = (0..70_000).map(|name| labels.number(LabelKey::Name(name))).collect();
        assert_eq!(numbers[65_535], 65_535);
        assert!(numbers[65_536..].iter().all(|number| *number == 65_536));
        assert_eq!(labels.number(LabelKey::Name(7)), 7);
        assert_eq!(labels.keys().len(), 65_537);
    }
}
