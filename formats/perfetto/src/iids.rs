/// The caller's number of a text. Numbers should be dense: a table has one entry for each.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct StringId(pub u32);

const PAGE: usize = 4096;

/// Maps the caller's numbers to their interning ids in this file, which are dense and start at 1.
///
/// The table has two levels, so that one huge number costs at most 8 MB and a page.
#[derive(Debug, Default)]
pub(crate) struct Iids {
    pages: Vec<Option<Box<[u32]>>>,
    /// All numbers that have an id, in the order of their ids.
    given: Vec<u32>,
}

impl Iids {
    /// Returns the id of a number; 0 if it has none yet.
    #[inline]
    pub(crate) fn get(&self, number: u32) -> u32 {
        let (page, place) = (number as usize / PAGE, number as usize % PAGE);
        match self.pages.get(page) {
            Some(Some(ids)) => ids[place],
            _ => 0,
        }
    }

    /// Assigns the next id to a number that has none.
    pub(crate) fn add(&mut self, number: u32) -> u32 {
        let (page, place) = (number as usize / PAGE, number as usize % PAGE);
        if self.pages.len() <= page {
            self.pages.resize_with(page + 1, || None);
        }
        let ids = self.pages[page].get_or_insert_with(|| vec![0; PAGE].into());
        self.given.push(number);
        ids[place] = self.given.len() as u32;
        ids[place]
    }

    /// Removes all ids, in time proportional to their number.
    pub(crate) fn clear(&mut self) {
        for number in self.given.drain(..) {
            if let Some(Some(ids)) = self.pages.get_mut(number as usize / PAGE) {
                ids[number as usize % PAGE] = 0;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::HashMap;

    proptest! {
        #[test]
        fn ids_are_dense_in_the_order_of_first_use(numbers in prop::collection::vec(prop_oneof![0u32..50, 4090u32..4100, any::<u32>()], 0..200)) {
            let mut iids = Iids::default();
            for _ in 0..2 {
                let mut model = HashMap::new();
                for &number in &numbers {
                    let next = model.len() as u32 + 1;
                    let wanted = *model.entry(number).or_insert(next);
                    let had = iids.get(number);
                    let id = if had == 0 { iids.add(number) } else { had };
                    prop_assert_eq!(id, wanted);
                }
                iids.clear();
                prop_assert!(numbers.iter().all(|&number| iids.get(number) == 0));
            }
        }
    }
}
