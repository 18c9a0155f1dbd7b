//! Processes of a job that are not ranks.

use super::MergeReport;
use crate::agree::findings::ProcessKinds;
use rpd_console::wording::{counted, rank_ranges};

impl MergeReport {
    /// Returns the warning about ranks that do not belong to one MPI job; `None` if there are none.
    pub(super) fn singletons_line(&self) -> Option<String> {
        (self.singleton_ranks.len() > 1).then(|| {
            format!(
                "MPI ran each of ranks {} as a job of its own (MPI_COMM_WORLD of size 1), though one launcher started them: the \
                 program is probably linked against another MPI than the launcher's; `ldd PROGRAM` shows which; use that one's \
                 mpirun, or `srun --mpi=TYPE` with a type of `srun --mpi=list` that it supports. Their calls are not compared \
                 with one another",
                rank_ranges(&self.singleton_ranks)
            )
        })
    }
}

impl ProcessKinds {
    /// Returns the text after the number of processes: ` (1 collector for system metrics, 2 workers)`; empty if all
    /// are ranks.
    pub(super) fn words(&self) -> String {
        let kinds = [
            (self.collectors, format!("{} for system metrics", counted(self.collectors, "collector"))),
            (self.workers, counted(self.workers, "worker")),
            (self.recorded_twice, format!("{} recorded by a profiler as well", self.recorded_twice)),
        ];
        let there = kinds.into_iter().filter(|(count, _)| *count > 0).map(|(_, text)| text);
        match there.collect::<Vec<_>>().as_slice() {
            [] => String::new(),
            some => format!(" ({})", some.join(", ")),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn processes_that_are_no_rank_are_named() {
        let words = |collectors, workers, recorded_twice| {
            ProcessKinds { collectors, workers, recorded_twice }.words()
        };
        assert_eq!(words(0, 0, 0), "");
        assert_eq!(words(1, 0, 0), " (1 collector for system metrics)");
        assert_eq!(
            words(2, 3, 4),
            " (2 collectors for system metrics, 3 workers, 4 recorded by a profiler as well)"
        );
    }
}
