//! Summary lines about the rank that the others wait for, about the order of entering collectives, and about start-up.

use super::MergeReport;
use crate::agree::findings::JobFindings;
use rpd_collectives::{LateRank, LatenessSummary, LatenessVerdict, MissingCause, StartUp};
use rpd_console::wording::{counted, duration, grouped, rank_ranges};
use rpd_shard::model::rocpd;
use rpd_verdict::RunVerdict;

/// Maximum number of ranks that a line names if no single rank is the cause.
const MAX_NAMED: usize = 3;
/// Minimum wait time in start-up that is reported, ns.
const MIN_START_UP_WAIT_NS: i64 = 10_000_000;
/// Minimum share of the wait time passed on by collectives that is reported.
const MIN_PASSED_ON: f64 = 0.1;
/// Minimum share of the run spent in calls that are not compared that is reported.
const MIN_NOT_COMPARED: f64 = 0.01;

impl MergeReport {
    /// Stores the late ranks, and the verdict or the reason why there is none.
    pub(super) fn note_lateness(&mut self, late_ranks: Vec<LateRank>, lateness: Option<LatenessSummary>) {
        self.late_ranks = late_ranks;
        self.lateness = lateness.filter(|_| self.singleton_ranks.len() < 2).or_else(|| {
            let reason = self.nothing_compared()?.to_owned();
            Some(lateness_without_times(LatenessVerdict::NoCollectives { reason }))
        });
    }

    /// Stores the verdict on a run without calls to MPI and kernels, for which nothing is analysed.
    pub fn note_no_calls(&mut self, found: &JobFindings) {
        if self.verdict.is_some() || !self.has_several_processes() {
            return;
        }
        // Kernels of RCCL may show it.
        let has_kernels = found.rows_read.get(&rocpd::KERNEL_DISPATCH).is_some_and(|rows| *rows > 0);
        if !has_kernels || !self.missing_ranks.is_empty() {
            self.verdict = Some(RunVerdict::without_calls(&self.missing_ranks));
        }
    }

    /// Notes that no rank is named, if it is known without reading the calls again that they do not show one.
    pub fn note_unusable_calls(&mut self, found: &JobFindings, has_previous_merges: bool) {
        let is_whole = self.missing_ranks.is_empty() && self.unfinished.is_empty();
        if self.verdict.is_some() || !is_whole || !self.has_several_processes() {
            return;
        }
        if found.in_threads > 0 {
            self.verdict = Some(RunVerdict::in_threads(found.in_threads));
        } else if found.mpi_calls > 0 && found.collected_calls == 0 && !has_previous_merges {
            self.verdict = Some(RunVerdict::without_communicators());
        }
    }

    /// Returns whether a process may wait for another one, not counting helper processes.
    pub fn has_several_processes(&self) -> bool {
        let kinds = &self.process_kinds;
        let beside = [kinds.collectors, kinds.workers, kinds.recorded_twice];
        beside.iter().fold(self.processes, |count, beside| count.saturating_sub(*beside)) > 1
    }

    /// Returns why no collective shows wait times; `None` for a single process.
    fn nothing_compared(&self) -> Option<&'static str> {
        let counts = &self.collectives;
        self.has_several_processes().then_some(match (counts.calls, counts.matched) {
            _ if self.singleton_ranks.len() > 1 => "MPI ran each rank as a job of its own",
            (0, _) if counts.alone == 0 && self.has_previous_merge() => {
                "collectives of previous merges are not compared again (the tag rpd.former_merges has their results)"
            }
            (0, _) if counts.alone == 0 => "no collectives were recorded",
            (_, 0) => "no collectives of different ranks match",
            _ if counts.unproven > 0 => {
                "the times of the collectives do not show that all nodes were in the same ones"
            }
            _ => "no collective that matches is one of several ranks",
        })
    }

    /// Returns label and text of each line about waiting.
    pub(super) fn lateness_lines(&self) -> Vec<(&'static str, String)> {
        let mut lines = Vec::new();
        lines.extend(self.verdict.as_ref().map(|verdict| ("late", verdict.headline().to_owned())));
        lines.extend(self.verdict.iter().flat_map(RunVerdict::crowded_cpu_lines));
        let Some(lateness) = &self.lateness else { return lines };
        lines.push(("waiting", lateness_line(lateness, &self.late_ranks)));
        lines.extend(lateness.start_up.as_ref().and_then(start_up_line).map(|line| ("start-up", line)));
        lines
    }
}

fn lateness_without_times(verdict: LatenessVerdict) -> LatenessSummary {
    LatenessSummary {
        verdict,
        waited_ns: 0,
        waited_share_of_run: 0.0,
        run_ns: 0,
        held_up_ns: 0,
        passed_on_ns: 0,
        not_compared_ns: 0,
        not_compared_calls: Vec::new(),
        not_compared_share_of_run: 0.0,
        start_up: None,
    }
}

/// Returns a text about the wait time that collectives passed on to others; empty if it is short.
fn passed_on(lateness: &LatenessSummary) -> String {
    let part = lateness.passed_on_ns as f64 / lateness.waited_ns.max(1) as f64;
    if part < MIN_PASSED_ON {
        return String::new();
    }
    let waited = duration(lateness.passed_on_ns);
    format!("; {waited} of all waiting, {}, follows from the waiting in other collectives", percent(part))
}

/// Returns in one line which rank entered collectives last. `late` are the late ranks, the one with the longest wait of others first.
fn lateness_line(lateness: &LatenessSummary, late: &[LateRank]) -> String {
    let never_entered = matches!(lateness.verdict, LatenessVerdict::NeverEntered { .. });
    let mut waited = format!(
        "ranks waited {} in {} in all, {} of the run",
        duration(lateness.waited_ns),
        if never_entered { "other collectives" } else { "collectives" },
        percent(lateness.waited_share_of_run)
    );
    let not_compared = format!(
        "ranks spent {}, {} of the run, in calls that are not compared ({})",
        duration(lateness.not_compared_ns),
        percent(lateness.not_compared_share_of_run),
        lateness.not_compared_calls.join(", ")
    );
    let is_named = never_entered || lateness.verdict == LatenessVerdict::CallsNotCompared;
    if lateness.not_compared_share_of_run >= MIN_NOT_COMPARED && !is_named {
        waited = format!("{waited}; {not_compared}");
    }
    let share_of_waiting = |ns: i64| percent(ns as f64 / lateness.waited_ns.max(1) as f64);
    let cannot_tell = |reason: String| format!("cannot tell which rank entered last: {reason} ({waited})");
    match &lateness.verdict {
        LatenessVerdict::Nobody => waited,
        LatenessVerdict::Rank { .. } => match late.first() {
            Some(first) => format!("{}{}; {waited}", late_rank_line(first), passed_on(lateness)),
            None => waited,
        },
        LatenessVerdict::Node { host, ranks, node_waited_ns } => {
            let of = if ranks.is_empty() { String::new() } else { format!(" ({})", listed(ranks)) };
            format!(
                "no single rank, but node {host}{of}: others waited {} for it, {} of all waiting; {waited}",
                duration(*node_waited_ns),
                share_of_waiting(*node_waited_ns)
            )
        }
        LatenessVerdict::NeverEntered { absence } => format!(
            "{} never entered {} (collective {} on {}), in which the others waited up to {} each, {} in all; {waited}",
            absence.name,
            absence.call,
            absence.number,
            absence.communicator,
            duration(absence.each_ns),
            duration(absence.all_ns)
        ),
        LatenessVerdict::NoSingleRank { late_together, shared_ns } if late_together.len() > 1 => format!(
            "no single rank: {} were late together: others waited {} for them, {} of all waiting; {waited}",
            listed(late_together),
            duration(*shared_ns),
            share_of_waiting(*shared_ns)
        ),
        LatenessVerdict::NoSingleRank { .. } => {
            let named = late.iter().take(MAX_NAMED);
            let named = named.map(|late| format!("{} {}", late_rank_name(late), percent(late.waited_share)));
            format!("no single rank: {}; {waited}", named.collect::<Vec<_>>().join(", "))
        }
        LatenessVerdict::StartUp => {
            let ns = lateness.start_up.as_ref().map_or(0, |start_up| start_up.ns);
            let part = percent(ns as f64 / lateness.run_ns.max(1) as f64);
            cannot_tell(format!("start-up takes {part} of the run"))
        }
        LatenessVerdict::CallsNotCompared => format!("cannot tell which rank entered last: {not_compared}; {waited}"),
        LatenessVerdict::HeldUpByMessages => cannot_tell(
            "messages held up the ranks that entered collectives late, cause unknown".to_owned(),
        ),
        LatenessVerdict::HeldUpByCollectives => cannot_tell(
            "collectives on other communicators held up the ranks that entered late, which is not traced back"
                .to_owned(),
        ),
        LatenessVerdict::ClockErrors { bound_ns } => cannot_tell(match bound_ns {
            Some(bound) => {
                format!(
                    "ranks entered closer together than the clock error, {} (median)",
                    duration(*bound)
                )
            }
            None => "how far the clocks of the nodes are off is not known".to_owned(),
        }),
        LatenessVerdict::CallsMissing { cause } => cannot_tell(
            match cause {
                MissingCause::Lost => "calls in which ranks may have waited were lost",
                MissingCause::Messages => {
                    "ranks may have waited in messages, which are not compared in profilers' files"
                }
                MissingCause::Unordered => {
                    "what each rank spent outside of its calls does not follow from them"
                }
                MissingCause::Threads => {
                    "ranks call MPI in several threads, so what each spent outside of MPI is not known"
                }
                MissingCause::Polls => {
                    "ranks polled for messages (MPI_Test, MPI_Iprobe, ...), and worked or waited in between"
                }
            }
            .to_owned(),
        ),
        LatenessVerdict::Mixed => {
            cannot_tell("several causes each explain less than half".to_owned())
        }
        LatenessVerdict::NoCollectives { reason } => format!("cannot tell which rank entered last: {reason}"),
    }
}

/// Returns the line about start-up; `None` if no rank waited long.
fn start_up_line(start_up: &StartUp) -> Option<String> {
    let places = [(start_up.init_waited_ns, "MPI_Init"), (start_up.waited_ns, "collectives")];
    let waited = places.iter().filter(|(ns, _)| *ns >= MIN_START_UP_WAIT_NS);
    let waited: Vec<String> = waited.map(|(ns, place)| format!("{} in {place}", duration(*ns))).collect();
    if waited.is_empty() {
        return None;
    }
    let (took, waited) = (duration(start_up.ns), waited.join(" and "));
    Some(match start_up.last_rank {
        Some(rank) => format!(
            "{took} to the end of the first collective of all ranks; ranks waited {waited} in all until then; rank {rank} \
             entered that collective last, {} after the first one; its cause is not analysed",
            duration(start_up.apart_ns)
        ),
        None => format!("{took} to the end of MPI_Init; ranks waited {waited} in all until then"),
    })
}

fn late_rank_name(late: &LateRank) -> String {
    match late.rank {
        Some(rank) => format!("rank {rank}"),
        None => format!("pid {} on {}", late.pid, late.host),
    }
}

/// Describes a late rank in one line.
fn late_rank_line(late: &LateRank) -> String {
    let on = if late.rank.is_some() { format!(" on {}", late.host) } else { String::new() };
    let clocks = match late.clock_bar_ns {
        Some(0) => "same clock".to_owned(),
        Some(bar) => format!("clock error bound {}", duration(bar)),
        None => "clock error not known".to_owned(),
    };
    format!(
        "{}{on} entered last: others waited {} for it, {} of all waiting; before {} of {} it spent {} more outside of MPI than any other rank ({clocks})",
        late_rank_name(late),
        duration(late.waited_ns),
        percent(late.waited_share),
        grouped(late.last),
        counted(late.collectives, "collective"),
        match late.last {
            0 | 1 => duration(late.worst_ns),
            _ => format!("{} (median; {} at most)", duration(late.behind_ns), duration(late.worst_ns)),
        }
    )
}

/// Formats ranks: `rank 1`, `ranks 1 and 2`, `ranks 1-3`.
fn listed(ranks: &[u32]) -> String {
    match ranks {
        [one] => format!("rank {one}"),
        [one, other] => format!("ranks {one} and {other}"),
        some => format!("ranks {}", rank_ranges(some)),
    }
}

/// Formats a share from 0 to 1 as a percentage.
fn percent(part: f64) -> String {
    match 100.0 * part {
        0.0 => "0 %".to_owned(),
        little if little < 0.1 => "under 0.1 %".to_owned(),
        some if some < 9.95 => format!("{some:.1} %"),
        most => format!("{most:.0} %"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rpd_collectives::RankAbsence;

    fn late(rank: u32, share: f64, clock_bar_ns: Option<i64>) -> LateRank {
        LateRank {
            rank: Some(rank),
            pid: 7,
            host: "a".to_owned(),
            waited_ns: 1_000_000_000,
            waited_share: share,
            last: 40,
            collectives: 41,
            behind_ns: 3_100_000,
            worst_ns: 5_000_000,
            clock_bar_ns,
        }
    }

    fn line(verdict: LatenessVerdict, late: &[LateRank]) -> String {
        let lateness = LatenessSummary {
            waited_ns: 2_000_000_000,
            waited_share_of_run: 0.042,
            run_ns: 10_000_000_000,
            ..lateness_without_times(verdict)
        };
        lateness_line(&lateness, late)
    }

    const WAITED: &str = "ranks waited 2.0 s in collectives in all, 4.2 % of the run";

    #[test]
    fn each_verdict_has_its_words() {
        let rank = line(LatenessVerdict::Rank { rank: Some(3) }, &[late(3, 0.92, Some(0))]);
        assert_eq!(
            rank,
            format!(
                "rank 3 on a entered last: others waited 1.0 s for it, 92 % of all waiting; before 40 of 41 collectives it spent 3.1 ms \
                 (median; 5.0 ms at most) more outside of MPI than any other rank (same clock); {WAITED}"
            )
        );
        assert_eq!(line(LatenessVerdict::Nobody, &[]), WAITED);
        let once = LateRank { last: 1, ..late(3, 0.92, Some(0)) };
        let rank = line(LatenessVerdict::Rank { rank: Some(3) }, &[once]);
        assert!(
            rank.contains("before 1 of 41 collectives it spent 5.0 ms more outside of MPI than any other"),
            "{rank}"
        );
        let no_single = |late_together: &[u32]| LatenessVerdict::NoSingleRank {
            late_together: late_together.to_vec(),
            shared_ns: 1_800_000_000,
        };
        let late_together = line(no_single(&[1, 2]), &[]);
        assert_eq!(
            late_together,
            format!(
                "no single rank: ranks 1 and 2 were late together: others waited 1.8 s for them, 90 % of all waiting; {WAITED}"
            )
        );
        let turns = line(no_single(&[]), &[late(3, 0.3, None), late(1, 0.05, None)]);
        assert_eq!(turns, format!("no single rank: rank 3 30 %, rank 1 5.0 %; {WAITED}"));
        let node = LatenessVerdict::Node {
            host: "b".to_owned(),
            ranks: vec![4, 5, 6],
            node_waited_ns: 1_500_000_000,
        };
        assert_eq!(
            line(node, &[]),
            format!(
                "no single rank, but node b (ranks 4-6): others waited 1.5 s for it, 75 % of all waiting; {WAITED}"
            )
        );
    }

    #[test]
    fn what_cannot_be_told_has_its_reason() {
        let begin = "cannot tell which rank entered last: ";
        for (verdict, reason) in [
            (
                LatenessVerdict::HeldUpByMessages,
                "messages held up the ranks that entered collectives late, cause unknown",
            ),
            (
                LatenessVerdict::ClockErrors { bound_ns: Some(20_000) },
                "ranks entered closer together than the clock error, 20 us (median)",
            ),
            (
                LatenessVerdict::ClockErrors { bound_ns: None },
                "how far the clocks of the nodes are off is not known",
            ),
            (
                LatenessVerdict::CallsMissing { cause: MissingCause::Lost },
                "calls in which ranks may have waited were lost",
            ),
            (
                LatenessVerdict::HeldUpByCollectives,
                "collectives on other communicators held up the ranks that entered late, which is not traced back",
            ),
            (
                LatenessVerdict::CallsMissing { cause: MissingCause::Threads },
                "ranks call MPI in several threads, so what each spent outside of MPI is not known",
            ),
            (
                LatenessVerdict::CallsMissing { cause: MissingCause::Messages },
                "ranks may have waited in messages, which are not compared in profilers' files",
            ),
        ] {
            assert_eq!(line(verdict, &[]), format!("{begin}{reason} ({WAITED})"));
        }
        let none = LatenessVerdict::NoCollectives { reason: "no collectives were recorded".to_owned() };
        assert_eq!(line(none, &[]), "cannot tell which rank entered last: no collectives were recorded");
    }

    #[test]
    fn time_in_calls_that_are_not_compared_is_named() {
        let of = |verdict| {
            let lateness = LatenessSummary {
                waited_ns: 2_000_000_000,
                waited_share_of_run: 0.042,
                run_ns: 10_000_000_000,
                not_compared_ns: 12_000_000_000,
                not_compared_calls: vec!["MPI_Bcast".to_owned(), "MPI_Wait".to_owned()],
                not_compared_share_of_run: 0.4,
                ..lateness_without_times(verdict)
            };
            lateness_line(&lateness, &[])
        };
        let spent = "ranks spent 12 s, 40 % of the run, in calls that are not compared (MPI_Bcast, MPI_Wait)";
        let cannot_tell = format!("cannot tell which rank entered last: {spent}; {WAITED}");
        assert_eq!(of(LatenessVerdict::CallsNotCompared), cannot_tell);
        let held_up = of(LatenessVerdict::HeldUpByMessages);
        assert!(held_up.ends_with(&format!("cause unknown ({WAITED}; {spent})")), "{held_up}");
    }

    #[test]
    fn a_rank_that_never_entered_a_collective_is_named() {
        let absence = RankAbsence {
            rank: Some(1),
            ranks: vec![1],
            name: "rank 1".to_owned(),
            call: "MPI_Barrier".to_owned(),
            number: 2,
            communicator: "MPI_COMM_WORLD".to_owned(),
            each_ns: 60_000_000_000,
            all_ns: 179_000_000_000,
        };
        assert_eq!(
            line(LatenessVerdict::NeverEntered { absence }, &[]),
            format!(
                "rank 1 never entered MPI_Barrier (collective 2 on MPI_COMM_WORLD), in which the others waited up to 60 s each, \
                 179 s in all; ranks waited 2.0 s in other collectives in all, 4.2 % of the run"
            )
        );
    }

    #[test]
    fn start_up_has_a_line_where_ranks_waited() {
        let of = |waited_ns, init_waited_ns, last_rank| {
            start_up_line(&StartUp {
                ns: 5_200_000_000,
                waited_ns,
                init_waited_ns,
                last_rank,
                apart_ns: 9_000_000,
            })
        };
        assert_eq!(of(9_999_999, 9_999_999, None), None);
        assert_eq!(
            of(20_000_000, 0, Some(2)).unwrap(),
            "5.2 s to the end of the first collective of all ranks; ranks waited 20 ms in collectives in all until then; rank 2 \
             entered that collective last, 9.0 ms after the first one; its cause is not analysed"
        );
        assert_eq!(
            of(20_000_000, 4_300_000_000, None).unwrap(),
            "5.2 s to the end of MPI_Init; ranks waited 4.3 s in MPI_Init and 20 ms in collectives in all until then"
        );
    }
}
