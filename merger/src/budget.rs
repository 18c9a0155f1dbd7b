//! How much memory a merge rank may use, and for what.

use crate::failure::Failure;
use rpd_shard::size::{Size, SizeError};
use std::str::FromStr;

/// Least memory that a merge gets by with.
const LEAST: u64 = 32 << 20;
/// What there is in any merge: the program, what it knows of its inputs.
const ALWAYS: u64 = 16 << 20;
/// What a thread has in work: the rows of a unit, and their pages.
const PER_THREAD: u64 = 16 << 20;
/// What a distinct string takes at most: hash, place and id in tables that are half full and grow, and what the
/// ranks tell each other of it.
const PER_STRING: u64 = 320;

/// Memory of one rank, bytes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Budget(u64);

impl Default for Budget {
    fn default() -> Budget {
        Budget(1 << 30)
    }
}

/// A text that is no budget.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum BudgetError {
    /// No size.
    #[error(transparent)]
    Size(#[from] SizeError),
    /// A size below the least.
    #[error("a merge needs 32M at least")]
    TooSmall,
}

impl FromStr for Budget {
    type Err = BudgetError;

    fn from_str(text: &str) -> Result<Budget, BudgetError> {
        let Size(bytes) = text.parse()?;
        if bytes < LEAST { Err(BudgetError::TooSmall) } else { Ok(Budget(bytes)) }
    }
}

impl Budget {
    /// Threads that fit, of those that are wanted.
    pub fn threads(self, wanted: usize) -> usize {
        let fit = (self.0 - ALWAYS) / PER_THREAD;
        usize::try_from(fit).unwrap_or(usize::MAX).clamp(1, wanted.max(1))
    }

    /// Bytes of pages that are on their way to the disk at once.
    pub fn stream_bytes(self) -> usize {
        usize::try_from(self.0 / 8).unwrap_or(usize::MAX).min(24 << 20)
    }

    /// Bytes of SQLite's cache.
    pub fn cache_bytes(self) -> u64 {
        (self.0 / 8).min(64 << 20)
    }

    /// Bytes of pages that are kept between two passes.
    pub fn kept_bytes(self) -> u64 {
        (self.0 - ALWAYS) / 3
    }

    /// Refuses more distinct strings than there is room for.
    pub fn check_strings(self, distinct: u64) -> Result<(), Failure> {
        let needed = distinct.saturating_mul(PER_STRING);
        if needed <= (self.0 - ALWAYS) / 2 {
            return Ok(());
        }
        let more = Size(((needed * 2 + ALWAYS) >> 20) << 20);
        Err(Failure::Usage(format!(
            "the inputs of one merge rank have {distinct} different strings, too many for --memory {}: give it \
             {more}, or use more ranks",
            Size(self.0)
        )))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_decides_about_threads_and_strings() {
        let small: Budget = "32M".parse().unwrap();
        assert_eq!(small.threads(64), 1);
        assert_eq!(Budget::default().threads(100), 63);
        assert_eq!(Budget::default().threads(2), 2);
        assert!(small.check_strings(10_000).is_ok());
        assert!(small.check_strings(1_000_000).is_err());
        assert!(Budget::default().check_strings(1_000_000).is_ok());
        assert_eq!("31M".parse::<Budget>(), Err(BudgetError::TooSmall));
        assert!("much".parse::<Budget>().is_err());
    }
}
