//! The ranks of a page whose work is beside that of the others.

use crate::blame::first_causes;
use crate::waiting::{AnalysedRun, ranks_of};

/// Maximum number of ranks whose work is drawn beside that of the others.
const MAX_NAMED: usize = 3;

/// The ranks that are shown beside the others.
#[derive(Debug)]
pub(super) struct NamedRanks {
    /// The ranks, at most three.
    pub(super) ranks: Vec<u32>,
    /// Whether the verdict names them. Otherwise the first is the one that delayed the others most.
    pub(super) is_finding: bool,
}

impl NamedRanks {
    pub(super) fn of(found: &AnalysedRun<'_>) -> NamedRanks {
        let is_finding = !found.diagnosis.findings.is_empty();
        let mut ranks: Vec<u32> = Vec::new();
        let of_findings = found.diagnosis.findings.iter();
        for rank in of_findings.flat_map(|finding| ranks_of(found.calls, finding.subject.timelines())) {
            if !ranks.contains(&rank) {
                ranks.push(rank);
            }
        }
        if !is_finding {
            ranks = ranks_of(found.calls, &first_causes(found));
        }
        ranks.truncate(MAX_NAMED);
        NamedRanks { ranks, is_finding }
    }

    /// Returns the first thread of each rank.
    pub(super) fn threads(&self, found: &AnalysedRun<'_>) -> Vec<u32> {
        let timelines = 0..found.calls.job.timelines.len() as u32;
        let thread =
            |rank: &u32| timelines.clone().find(|timeline| ranks_of(found.calls, &[*timeline]) == [*rank]);
        self.ranks.iter().filter_map(thread).collect()
    }
}
