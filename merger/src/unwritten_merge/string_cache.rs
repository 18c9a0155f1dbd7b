//! Strings of the inputs that are being read.

use crate::input::OpenInput;
use crate::output::loaded_strings::LoadedStrings;
use crate::strings::StringIds;
use rpd_console::Failure;
use std::collections::VecDeque;
use std::sync::{Arc, Mutex, PoisonError};

/// Strings of the inputs that were read last. Threads share it.
#[derive(Debug)]
pub(super) struct StringCache {
    max_inputs: usize,
    /// Inputs by their positions, the one that was loaded last at the end.
    loaded: Mutex<VecDeque<(usize, Arc<LoadedStrings>)>>,
}

impl StringCache {
    /// Creates a cache for this many threads, each of which reads one input at a time.
    pub(super) fn new(threads: usize) -> StringCache {
        StringCache { max_inputs: threads.max(1), loaded: Mutex::default() }
    }

    /// Returns the strings of an input, which is at this position.
    ///
    /// # Errors
    /// If they cannot be read.
    pub(super) fn get(
        &self,
        position: usize,
        input: &OpenInput,
        ids: &StringIds,
    ) -> Result<Arc<LoadedStrings>, Failure> {
        let known = |loaded: &VecDeque<(usize, Arc<LoadedStrings>)>| {
            loaded.iter().find(|(other, _)| *other == position).map(|(_, strings)| strings.clone())
        };
        if let Some(strings) = known(&self.loaded.lock().unwrap_or_else(PoisonError::into_inner)) {
            return Ok(strings);
        }
        let strings = Arc::new(LoadedStrings::of(input, ids)?);
        let mut loaded = self.loaded.lock().unwrap_or_else(PoisonError::into_inner);
        if known(&loaded).is_none() {
            while loaded.len() >= self.max_inputs {
                loaded.pop_front();
            }
            loaded.push_back((position, strings.clone()));
        }
        Ok(strings)
    }
}
