//! The lines of the summary about collectives, and about the ranks that others wait for.

use super::Report;
use super::words::{counted, duration, grouped, noun};
use crate::agree::clocks::Repair;
use crate::collectives::Matched;
use crate::collectives::late::LateRank;

/// A rank that caused less of the waiting than the first one by this factor is not told: it is late by chance.
const FAR_LESS: i64 = 100;

impl Report {
    /// Keeps what the comparison of collectives has shown.
    pub fn note_collectives(&mut self, matched: &Matched, late_ranks: Vec<LateRank>) {
        self.collectives = matched.counts.clone();
        self.collective_faults = matched.faults.clone();
        self.collectives_not_used = matched.unproven.clone();
        self.has_unproven_names = matched.has_unproven_names;
        self.late_ranks = late_ranks;
        if self.late_ranks.is_empty() && self.processes > 1 {
            let why = match (self.collectives.calls, self.collectives.matched) {
                (0, _) if self.collectives.alone == 0 && self.has_former_merge() => {
                    "collectives of former merges are not compared again (the tag rpd.former_merges has what they told)"
                }
                (0, _) if self.collectives.alone == 0 => "no collectives were recorded",
                (_, 0) => "no collectives of different ranks match",
                _ if self.collectives.timed == 0 => {
                    "the collectives that match do not say when ranks waited (calls of RCCL return early: rocprofv3 records their kernels)"
                }
                _ => {
                    "the clocks of the nodes are not aligned, or no collective was one in which all wait for all"
                }
            };
            self.notes.push(format!("{why}: which rank is late cannot be told"));
        }
    }

    /// Label and text of each line about collectives.
    pub(super) fn collective_lines(&self) -> Vec<(&'static str, String)> {
        let mut lines = Vec::new();
        let counts = &self.collectives;
        if counts.calls > 0 {
            let found = counts.matched + counts.incomplete + counts.mismatched + counts.contradicted;
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
                "ranks left a collective within {} of one another (the middle one of {}), and within {} at most",
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
                "profilers' files {what}, and the times of these calls do not show that all nodes were in the same ones: clocks do not go by them, and ranks are compared on their own nodes only. Record with rpd-collect, or give --clock-file FILE"
            );
            lines.push(("warning", text));
            lines.extend(self.collectives_not_used.iter().map(|text| ("not used", text.clone())));
        }
        lines.extend(worth_telling(&self.late_ranks).map(|late| ("late", late.line())));
        lines.extend(self.repaired.iter().map(|repair| ("repaired", repair.line())));
        lines
    }
}

/// Without those that are late by chance.
fn worth_telling(late: &[LateRank]) -> impl Iterator<Item = &LateRank> {
    let most = late.iter().map(|late| late.waited_ns).max().unwrap_or(0);
    late.iter().filter(move |late| late.waited_ns >= most / FAR_LESS)
}

impl LateRank {
    /// One line.
    fn line(&self) -> String {
        let who = match self.rank {
            Some(rank) => format!("rank {rank} on {}", self.host),
            None => format!("pid {} on {}", self.pid, self.host),
        };
        let bar = match self.clock_bar_ns {
            Some(0) => "one clock".to_owned(),
            Some(bar) if self.is_distinct() => format!("clock bar {}", duration(bar)),
            Some(bar) => format!("clock bar {}: cannot be told from the next", duration(bar)),
            None => "how far the clocks are off is not known: cannot be told from the next".to_owned(),
        };
        let share = match 100.0 * self.waited_share {
            little if little < 0.5 => "under 1".to_owned(),
            percent => format!("{percent:.0}"),
        };
        format!(
            "{who}: others waited {} for it in all ({share} % of all such waiting), last at {} of its {}, {} behind the next ({bar})",
            duration(self.waited_ns),
            grouped(self.last),
            counted(self.collectives, "collective"),
            duration(self.behind_ns)
        )
    }
}

impl Repair {
    fn line(&self) -> String {
        let Repair { before, after, out_of_reach, moved_ns } = *self;
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

    fn late(rank: u32, waited_ns: i64, clock_bar_ns: Option<i64>) -> LateRank {
        LateRank {
            rank: Some(rank),
            pid: 7,
            host: "a".to_owned(),
            waited_ns,
            waited_share: waited_ns as f64 / 1e9,
            last: 1,
            collectives: 1,
            behind_ns: 5_000,
            worst_ns: 5_000,
            clock_bar_ns,
        }
    }

    #[test]
    fn who_is_late_by_chance_is_not_told() {
        let all = [late(1, 1_000_000, None), late(2, 10_000, None), late(3, 9_999, None), late(4, 0, None)];
        let told: Vec<_> = worth_telling(&all).map(|late| late.rank).collect();
        assert_eq!(told, [Some(1), Some(2)]);
        assert_eq!(worth_telling(&[]).count(), 0);
    }

    #[test]
    fn a_clock_that_both_read_has_no_bar() {
        let line = |bar| late(1, 1_000_000, bar).line();
        let begin = "rank 1 on a: others waited 1.0 ms for it in all (under 1 % of all such waiting), last at 1 of \
                     its 1 collective, 5.0 us behind the next";
        assert_eq!(line(Some(0)), format!("{begin} (one clock)"));
        assert_eq!(line(Some(2_000)), format!("{begin} (clock bar 2.0 us)"));
        assert_eq!(line(Some(6_000)), format!("{begin} (clock bar 6.0 us: cannot be told from the next)"));
    }

    #[test]
    fn a_repair_says_what_was_and_what_is() {
        let repair = |before, after| Repair { before, after, out_of_reach: 0, moved_ns: 3_000 };
        let line = |before, after| repair(before, after).line();
        assert_eq!(line(0, 0), "no rank left a collective before others came: no time was moved");
        let begin = "times were moved by 3.0 us at most: ranks left a collective before others came";
        assert_eq!(line(1, 0), format!("{begin} 1 time before that, and never now"));
        assert_eq!(line(1_130, 1), format!("{begin} 1,130 times before that, and 1 time now"));
        let far = Repair { out_of_reach: 2, ..repair(7, 3) }.line();
        let end = "3 times now; 2 of those are further apart than the bars";
        assert_eq!(far, format!("{begin} 7 times before that, and {end}"));
    }
}
