//! Memory budget of a merge rank, and its division.
//!
//! Memory that smaller buffers do not save: 7 to 12 KiB per small input, `PER_STRING` per distinct string, 8 bytes per
//! stack id that is negative or huge. A row of more than 1 MiB takes eight times its length and 16 MiB.

use crate::allocator::keep_freed_memory;
use rpd_calls::AnalysisMemory;
use rpd_collectives::CallSample;
use rpd_console::Failure;
use rpd_shard::size::{Size, SizeError};
use std::str::FromStr;

/// Minimum memory of a merge rank, bytes.
const MIN_BYTES: u64 = 32 << 20;
/// Memory of any merge, bytes: the program, and its knowledge about the inputs.
const BASE_BYTES: u64 = 16 << 20;
/// Memory that a thread uses for the rows of a unit, their pages and stacks, bytes.
const THREAD_BYTES: u64 = 24 << 20;
/// Memory that MPI uses if there are several ranks, bytes.
const MPI_BYTES: u64 = 32 << 20;
/// Maximum memory per string of this rank, bytes: hash, position and id, in a table that grows.
const STRING_BYTES: u64 = 48;
/// The same while the ranks exchange their strings.
const STRING_EXCHANGE_BYTES: u64 = 80;
/// Memory per string that this rank owns in the exchange and numbers for the other ranks, bytes.
const OWNED_STRING_BYTES: u64 = 96;

/// Memory that a rank holds from its survey to the end of the merge.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct HeldMemory {
    /// Bytes that its inputs occupy.
    pub inputs: u64,
    /// Number of distinct strings.
    pub strings: u64,
    /// Number of strings of all ranks for which this rank sends ids; 0 if there is one rank only.
    pub owned_strings: u64,
    /// Bytes of the largest string table of an input, with its lookup table.
    pub largest: u64,
}

impl HeldMemory {
    /// Returns the bytes that are held until the end of the merge.
    fn kept(&self) -> u64 {
        let mpi = if self.owned_strings > 0 { MPI_BYTES } else { 0 };
        self.inputs.saturating_add(self.strings.saturating_mul(STRING_BYTES)).saturating_add(mpi)
    }

    /// Returns the memory that suffices for a merge, bytes.
    fn needed(&self) -> u64 {
        let exchange = self.strings.saturating_mul(STRING_EXCHANGE_BYTES);
        let exchange = exchange.saturating_add(self.owned_strings.saturating_mul(OWNED_STRING_BYTES));
        // A single rank exchanges nothing.
        let limit = if self.owned_strings > 0 { self.inputs.saturating_add(exchange) } else { 0 };
        let agree = limit.saturating_add(BASE_BYTES + MPI_BYTES);
        self.kept().saturating_add(self.largest).saturating_add(MIN_BYTES).max(agree)
    }

    /// Extrapolates to all inputs: `read` of `all` bytes were read so far.
    fn of_all(self, read: u64, all: u64) -> HeldMemory {
        let scale = |part: u64| {
            (u128::from(part) * u128::from(all.max(1)) / u128::from(read.clamp(1, all.max(1)))) as u64
        };
        HeldMemory { inputs: scale(self.inputs), strings: scale(self.strings), ..self }
    }
}

/// Divisor of the memory for the longest row. Several copies of a row exist while it is read, rewritten and put into
/// pages.
const LONG_ROW_DIVISOR: u64 = 8;
/// Divisor of the memory for stack ids of an input, bytes per id. The ids are collected, sorted and kept.
const STACK_ID_DIVISOR: u64 = 256;

/// Maximum memory per collective call while calls of all ranks are matched, bytes.
const COLLECTIVE_BYTES: u64 = 160;

/// Maximum memory per call to MPI while the calls of a run are analysed, bytes.
const ANALYSED_CALL_BYTES: u64 = 256;
/// The same per region of any kind, bytes.
const ANALYSED_REGION_BYTES: u64 = 96;

/// Memory of one rank, bytes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct MemoryBudget(u64);

impl Default for MemoryBudget {
    fn default() -> MemoryBudget {
        MemoryBudget(1 << 30)
    }
}

/// A text that is not a valid budget.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum BudgetError {
    /// Not a size.
    #[error(transparent)]
    Size(#[from] SizeError),
    /// Less than the minimum.
    #[error("a merge needs 32M at least")]
    TooSmall,
}

impl FromStr for MemoryBudget {
    type Err = BudgetError;

    fn from_str(text: &str) -> Result<MemoryBudget, BudgetError> {
        let Size(bytes) = text.parse()?;
        if bytes < MIN_BYTES { Err(BudgetError::TooSmall) } else { Ok(MemoryBudget(bytes)) }
    }
}

impl MemoryBudget {
    /// Returns the number of threads for which memory suffices, at most `wanted`. Each thread may need the string
    /// table of an input, of `largest` bytes.
    pub fn threads(self, wanted: usize, largest: u64) -> usize {
        let in_flight = self.stream_bytes() as u64 + self.spare_bytes() as u64;
        let fit = (self.0 - BASE_BYTES).saturating_sub(in_flight) / (THREAD_BYTES + largest);
        usize::try_from(fit).unwrap_or(usize::MAX).clamp(1, wanted.max(1))
    }

    /// Returns the largest piece of memory that remains in the process when it is freed. Each of the threads has a
    /// heap with up to twice that much free memory.
    pub fn heap_piece(self, threads: usize) -> usize {
        usize::try_from(self.0 / 64)
            .unwrap_or(usize::MAX)
            .div_euclid(threads.max(1))
            .clamp(128 << 10, 8 << 20)
    }

    /// Returns the maximum bytes of pages that wait to be written to disk.
    pub fn stream_bytes(self) -> usize {
        usize::try_from(self.0 / 12).unwrap_or(usize::MAX).min(24 << 20)
    }

    /// Returns the maximum bytes of page memory that is kept for reuse.
    pub fn spare_bytes(self) -> usize {
        usize::try_from(self.0 / 32).unwrap_or(usize::MAX).min(64 << 20)
    }

    /// Returns the memory for drawing traces, bytes.
    pub fn drawing(self) -> u64 {
        self.0 - BASE_BYTES
    }

    /// Returns the bytes of SQLite's cache.
    pub fn cache_bytes(self) -> u64 {
        (self.0 / 8).min(64 << 20)
    }

    /// Returns the maximum bytes of pages that are kept between two passes.
    pub fn kept_bytes(self) -> u64 {
        (self.0 - BASE_BYTES) / 3
    }

    /// Returns the maximum number of collective calls that are matched. It is the share of one rank, so that it does
    /// not depend on the number of ranks.
    pub fn collectives(self) -> u64 {
        ((self.0 - BASE_BYTES) / 6 / COLLECTIVE_BYTES).min(CallSample::MAX_CALLS)
    }

    /// Returns the memory that is necessary to analyse the calls of a run, if there is less.
    pub fn lacks_for_analysis(self, calls: u64, regions: u64) -> Option<u64> {
        let calls = calls.saturating_mul(ANALYSED_CALL_BYTES);
        let needed = regions.saturating_mul(ANALYSED_REGION_BYTES).saturating_add(calls);
        let needed = needed.saturating_add(BASE_BYTES);
        (needed > self.0).then_some(needed)
    }

    /// Returns the memory for the analysis of calls, beside what is held of the inputs.
    pub fn for_analysis(self, held: HeldMemory) -> AnalysisMemory {
        AnalysisMemory { limit: self.0, other: held.kept().saturating_add(BASE_BYTES) }
    }

    /// Returns the number of units of rows, at most `wanted`, of which the calls are found at once. The largest has this
    /// number of regions.
    pub fn units_at_once(self, regions: u64, wanted: usize) -> usize {
        let largest = regions.saturating_mul(ANALYSED_CALL_BYTES + ANALYSED_REGION_BYTES).max(1);
        usize::try_from((self.0 - BASE_BYTES) / largest).unwrap_or(usize::MAX).min(wanted)
    }

    /// Fails if the memory does not suffice. `read` of `all` bytes of the inputs were read so far.
    pub fn check(self, held: HeldMemory, (read, all): (u64, u64)) -> Result<(), Failure> {
        if held.needed() <= self.0 {
            return Ok(());
        }
        let needed = held.of_all(read, all).needed();
        // An extrapolation gets a margin.
        let margin = if read < all { needed / 8 } else { 0 };
        let more = mebibytes(needed.saturating_add(margin));
        // More ranks share what each holds of the inputs, but each needs buffers.
        let data = held.inputs.saturating_add(held.strings.saturating_mul(STRING_BYTES));
        let buffers = held.needed().saturating_sub(data);
        let ranks = if data < buffers { "" } else { ", or use more ranks" };
        Err(Failure::usage(format!(
            "--memory {} is too little: one merge rank must hold {} MiB of its inputs and {} distinct strings{}, and {} MiB \
             of buffers; give it --memory {more}{ranks}",
            Size(self.0),
            (held.inputs >> 20) + 1,
            held.strings,
            if read < all { " so far" } else { "" },
            (buffers >> 20) + 1,
        )))
    }

    /// Returns the maximum number of stack ids of an input that can be renumbered.
    pub fn stack_ids(self) -> usize {
        usize::try_from(self.0 / STACK_ID_DIVISOR).unwrap_or(usize::MAX)
    }

    /// Fails if an input has more stack ids; `wanted` is the number that would have been sufficient.
    pub fn check_stacks(self, wanted: Option<usize>) -> Result<(), Failure> {
        let Some(wanted) = wanted else { return Ok(()) };
        let more = mebibytes(wanted as u64 * STACK_ID_DIVISOR);
        Err(Failure::usage(format!(
            "--memory {} is too little for an input with {wanted} stack ids that have to be renumbered; give it \
             --memory {more}, or leave that input out",
            Size(self.0)
        )))
    }

    /// Returns the maximum bytes of a database row that is read into memory. Several copies of it exist while it is
    /// rewritten.
    pub fn row_bytes(self) -> u64 {
        self.0 / LONG_ROW_DIVISOR
    }

    /// Fails if a row is longer; `longest` are its bytes.
    pub fn check_row(self, longest: Option<u64>) -> Result<(), Failure> {
        let Some(bytes) = longest else { return Ok(()) };
        let more = mebibytes(bytes.saturating_mul(LONG_ROW_DIVISOR).saturating_add(2 * MIN_BYTES));
        Err(Failure::usage(format!(
            "--memory {} is too little for an input with a row of {} MiB; give it --memory {more}, or leave that input \
             out",
            Size(self.0),
            bytes.div_ceil(1 << 20)
        )))
    }

    /// Returns the memory that is left for work.
    pub fn without(self, held: HeldMemory) -> MemoryBudget {
        MemoryBudget(self.0.saturating_sub(held.kept()).max(MIN_BYTES))
    }
}

/// Starts the threads of a program with a memory limit: as many as `wanted`, by default as there are cores, or fewer if
/// memory allows no more.
///
/// # Errors
/// If they cannot be started.
pub fn start_threads(memory: MemoryBudget, wanted: Option<u16>) -> Result<(), Failure> {
    let cores = || std::thread::available_parallelism().map_or(1, usize::from);
    let threads = memory.threads(wanted.map_or_else(cores, usize::from), 0);
    keep_freed_memory(memory.heap_piece(threads));
    rayon::ThreadPoolBuilder::new()
        .num_threads(threads)
        .build_global()
        .map_err(|error| Failure::internal(format!("cannot start {threads} threads: {error}")))
}

/// Formats bytes as a value for `--memory`, rounded up.
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
        assert_eq!(MemoryBudget::default().collectives(), CallSample::MAX_CALLS);
        assert!((10_000..50_000).contains(&small.collectives()));
        assert_eq!("31M".parse::<MemoryBudget>(), Err(BudgetError::TooSmall));
        assert!("much".parse::<MemoryBudget>().is_err());
    }

    #[test]
    fn the_memory_that_a_refusal_asks_for_is_enough() {
        let small: MemoryBudget = "64M".parse().unwrap();
        let held = HeldMemory { inputs: 20 << 20, strings: 1_000_000, owned_strings: 0, largest: 1 << 20 };
        let other = HeldMemory { owned_strings: 900_000, ..held };
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
