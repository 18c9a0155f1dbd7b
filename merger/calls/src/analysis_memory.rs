//! The memory that the calls of a run and their analysis take.

use crate::run_calls::RunCalls;
use crate::unit_calls::UnitCalls;
use crate::work_amounts::WorkAmounts;
use rpd_comm::{Comm, agree_on_result, all_gather_counts};
use rpd_console::Failure;
use rpd_run::RunDatabase;
use rpd_shard::size::Size;
use std::sync::atomic::{AtomicU64, Ordering};

/// Memory for the analysis of calls.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct AnalysisMemory {
    /// Memory of the merge rank, bytes: `--memory`.
    pub limit: u64,
    /// Memory that the rank uses for other things, bytes.
    pub other: u64,
}

impl AnalysisMemory {
    fn check(self, needed: u64) -> Result<(), Failure> {
        let needed_in_all = needed.saturating_add(self.other);
        if needed_in_all <= self.limit {
            return Ok(());
        }
        // In steps of about an eighth, as it is an estimate.
        let step = (needed_in_all / 8).max(1 << 20).next_power_of_two();
        let sufficient = Size(needed_in_all.div_ceil(step).saturating_mul(step));
        let limit = Size(self.limit);
        let sufficient = sufficient.to_string().replace(' ', "");
        Err(Failure::usage(format!(
            "--memory {limit} is too little to analyse the calls to MPI and the GPU work of this run; give it about \
             --memory {sufficient}, or select a part of the run with --window"
        )))
    }
}

/// Adds up the memory that the analysis of the calls read so far needs.
#[derive(Debug)]
pub(crate) struct NeededMemory {
    memory: Option<AnalysisMemory>,
    /// Units of the run.
    all_units: u64,
    /// Units that this merge rank has read, and bytes that the analysis of their calls needs.
    read_units: AtomicU64,
    bytes: AtomicU64,
}

impl NeededMemory {
    pub(crate) fn new(run: &RunDatabase, memory: Option<AnalysisMemory>) -> NeededMemory {
        let all_units = run.units.len() as u64;
        NeededMemory { memory, all_units, read_units: AtomicU64::new(0), bytes: AtomicU64::new(0) }
    }

    /// Adds the calls of a unit. Fails if those so far need more memory than there is.
    pub(crate) fn add(&self, calls: &UnitCalls) -> Result<(), Failure> {
        let add = |sum: &AtomicU64, more: u64| sum.fetch_add(more, Ordering::Relaxed).saturating_add(more);
        let units = add(&self.read_units, 1);
        self.check(add(&self.bytes, calls.analysis_bytes()), units)
    }

    /// Fails if rank 0 lacks memory for the calls of all merge ranks, which then agree on it.
    pub(crate) fn check_all(&self, comm: &(impl Comm + ?Sized)) -> Result<(), Failure> {
        let counts = [&self.bytes, &self.read_units].map(|count| count.load(Ordering::Relaxed));
        let all = all_gather_counts(comm, &counts)?;
        let sum = |place: usize| all.iter().map(|counts| counts[place]).fold(0, u64::saturating_add);
        let checked = if comm.rank() == 0 { self.check(sum(0), sum(1)) } else { Ok(()) };
        agree_on_result(comm, checked)
    }

    /// Fails if units need more bytes than there are, and estimates what all units need.
    fn check(&self, bytes: u64, units: u64) -> Result<(), Failure> {
        let Some(memory) = self.memory else { return Ok(()) };
        memory.check(bytes).or_else(|_| {
            let of_all = u128::from(bytes) * u128::from(self.all_units.max(units)) / u128::from(units.max(1));
            memory.check(u64::try_from(of_all).unwrap_or(u64::MAX))
        })
    }
}

impl RunCalls {
    /// Fails if the memory does not suffice for the analysis of the calls and for `listed` bytes more.
    ///
    /// # Errors
    /// [`Failure::usage`], with the memory that about suffices.
    pub fn check_memory(&self, memory: AnalysisMemory, listed: u64) -> Result<(), Failure> {
        let amounts: usize = self.amounts.iter().map(WorkAmounts::bytes).sum();
        let kept = self.python.bytes().saturating_add(amounts as u64);
        memory.check(self.job.analysis_bytes().saturating_add(kept).saturating_add(listed))
    }
}
