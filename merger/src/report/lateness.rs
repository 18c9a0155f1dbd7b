//! The lines of the summary about the rank that others wait for, and about start-up.

use super::Report;
use super::words::{counted, duration, grouped};
use crate::collectives::late::{LateRank, Lateness, StartUp};
use crate::collectives::verdict::LatenessVerdict;
use crate::input::ranks::ranges;

/// Ranks that a line names where no single one is the cause.
const MAX_NAMED: usize = 3;
/// Start-up that ranks waited less than this in, ns, is not worth a line.
const MIN_START_UP_WAIT_NS: i64 = 10_000_000;

impl Report {
    /// Keeps the ranks that others wait for, and the verdict, or the reason why there is none.
    pub(super) fn note_lateness(&mut self, late_ranks: Vec<LateRank>, lateness: Option<Lateness>) {
        self.late_ranks = late_ranks;
        self.lateness = lateness.or_else(|| {
            let reason = self.nothing_compared()?;
            Some(Lateness {
                verdict: LatenessVerdict::NoCollectives { reason: reason.to_owned() },
                waited_ns: 0,
                waited_share_of_run: 0.0,
                run_ns: 0,
                held_up_ns: 0,
                start_up: None,
            })
        });
    }

    /// Why no collective says when ranks waited; `None` for a single process.
    fn nothing_compared(&self) -> Option<&'static str> {
        let counts = &self.collectives;
        (self.processes > 1).then_some(match (counts.calls, counts.matched) {
            _ if self.singleton_ranks.len() > 1 => "MPI ran each rank as a job of its own",
            (0, _) if counts.alone == 0 && self.has_former_merge() => {
                "collectives of former merges are not compared again (the tag rpd.former_merges has what they told)"
            }
            (0, _) if counts.alone == 0 => "no collectives were recorded",
            (_, 0) => "no collectives of different ranks match",
            _ if counts.timed == 0 => {
                "the collectives that match do not say when ranks waited (calls of RCCL return early: rocprofv3 records their kernels)"
            }
            _ => "the clocks of the nodes are not aligned, or no collective was one in which all wait for all",
        })
    }

    /// Label and text of each line about late ranks.
    pub(super) fn lateness_lines(&self) -> Vec<(&'static str, String)> {
        let Some(lateness) = &self.lateness else { return Vec::new() };
        let mut lines = vec![("late", lateness.line(&self.late_ranks))];
        lines.extend(lateness.start_up.as_ref().and_then(StartUp::line).map(|line| ("start-up", line)));
        lines
    }
}

impl Lateness {
    /// The verdict in one line. `late` are the ranks that others waited for, the first one for the longest.
    fn line(&self, late: &[LateRank]) -> String {
        let waited = format!(
            "ranks waited {} in collectives in all, {} of the run",
            duration(self.waited_ns),
            percent(self.waited_share_of_run)
        );
        let cannot_tell = |reason: String| format!("cannot tell which rank: {reason} ({waited})");
        match &self.verdict {
            LatenessVerdict::Nobody => format!("nobody: {waited}"),
            LatenessVerdict::Rank { .. } => match late.first() {
                Some(first) => format!("{}; {waited}", first.line()),
                None => waited,
            },
            LatenessVerdict::Node { host, ranks, node_waited_ns } => {
                let part = *node_waited_ns as f64 / self.waited_ns.max(1) as f64;
                let of = if ranks.is_empty() { String::new() } else { format!(" (rank {})", ranges(ranks)) };
                format!(
                    "no single rank, but node {host}{of}: others waited {} for it, {} of all waiting; {waited}",
                    duration(*node_waited_ns),
                    percent(part)
                )
            }
            LatenessVerdict::NoSingleRank => {
                let named = late.iter().take(MAX_NAMED);
                let named = named.map(|late| format!("{} {}", late.name(), percent(late.waited_share)));
                format!("no single rank: {}; {waited}", named.collect::<Vec<_>>().join(", "))
            }
            LatenessVerdict::HeldUpByMessages => cannot_tell(
                "messages held up the ranks that entered collectives late, cause unknown".to_owned(),
            ),
            LatenessVerdict::ClockErrors { bound_ns } => cannot_tell(match bound_ns {
                Some(bound) => {
                    format!(
                        "ranks entered closer together than the clocks are known, {} (median)",
                        duration(*bound)
                    )
                }
                None => "how far the clocks of the nodes are off is not known".to_owned(),
            }),
            LatenessVerdict::CallsMissing => {
                cannot_tell("calls in which ranks may have waited were lost or are not compared".to_owned())
            }
            LatenessVerdict::Mixed => {
                cannot_tell("messages, clock errors and several ranks each explain less than half".to_owned())
            }
            LatenessVerdict::NoCollectives { reason } => format!("cannot tell which rank: {reason}"),
        }
    }
}

impl StartUp {
    /// One line; `None` if nobody waited for long.
    fn line(&self) -> Option<String> {
        if self.waited_ns < MIN_START_UP_WAIT_NS {
            return None;
        }
        let (took, waited) = (duration(self.ns), duration(self.waited_ns));
        Some(match self.last_rank {
            Some(rank) => format!(
                "{took} to the first collective of all ranks, in which they waited {waited} in all; rank {rank} entered last, {} after the first",
                duration(self.apart_ns)
            ),
            None => {
                format!("{took} to the end of MPI_Init; ranks waited {waited} in collectives in all by then")
            }
        })
    }
}

impl LateRank {
    fn name(&self) -> String {
        match self.rank {
            Some(rank) => format!("rank {rank}"),
            None => format!("pid {} on {}", self.pid, self.host),
        }
    }

    /// One line.
    fn line(&self) -> String {
        let on = if self.rank.is_some() { format!(" on {}", self.host) } else { String::new() };
        let clocks = match self.clock_bar_ns {
            Some(0) => "one clock".to_owned(),
            Some(bar) => format!("clock error bound {}", duration(bar)),
            None => "clock error not known".to_owned(),
        };
        format!(
            "{}{on}: others waited {} for it, {} of all waiting; before {} of {} it spent {} (median; {} at most) more outside of MPI than the middle of the others ({clocks})",
            self.name(),
            duration(self.waited_ns),
            percent(self.waited_share),
            grouped(self.last),
            counted(self.collectives, "collective"),
            duration(self.behind_ns),
            duration(self.worst_ns)
        )
    }
}

/// A part of a whole, from 0 to 1.
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
        let lateness = Lateness {
            verdict,
            waited_ns: 2_000_000_000,
            waited_share_of_run: 0.042,
            run_ns: 10_000_000_000,
            held_up_ns: 0,
            start_up: None,
        };
        lateness.line(late)
    }

    const WAITED: &str = "ranks waited 2.0 s in collectives in all, 4.2 % of the run";

    #[test]
    fn each_verdict_has_its_words() {
        let rank = line(LatenessVerdict::Rank { rank: Some(3) }, &[late(3, 0.92, Some(0))]);
        assert_eq!(
            rank,
            format!(
                "rank 3 on a: others waited 1.0 s for it, 92 % of all waiting; before 40 of 41 collectives it spent 3.1 ms \
                 (median; 5.0 ms at most) more outside of MPI than the middle of the others (one clock); {WAITED}"
            )
        );
        assert_eq!(line(LatenessVerdict::Nobody, &[]), format!("nobody: {WAITED}"));
        let turns = line(LatenessVerdict::NoSingleRank, &[late(3, 0.3, None), late(1, 0.05, None)]);
        assert_eq!(turns, format!("no single rank: rank 3 30 %, rank 1 5.0 %; {WAITED}"));
        let node = LatenessVerdict::Node {
            host: "b".to_owned(),
            ranks: vec![4, 5, 6],
            node_waited_ns: 1_500_000_000,
        };
        assert_eq!(
            line(node, &[]),
            format!(
                "no single rank, but node b (rank 4-6): others waited 1.5 s for it, 75 % of all waiting; {WAITED}"
            )
        );
    }

    #[test]
    fn what_cannot_be_told_has_its_reason() {
        let begin = "cannot tell which rank: ";
        for (verdict, reason) in [
            (
                LatenessVerdict::HeldUpByMessages,
                "messages held up the ranks that entered collectives late, cause unknown",
            ),
            (
                LatenessVerdict::ClockErrors { bound_ns: Some(20_000) },
                "ranks entered closer together than the clocks are known, 20 us (median)",
            ),
            (
                LatenessVerdict::ClockErrors { bound_ns: None },
                "how far the clocks of the nodes are off is not known",
            ),
            (
                LatenessVerdict::CallsMissing,
                "calls in which ranks may have waited were lost or are not compared",
            ),
        ] {
            assert_eq!(line(verdict, &[]), format!("{begin}{reason} ({WAITED})"));
        }
        let none = LatenessVerdict::NoCollectives { reason: "no collectives were recorded".to_owned() };
        assert_eq!(line(none, &[]), "cannot tell which rank: no collectives were recorded");
    }

    #[test]
    fn start_up_has_a_line_where_ranks_waited() {
        let of =
            |waited_ns, last_rank| StartUp { ns: 5_200_000_000, waited_ns, last_rank, apart_ns: 9_000_000 };
        assert_eq!(of(9_999_999, None).line(), None);
        assert_eq!(
            of(20_000_000, Some(2)).line().unwrap(),
            "5.2 s to the first collective of all ranks, in which they waited 20 ms in all; rank 2 entered last, 9.0 ms after the \
             first"
        );
    }
}
