//! Pieces: the rows of a table that are read at once.

/// Rows that are read at once. Number and bounds of the pieces do not depend on the reader.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Piece {
    /// Estimated number of rows, to reserve memory.
    pub rows: u64,
    /// Bytes of the rows if they are long enough to be counted, otherwise 0.
    pub bytes: u64,
    pub(super) place: PiecePlace,
}

#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) enum PiecePlace {
    /// Rows with keys from `first` to `last`.
    Keys { first: i64, last: i64 },
    /// Leaf pages.
    Pages(Box<[u32]>),
    /// Cells of a leaf page with long rows.
    Cells { page: u32, first: u16, next: u16 },
}

/// Number of parts into which a range of keys is split.
const KEY_PARTS: u64 = 256;

impl Piece {
    pub(super) fn keys(first: i64, last: i64, rows: u64) -> Piece {
        Piece { rows, bytes: 0, place: PiecePlace::Keys { first, last } }
    }

    pub(super) fn of_pages(pages: impl Into<Box<[u32]>>, rows: u64) -> Piece {
        Piece { rows, bytes: 0, place: PiecePlace::Pages(pages.into()) }
    }

    /// Groups the cells of a page into pieces of at most `max_bytes` bytes. A cell with a longer payload is alone.
    pub(super) fn of_cells(page: u32, payloads: &[u64], max_bytes: u64) -> Vec<Piece> {
        let mut pieces = Vec::new();
        let mut open: Option<(u16, u64)> = None;
        let cells = |first: u16, next: u16, bytes| Piece {
            rows: u64::from(next - first),
            bytes,
            place: PiecePlace::Cells { page, first, next },
        };
        for (cell, length) in (0u16..).zip(payloads) {
            open = match open {
                Some((first, bytes)) if bytes.saturating_add(*length) > max_bytes => {
                    pieces.push(cells(first, cell, bytes));
                    Some((cell, *length))
                }
                Some((first, bytes)) => Some((first, bytes.saturating_add(*length))),
                None => Some((cell, *length)),
            };
        }
        if let Some((first, bytes)) = open {
            pieces.push(cells(first, payloads.len() as u16, bytes));
        }
        pieces
    }

    /// Returns the number of pages in the piece.
    pub fn pages(&self) -> usize {
        match &self.place {
            PiecePlace::Pages(pages) => pages.len(),
            PiecePlace::Keys { .. } | PiecePlace::Cells { .. } => 0,
        }
    }

    /// Splits the piece into the smallest parts that can be read: single pages or short ranges of keys. A part that
    /// cannot be read does not affect the others.
    pub fn split(&self) -> Vec<Piece> {
        match &self.place {
            PiecePlace::Pages(pages) => {
                let rows = self.rows / (pages.len() as u64).max(1);
                let one = |page: &u32| Piece::of_pages(vec![*page], rows);
                pages.iter().map(one).collect()
            }
            PiecePlace::Keys { first, last } => {
                let width = last.abs_diff(*first) / KEY_PARTS + 1;
                let mut parts = Vec::new();
                let mut next = Some(*first);
                while let Some(first) = next.filter(|first| first <= last) {
                    let end = first.saturating_add_unsigned(width - 1).min(*last);
                    parts.push(Piece::keys(first, end, self.rows / KEY_PARTS));
                    next = end.checked_add(1);
                }
                parts
            }
            PiecePlace::Cells { .. } => vec![self.clone()],
        }
    }

    /// Splits the piece into parts of at most `pages` pages. A piece without pages is not split.
    pub fn of_at_most(&self, pages: usize) -> Vec<Piece> {
        let PiecePlace::Pages(all) = &self.place else { return vec![self.clone()] };
        let rows = |part: &[u32]| self.rows * part.len() as u64 / all.len() as u64;
        all.chunks(pages.max(1)).map(|part| Piece::of_pages(part, rows(part))).collect()
    }

    /// Returns whether the piece consists of pages, which are divided if their rows are long.
    pub(super) fn has_pages(&self) -> bool {
        matches!(self.place, PiecePlace::Pages(_))
    }

    /// Returns whether [`Piece::split`] returns more than one part.
    pub fn is_divisible(&self) -> bool {
        match &self.place {
            PiecePlace::Pages(pages) => pages.len() > 1,
            PiecePlace::Keys { first, last } => first < last,
            PiecePlace::Cells { .. } => false,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn all_keys_can_be_split() {
        let parts = Piece::keys(i64::MIN, i64::MAX, 0).split();
        assert!(parts.len() <= 256);
        assert!(matches!(parts[0].place, PiecePlace::Keys { first: i64::MIN, .. }));
        assert!(matches!(parts[parts.len() - 1].place, PiecePlace::Keys { last: i64::MAX, .. }));
    }

    #[test]
    fn pages_are_divided_and_nothing_else_is() {
        let piece = Piece::of_pages([7, 8, 9, 20, 21], 100);
        let parts = [Piece::of_pages([7, 8], 40), Piece::of_pages([9, 20], 40), Piece::of_pages([21], 20)];
        assert_eq!(piece.of_at_most(2), parts);
        assert_eq!(piece.of_at_most(5), std::slice::from_ref(&piece));
        assert_eq!(piece.of_at_most(0).len(), 5);
        assert_eq!(Piece::of_pages([], 0).of_at_most(3), []);
        let keys = Piece::keys(1, 1000, 1000);
        assert_eq!(keys.of_at_most(1), [keys]);
    }

    #[test]
    fn long_cells_are_alone_and_short_ones_together() {
        let cells = |payloads: &[u64]| -> Vec<(u16, u16, u64)> {
            let place = |piece: Piece| match piece.place {
                PiecePlace::Cells { first, next, .. } => (first, next, piece.bytes),
                _ => panic!(),
            };
            Piece::of_cells(9, payloads, 100).into_iter().map(place).collect()
        };
        assert_eq!(cells(&[30, 60, 10, 1, 500, 2]), [(0, 3, 100), (3, 4, 1), (4, 5, 500), (5, 6, 2)]);
        assert_eq!(cells(&[u64::MAX, u64::MAX]), [(0, 1, u64::MAX), (1, 2, u64::MAX)]);
        assert_eq!(cells(&[]), []);
    }

    proptest! {
        #[test]
        fn the_parts_of_a_range_are_the_range(first in -2000i64..2000, width in 0i64..5000) {
            let parts = Piece::keys(first, first + width, 0).split();
            let mut next = first;
            for part in parts {
                let PiecePlace::Keys { first, last } = part.place else { panic!() };
                prop_assert_eq!(first, next);
                prop_assert!(first <= last);
                next = last + 1;
            }
            prop_assert_eq!(next, first + width + 1);
        }
    }
}
