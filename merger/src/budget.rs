//! How much memory a merge rank may use, and for what.

use rpd_collectives::MAX_SAMPLED_CALLS;
use rpd_console::Failure;
use rpd_shard::size::{Size, SizeError};
use rpd_trace::DrawingMemory;
use std::str::FromStr;

/// Least memory of a merge rank, bytes.
const MIN_MEMORY: u64 = 32 << 20;
/// What there is in any merge: the program, what it knows of its inputs.
const ALWAYS: u64 = 16 << 20;
/// What a thread has in work: the rows of a unit, their pages, stacks.
const PER_THREAD: u64 = 24 << 20;
/// What MPI takes, where there are several ranks.
const OF_MPI: u64 = 32 << 20;
/// What a string of this rank takes at most: hash, place and id, in a table that grows.
const PER_STRING: u64 = 48;
/// The same while the ranks tell each other of them.
const PER_STRING_TOLD: u64 = 80;
/// What a string takes that this rank gives the others its id of.
const PER_STRING_ASKED: u64 = 96;

/// What a rank has in memory from its survey to the end of the merge.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct HeldMemory {
    /// Bytes that are known of its inputs.
    pub inputs: u64,
    /// Different strings.
    pub strings: u64,
    /// Strings of all ranks that it tells the ids of; 0 where it is alone.
    pub asked: u64,
    /// Bytes of the largest string table of an input, with what it is looked up in.
    pub largest: u64,
}

impl HeldMemory {
    /// Bytes to the end of the merge.
    fn kept(&self) -> u64 {
        let of_mpi = if self.asked > 0 { OF_MPI } else { 0 };
        self.inputs.saturating_add(self.strings.saturating_mul(PER_STRING)).saturating_add(of_mpi)
    }

    /// The memory that a merge of this gets by with, bytes.
    fn needed(&self) -> u64 {
        let told = match self.asked {
            0 => 0,
            asked => {
                let asked = asked.saturating_mul(PER_STRING_ASKED);
                self.inputs.saturating_add(self.strings.saturating_mul(PER_STRING_TOLD)).saturating_add(asked)
            }
        };
        let agree = told.saturating_add(ALWAYS + OF_MPI);
        self.kept().saturating_add(self.largest).saturating_add(MIN_MEMORY).max(agree)
    }

    /// As much of it as is to be expected when all is read.
    fn of_all(self, read: u64, all: u64) -> HeldMemory {
        let scale = |part: u64| {
            (u128::from(part) * u128::from(all.max(1)) / u128::from(read.clamp(1, all.max(1)))) as u64
        };
        HeldMemory { inputs: scale(self.inputs), strings: scale(self.strings), ..self }
    }
}

/// Part of the memory that a row may take: it is there several times while it is read, rewritten and put into pages.
const LONG_ROW_TIMES: u64 = 8;
/// Part of the memory that is there for each stack id of an input: they are collected, sorted and kept.
const PER_STACK_ID: u64 = 256;

/// What a collective call takes at most, while calls of all ranks are compared.
const PER_COLLECTIVE: u64 = 160;

/// Memory of one rank, bytes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct MemoryBudget(u64);

impl Default for MemoryBudget {
    fn default() -> MemoryBudget {
        MemoryBudget(1 << 30)
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

impl FromStr for MemoryBudget {
    type Err = BudgetError;

    fn from_str(text: &str) -> Result<MemoryBudget, BudgetError> {
        let Size(bytes) = text.parse()?;
        if bytes < MIN_MEMORY { Err(BudgetError::TooSmall) } else { Ok(MemoryBudget(bytes)) }
    }
}

impl MemoryBudget {
    /// Threads that fit, of those that are wanted. Each may need the string table of an input, of so many bytes.
    pub fn threads(self, wanted: usize, largest: u64) -> usize {
        let on_their_way = self.stream_bytes() as u64 + self.spare_bytes() as u64;
        let fit = (self.0 - ALWAYS).saturating_sub(on_their_way) / (PER_THREAD + largest);
        usize::try_from(fit).unwrap_or(usize::MAX).clamp(1, wanted.max(1))
    }

    /// Largest piece of memory that stays with the process when it is freed: each of so many threads has a heap, of
    /// which twice that much may be free.
    pub fn heap_piece(self, threads: usize) -> usize {
        usize::try_from(self.0 / 64)
            .unwrap_or(usize::MAX)
            .div_euclid(threads.max(1))
            .clamp(128 << 10, 8 << 20)
    }

    /// Bytes of pages that are on their way to the disk at once.
    pub fn stream_bytes(self) -> usize {
        usize::try_from(self.0 / 12).unwrap_or(usize::MAX).min(24 << 20)
    }

    /// Bytes of pages that are kept to be used again.
    pub fn spare_bytes(self) -> usize {
        usize::try_from(self.0 / 32).unwrap_or(usize::MAX).min(64 << 20)
    }

    /// What traces may take while they are drawn.
    pub fn drawing(self) -> DrawingMemory {
        DrawingMemory { bytes: self.0 - ALWAYS }
    }

    /// Bytes of SQLite's cache.
    pub fn cache_bytes(self) -> u64 {
        (self.0 / 8).min(64 << 20)
    }

    /// Bytes of pages that are kept between two passes.
    pub fn kept_bytes(self) -> u64 {
        (self.0 - ALWAYS) / 3
    }

    /// Collective calls that are compared. It is one rank's share, so that it does not depend on their number.
    pub fn collectives(self) -> u64 {
        ((self.0 - ALWAYS) / 6 / PER_COLLECTIVE).min(MAX_SAMPLED_CALLS)
    }

    /// Refuses what there is no room for. `read` of `all` bytes of the inputs are known.
    pub fn check(self, held: HeldMemory, (read, all): (u64, u64)) -> Result<(), Failure> {
        if held.needed() <= self.0 {
            return Ok(());
        }
        let needed = held.of_all(read, all).needed();
        // Where it is a guess, rather too much.
        let margin = if read < all { needed / 8 } else { 0 };
        let more = mebibytes(needed.saturating_add(margin));
        Err(Failure::usage(format!(
            "--memory {} is too little for the inputs of one merge rank, of which {} MiB are to be remembered, and \
             {} different strings{}: give it --memory {more}, or use more ranks",
            Size(self.0),
            (held.inputs >> 20) + 1,
            held.strings,
            if read < all { " so far" } else { "" },
        )))
    }

    /// Stack ids of an input that may be numbered anew.
    pub fn stack_ids(self) -> usize {
        usize::try_from(self.0 / PER_STACK_ID).unwrap_or(usize::MAX)
    }

    /// Refuses an input with more of them, given how many would have been enough.
    pub fn check_stacks(self, wanted: Option<usize>) -> Result<(), Failure> {
        let Some(wanted) = wanted else { return Ok(()) };
        let more = mebibytes(wanted as u64 * PER_STACK_ID);
        Err(Failure::usage(format!(
            "--memory {} is too little for an input with {wanted} stack ids that have to be numbered anew: give it \
             --memory {more}, or leave that input out",
            Size(self.0)
        )))
    }

    /// Bytes of a row of a database that is read whole: it is there several times while it is rewritten.
    pub fn row_bytes(self) -> u64 {
        self.0 / LONG_ROW_TIMES
    }

    /// Refuses a row that is longer, given its bytes.
    pub fn check_row(self, longest: Option<u64>) -> Result<(), Failure> {
        let Some(bytes) = longest else { return Ok(()) };
        let more = mebibytes(bytes.saturating_mul(LONG_ROW_TIMES).saturating_add(2 * MIN_MEMORY));
        Err(Failure::usage(format!(
            "--memory {} is too little for an input with a row of {} MiB: give it --memory {more}, or leave that input \
             out",
            Size(self.0),
            bytes.div_ceil(1 << 20)
        )))
    }

    /// What is left to work with.
    pub fn without(self, held: HeldMemory) -> MemoryBudget {
        MemoryBudget(self.0.saturating_sub(held.kept()).max(MIN_MEMORY))
    }
}

/// As `--memory` takes it, rounded up.
fn mebibytes(bytes: u64) -> String {
    format!("{}M", bytes.div_ceil(1 << 20))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_decides_about_threads_and_strings() {
        let small: MemoryBudget = "32M".parse().unwrap();
        assert_eq!(small.threads(64, 0), 1);
        assert_eq!(MemoryBudget::default().threads(100, 0), 39);
        assert_eq!(MemoryBudget::default().threads(2, 0), 2);
        assert_eq!(MemoryBudget::default().collectives(), MAX_SAMPLED_CALLS);
        assert!((10_000..50_000).contains(&small.collectives()));
        assert_eq!("31M".parse::<MemoryBudget>(), Err(BudgetError::TooSmall));
        assert!("much".parse::<MemoryBudget>().is_err());
    }

    #[test]
    fn the_memory_that_a_refusal_asks_for_is_enough() {
        let small: MemoryBudget = "64M".parse().unwrap();
        let held = HeldMemory { inputs: 20 << 20, strings: 1_000_000, asked: 0, largest: 1 << 20 };
        let other = HeldMemory { asked: 900_000, ..held };
        for held in [held, other] {
            let whole = small.check(held, (10, 10)).unwrap_err().to_string();
            let asked: MemoryBudget =
                whole.split("give it --memory ").nth(1).unwrap().split(',').next().unwrap().parse().unwrap();
            assert!(asked.check(held, (10, 10)).is_ok(), "{whole}");
            let half = HeldMemory { inputs: held.inputs / 2, strings: held.strings / 2, ..held };
            let guess = small.check(half, (5, 10)).unwrap_err().to_string();
            let asked: MemoryBudget =
                guess.split("give it --memory ").nth(1).unwrap().split(',').next().unwrap().parse().unwrap();
            assert!(asked.check(held, (10, 10)).is_ok(), "{guess}");
        }
        assert!(small.check(HeldMemory::default(), (10, 10)).is_ok());
        assert!(small.check(HeldMemory { strings: 500_000, ..HeldMemory::default() }, (10, 10)).is_ok());
    }
}
