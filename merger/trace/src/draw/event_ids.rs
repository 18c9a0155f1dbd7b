//! Ids of events, ascending. They mostly have no gaps.

/// Ids of consecutive events of a unit.
#[derive(Debug, Default)]
pub(super) struct EventIds {
    first: i64,
    len: usize,
    /// The ids, if they have gaps.
    sparse: Vec<i64>,
}

impl EventIds {
    pub(super) fn push(&mut self, id: i64) {
        if self.len == 0 {
            self.first = id;
        }
        let is_next = self.first.checked_add(self.len as i64) == Some(id);
        if self.sparse.is_empty() && !is_next {
            self.sparse = (self.first..).take(self.len).collect();
        }
        if !(self.sparse.is_empty() && is_next) {
            self.sparse.push(id);
        }
        self.len += 1;
    }

    pub(super) fn len(&self) -> usize {
        self.len
    }

    /// Returns the index of an id.
    #[inline]
    pub(super) fn find(&self, id: i64) -> Option<usize> {
        if self.sparse.is_empty() {
            return usize::try_from(id.checked_sub(self.first)?).ok().filter(|place| *place < self.len);
        }
        self.sparse.binary_search(&id).ok()
    }

    /// Returns the first and the last id.
    pub(super) fn bounds(&self) -> Option<(i64, i64)> {
        let before_last = i64::try_from(self.len).ok()?.checked_sub(1).filter(|count| *count >= 0)?;
        let last = self.sparse.last().copied().or_else(|| self.first.checked_add(before_last))?;
        Some((self.first, last))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_are_found_with_and_without_gaps() {
        let mut ids = EventIds::default();
        assert_eq!(ids.bounds(), None);
        (5..8).for_each(|id| ids.push(id));
        assert_eq!([4, 5, 7, 8].map(|id| ids.find(id)), [None, Some(0), Some(2), None]);
        assert_eq!(ids.bounds(), Some((5, 7)));
        [9, 10].into_iter().for_each(|id| ids.push(id));
        assert_eq!([7, 8, 9, 10, 11].map(|id| ids.find(id)), [Some(2), None, Some(3), Some(4), None]);
        assert_eq!(ids.bounds(), Some((5, 10)));
    }
}
