//! What the processes of a job are that are no rank.

use super::words::counted;
use crate::agree::findings::ProcessKinds;

impl ProcessKinds {
    /// Of the number of processes: ` (1 collector for system metrics, 2 workers)`; empty if all are ranks.
    pub(super) fn words(&self) -> String {
        let kinds = [
            (self.collectors, format!("{} for system metrics", counted(self.collectors, "collector"))),
            (self.workers, counted(self.workers, "worker")),
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
        let words = |collectors, workers| ProcessKinds { collectors, workers }.words();
        assert_eq!(words(0, 0), "");
        assert_eq!(words(1, 0), " (1 collector for system metrics)");
        assert_eq!(words(2, 3), " (2 collectors for system metrics, 3 workers)");
    }
}
