//! How much work there is in each segment: the number of ranges, or the size of kernels and copies.

use serde::{Deserialize, Serialize};

/// The amounts of the segments of work of a timeline. On a thread, the amount of a segment is the number of ranges with its
/// label that began in it. On a stream, where each segment is a kernel or a copy, it is the number of work-items of the
/// kernel or of bytes; 0 if that is not recorded.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct WorkAmounts {
    /// By segment; empty if all are 0.
    amounts: Vec<u32>,
}

impl WorkAmounts {
    /// An amount that is this large or larger.
    pub(crate) const MAX: u32 = u32::MAX;

    /// Takes the amounts of all segments.
    pub(crate) fn of_segments(amounts: Vec<u32>) -> WorkAmounts {
        if amounts.iter().all(|amount| *amount == 0) {
            return WorkAmounts::default();
        }
        WorkAmounts { amounts }
    }

    /// Returns the number of ranges that began in a segment of work of a thread.
    pub fn ranges(&self, segment: usize) -> u32 {
        self.amounts.get(segment).copied().unwrap_or(0)
    }

    /// Returns the size of the kernel or copy in a segment of work of a stream; `None` if it is not known.
    pub fn size(&self, segment: usize) -> Option<u32> {
        self.amounts.get(segment).copied().filter(|size| (1..WorkAmounts::MAX).contains(size))
    }

    /// Returns whether it is one that so many segments of work can have.
    pub(crate) fn is_valid(&self, segments: usize) -> bool {
        self.amounts.is_empty() || self.amounts.len() == segments
    }

    pub(crate) fn bytes(&self) -> usize {
        size_of_val(&self.amounts[..])
    }

    pub(crate) fn shrink_to_fit(&mut self) {
        self.amounts.shrink_to_fit();
    }
}
