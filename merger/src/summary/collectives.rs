//! Summary lines about collectives.

use super::MergeReport;
use crate::agree::job_clocks::CausalityRepair;
use rpd_collectives::{LateRank, LatenessSummary, MatchedCollectives};
use rpd_console::wording::{counted, duration, grouped, noun};

impl MergeReport {
    /// Stores the results of matching collectives.
    pub fn note_collectives(
        &mut self,
        matched: &MatchedCollectives,
        (late_ranks, lateness): (Vec<LateRank>, Option<LatenessSummary>),
    ) {
        self.collectives = matched.counts.clone();
        self.collective_faults = matched.faults.clone();
        self.collectives_not_used = matched.unproven.clone();
        self.has_unproven_names = matched.has_unproven_names;
        self.singleton_ranks = matched.members.singleton_ranks().into_iter().collect();
        self.note_lateness(late_ranks, lateness);
    }

    /// Returns label and text of each line about collectives.
    pub(super) fn collective_lines(&self) -> Vec<(&'static str, String)> {
        let mut lines = Vec::new();
        let counts = &self.collectives;
        let found = counts.matched + counts.incomplete + counts.mismatched + counts.contradicted;
        if found > 0 || counts.different > 0 {
            let mut text = format!("{} of {}", grouped(counts.matched), counted(found, "collective"));
            if counts.one_in > 1 {
                text += &format!(" (a sample: one in {})", grouped(counts.one_in));
            }
            let others = [
                (counts.incomplete, "not recorded of all ranks"),
                (counts.mismatched, "not the same in all ranks"),
                (counts.contradicted, "left before others entered"),
            ];
            let others = others.iter().filter(|(n, _)| *n > 0);
            text.extend(others.map(|(n, what)| format!("; {} {what}", grouped(*n))));
            if counts.different > 0 {
                let calls = counted(counts.different, "call");
                let are = if counts.different == 1 { "is" } else { "are" };
                text += &format!(
                    "; {calls} without {} that {are} not the same in all processes",
                    noun(counts.different, "number")
                );
            }
            lines.push(("matched", text));
        }
        if let Some(spread) = counts.spread {
            let text = format!(
                "ranks left a collective within {} of one another (median of {}), and within {} at most",
                duration(spread.median_ns),
                grouped(spread.collectives),
                duration(spread.most_ns)
            );
            lines.push(("spread", text));
        }
        lines.extend(self.collective_faults.iter().map(|fault| ("mismatch", fault.clone())));
        if !self.collectives_not_used.is_empty() {
            let what =
                if self.has_unproven_names { "do not number these calls" } else { "name no communicators" };
            let text = format!(
                "profilers' files {what}, and the times of these calls do not show that all nodes were in the same ones: the merge does not align clocks by them, and compares ranks only within a node. Record with rpd-collect, or give --clock-file FILE"
            );
            lines.push(("warning", text));
            lines.extend(self.collectives_not_used.iter().map(|text| ("not used", text.clone())));
        }
        lines.extend(self.repaired.iter().map(|repair| ("repaired", repair.line())));
        lines
    }
}

impl CausalityRepair {
    fn line(&self) -> String {
        let CausalityRepair { before, after, out_of_reach, moved_ns } = *self;
        if before == 0 {
            return "no rank left a collective before others came: no time was moved".to_owned();
        }
        let far = match out_of_reach {
            0 => String::new(),
            _ => format!("; {} of those are further apart than the bars", grouped(out_of_reach)),
        };
        format!(
            "times were moved by {} at most: ranks left a collective before others came {} before that, and {} now{far}",
            duration(moved_ns),
            counted(before, "time"),
            if after == 0 { "never".to_owned() } else { counted(after, "time") }
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_repair_says_what_was_and_what_is() {
        let repair = |before, after| CausalityRepair { before, after, out_of_reach: 0, moved_ns: 3_000 };
        let line = |before, after| repair(before, after).line();
        assert_eq!(line(0, 0), "no rank left a collective before others came: no time was moved");
        let begin = "times were moved by 3.0 us at most: ranks left a collective before others came";
        assert_eq!(line(1, 0), format!("{begin} 1 time before that, and never now"));
        assert_eq!(line(1_130, 1), format!("{begin} 1,130 times before that, and 1 time now"));
        let far = CausalityRepair { out_of_reach: 2, ..repair(7, 3) }.line();
        let end = "3 times now; 2 of those are further apart than the bars";
        assert_eq!(far, format!("{begin} 7 times before that, and {end}"));
    }
}
