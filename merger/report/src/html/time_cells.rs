//! Cells of equal length, into which times of a run are divided.

use std::ops::Range;

/// Division of a span of time into cells of equal length.
#[derive(Clone, Copy, Debug)]
pub(super) struct TimeCells {
    /// First and last time, ns.
    pub(super) span: (i64, i64),
    pub(super) cells: usize,
}

impl TimeCells {
    /// Returns the first time of a cell.
    pub(super) fn bound(&self, cell: usize) -> i64 {
        let length = i128::from(self.span.1) - i128::from(self.span.0);
        (i128::from(self.span.0) + length * cell as i128 / self.cells.max(1) as i128) as i64
    }

    /// Returns the cells that contain times from `start` to before `end`.
    fn cells_of(&self, start: i64, end: i64) -> Range<usize> {
        let length = (i128::from(self.span.1) - i128::from(self.span.0)).max(1);
        let place = |time: i64| (i128::from(time) - i128::from(self.span.0)) * self.cells as i128 / length;
        let limit = self.cells as i128;
        // A time at the bound of two cells may be rounded to the first one.
        let first = place(start).clamp(0, limit) as usize;
        first..((place(end) + 1).clamp(0, limit) as usize)
    }

    /// Passes the part of the times from `start` to before `end` in each cell to `take`, ns.
    pub(super) fn add(&self, start: i64, end: i64, mut take: impl FnMut(usize, f32)) {
        let (start, end) = (start.max(self.span.0), end.min(self.span.1));
        if start >= end {
            return;
        }
        for cell in self.cells_of(start, end) {
            let part = end.min(self.bound(cell + 1)).saturating_sub(start.max(self.bound(cell)));
            if part > 0 {
                take(cell, part as f32);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn extreme_times_stay_in_the_cells() {
        let cells = TimeCells { span: (i64::MIN, i64::MAX), cells: 16 };
        let mut count = 0;
        cells.add(i64::MIN, i64::MAX, |_, _| count += 1);
        assert_eq!(count, 16);
        let none = TimeCells { span: (5, 5), cells: 16 };
        none.add(0, 10, |_, _| panic!("the span has no time"));
    }
}
