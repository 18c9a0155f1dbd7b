//! Shares equal values among open files: a job has thousands of databases with the same tables.

use std::sync::{Arc, Mutex, PoisonError};

/// Maximum number of shared values of one kind.
const MAX_SHARED_VALUES: usize = 1_024;

/// Values of one kind, shared by all open files.
#[derive(Debug)]
pub(super) struct Shared<T: ?Sized>(Mutex<Vec<Arc<T>>>);

impl<T: PartialEq + ?Sized> Shared<T> {
    pub(super) const fn new() -> Shared<T> {
        Shared(Mutex::new(Vec::new()))
    }

    /// Returns an equal value of another file, otherwise `value` itself.
    pub(super) fn one_of(&self, value: Arc<T>) -> Arc<T> {
        let mut known = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(same) = known.iter().find(|same| **same == value) {
            return same.clone();
        }
        if known.len() >= MAX_SHARED_VALUES {
            // Values that no file uses any more are removed.
            known.retain(|value| Arc::strong_count(value) > 1);
        }
        if known.len() < MAX_SHARED_VALUES {
            known.push(value.clone());
        }
        value
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn equal_values_are_one_and_there_is_an_end_to_different_ones() {
        let shared = Shared::new();
        let first = shared.one_of(Arc::new(7));
        assert!(Arc::ptr_eq(&first, &shared.one_of(Arc::new(7))));
        let kept: Vec<_> = (0..3_000).map(|i| shared.one_of(Arc::new(i))).collect();
        assert_eq!(shared.0.lock().unwrap().len(), MAX_SHARED_VALUES);
        drop(kept);
        let new = shared.one_of(Arc::new(9_999));
        assert!(Arc::ptr_eq(&new, &shared.one_of(Arc::new(9_999))));
        assert!(Arc::ptr_eq(&first, &shared.one_of(Arc::new(7))), "it is in use");
    }
}
