//! Segments that a producer has taken before it needs them.

/// Maximum number of these segments: for the ends of as many ranges as may be open.
const MAX_AHEAD: usize = 96;

/// Numbers of segments, in the order in which they are used.
#[derive(Debug)]
pub(crate) struct SegmentQueue {
    numbers: [u16; MAX_AHEAD],
    first: usize,
    len: usize,
}

impl SegmentQueue {
    pub(crate) fn new() -> SegmentQueue {
        SegmentQueue { numbers: [0; MAX_AHEAD], first: 0, len: 0 }
    }

    pub(crate) fn len(&self) -> usize {
        self.len
    }

    /// Returns `false` if the queue is full.
    pub(crate) fn push(&mut self, number: usize) -> bool {
        if self.len == MAX_AHEAD {
            return false;
        }
        if let Some(place) = self.numbers.get_mut((self.first + self.len) % MAX_AHEAD) {
            *place = number as u16;
        }
        self.len += 1;
        true
    }

    pub(crate) fn pop(&mut self) -> Option<usize> {
        self.len = self.len.checked_sub(1)?;
        let number = self.numbers.get(self.first).copied();
        self.first = (self.first + 1) % MAX_AHEAD;
        number.map(usize::from)
    }

    pub(crate) fn pop_last(&mut self) -> Option<usize> {
        self.len = self.len.checked_sub(1)?;
        self.numbers.get((self.first + self.len) % MAX_AHEAD).copied().map(usize::from)
    }
}
