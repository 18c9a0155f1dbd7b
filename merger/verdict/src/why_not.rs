//! Why no rank is named, and what is missing in the calls.

use crate::names::{label_text, short};
use crate::shown_time::shown_time;
use rpd_calls::{MissingCalls, RunCalls};
use rpd_console::wording::{counted, grouped, noun, rank_ranges};
use rpd_graph::DiagnosisLimit;

/// Maximum number of communicators that a reason names.
const MAX_NAMED: usize = 3;

/// Why no rank is named if no call has a communicator.
pub(crate) const NO_COMMUNICATORS: &str = "the calls to MPI have no communicators, which profilers and .rpd files lack; merge shards of rpd-collect";

/// Describes what forbids to name a rank in the run, or in a part of it.
pub(crate) fn limit_reason(limit: &DiagnosisLimit, calls: &RunCalls) -> String {
    let is_part = calls.job.is_part;
    match *limit {
        DiagnosisLimit::NoCalls if is_part => {
            "no calls to MPI of several ranks are in the window; choose another one".to_owned()
        }
        DiagnosisLimit::FewSteps { steps } if is_part => {
            let found = match steps {
                0 => "no whole step is".to_owned(),
                1 => "only 1 whole step is".to_owned(),
                steps => format!("only {} are", counted(steps.into(), "whole step")),
            };
            format!("{found} in the window, at least 10 are necessary; choose a longer one")
        }
        DiagnosisLimit::NoCalls => {
            "no calls to MPI or RCCL of several ranks were recorded; rpd-collect records these, but no other communication, such as that of gloo".to_owned()
        }
        DiagnosisLimit::Threads { processes } => format!(
            "{} in several threads, and which thread waits for which is not recorded",
            if processes == 1 {
                "1 rank calls MPI".to_owned()
            } else {
                format!("{} ranks call MPI", grouped(processes.into()))
            }
        ),
        DiagnosisLimit::Unmatched { what, matched, all } => format!(
            "only {} of {} {what} ({:.1} %), 95 % are necessary",
            grouped(matched),
            grouped(all),
            matched as f64 / all.max(1) as f64 * 100.0
        ),
        DiagnosisLimit::ReplayOff { share } => format!(
            "the calls explain {:.1} % of the length of the run; ranks wait for something that is not recorded",
            (1.0 - share) * 100.0
        ),
        DiagnosisLimit::FewSteps { steps } => {
            let found = match steps {
                0 => "no steps were found".to_owned(),
                1 => "only 1 step was found".to_owned(),
                steps => format!("only {} were found", counted(steps.into(), "step")),
            };
            format!(
                "{found}, at least 10 are necessary; mark them with ranges and name these with rpd-report --step NAME"
            )
        }
        DiagnosisLimit::LongCalls { share, label } => format!(
            "a rank is {:.0} % of the run longer in calls than others, most in {}, and what it waits for there is not known",
            share * 100.0,
            label_text(calls, Some(label))
        ),
        DiagnosisLimit::PollPauses { share } => format!(
            "a rank pauses between polls (MPI_Test, MPI_Iprobe, ...) for {:.0} % of the run, to work or to wait",
            share * 100.0
        ),
        DiagnosisLimit::MethodsDisagree => {
            "the replay and the delay analysis point to different ranks".to_owned()
        }
    }
}

/// Returns that ranks or their last calls are missing, if they are: reasons of which others follow.
pub(crate) fn missing_ranks(calls: &RunCalls) -> impl Iterator<Item = String> {
    let is_of_ranks = |missing: &&MissingCalls| {
        matches!(missing, MissingCalls::MissingRanks(_) | MissingCalls::UnfinishedRanks(_))
    };
    calls.unavailable.iter().filter(is_of_ranks).map(|missing| missing_reason(missing, calls.job.is_part))
}

/// Describes a part of the calls that is missing, in the run or in a part of it.
pub fn missing_reason(missing: &MissingCalls, is_part: bool) -> String {
    match missing {
        MissingCalls::NoMpiCalls if is_part => "no whole calls to MPI are in the window".to_owned(),
        MissingCalls::NoSteps if is_part => "no steps were found in the window".to_owned(),
        MissingCalls::NoMpiCalls => "no calls to MPI were recorded".to_owned(),
        MissingCalls::MissingRanks(ranks) => format!("nothing was recorded of {}", ranks_text(ranks)),
        MissingCalls::UnfinishedRanks(ranks) => {
            format!("the last calls of {} are missing", ranks_text(ranks))
        }
        MissingCalls::LostRows { table, rows: None, .. } => {
            format!("rows of {} were lost, which may belong to calls", short(table))
        }
        MissingCalls::LostRows { table, rows: Some(rows), .. } => {
            let rows = *rows;
            let verb = was_or_were(rows);
            format!("{} of {} {verb} lost, which may belong to calls", counted(rows, "row"), short(table))
        }
        MissingCalls::DroppedCalls { ranks, calls } => {
            format!("{} {} dropped", calls_text(ranks, *calls), was_or_were(*calls))
        }
        MissingCalls::UnknownMembers(names) => {
            let shown: Vec<String> = names.iter().take(MAX_NAMED).map(|name| short(name)).collect();
            let more = names.len().saturating_sub(MAX_NAMED);
            let more = if more > 0 { format!(" and {} more", grouped(more as u64)) } else { String::new() };
            let communicators = noun(names.len() as u64, "communicator");
            format!("not all members of {communicators} {}{more} are known", shown.join(", "))
        }
        MissingCalls::SeveralThreads(ranks) => {
            let verb = if ranks.len() == 1 { "calls" } else { "call" };
            format!("{} {verb} MPI in several threads", ranks_text(ranks))
        }
        MissingCalls::OverlappingCalls { ranks, calls } => {
            let verb = if *calls == 1 { "overlaps another" } else { "overlap others" };
            format!("{} {verb} of the same thread", calls_text(ranks, *calls))
        }
        MissingCalls::CutCalls { ranks, calls, ns } => {
            let (of, time) = (calls_text(ranks, *calls), shown_time(i64::try_from(*ns).unwrap_or(i64::MAX)));
            let (verb, them) = if *calls == 1 { ("is", "it") } else { ("are", "them") };
            format!("{of} {verb} left out because the window cuts {them}, {time} in all")
        }
        MissingCalls::WithoutCommunicator { ranks, calls } => {
            let verb = if *calls == 1 { "has" } else { "have" };
            let of = calls_text(ranks, *calls);
            format!("{of} {verb} no communicator, which profilers do not record")
        }
        MissingCalls::ReceiveHalves { ranks, calls } => {
            format!("the source of MPI_Sendrecv is not recorded for {}", calls_text(ranks, *calls))
        }
        MissingCalls::PersistentOperations { ranks, calls } => {
            format!("what MPI_Start starts is not recorded for {}", calls_text(ranks, *calls))
        }
        MissingCalls::MatchedProbes { ranks, calls } => {
            format!("the probe before MPI_Mrecv is not known for {}", calls_text(ranks, *calls))
        }
        MissingCalls::UnknownCompletions { ranks, calls } => {
            let operations = if *calls == 1 { "operation" } else { "operations" };
            format!(
                "the beginning of {} {operations} that {} completed is not known",
                grouped(*calls),
                ranks_text(ranks)
            )
        }
        MissingCalls::UnusableRegions { regions } => {
            let verb = if *regions == 1 { "has" } else { "have" };
            format!("{} {verb} no valid times or no name", counted(*regions, "region"))
        }
        MissingCalls::NoSteps => "no steps were found".to_owned(),
    }
}

/// Names ranks: `rank 3`, `ranks 0-7`. Processes without a rank are counted but not listed.
fn ranks_text(ranks: &[u32]) -> String {
    match ranks {
        [] => "processes without rank".to_owned(),
        _ => format!("{} {}", noun(ranks.len() as u64, "rank"), rank_ranges(ranks)),
    }
}

/// Counts calls of ranks: `1 call of rank 3`.
fn calls_text(ranks: &[u32], calls: u64) -> String {
    format!("{} of {}", counted(calls, "call"), ranks_text(ranks))
}

fn was_or_were(count: u64) -> &'static str {
    if count == 1 { "was" } else { "were" }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rpd_calls::CallLabel;

    fn assert_no_colon(text: &str) {
        assert!(!text.contains(':') && !text.ends_with('.'), "{text}");
    }

    #[test]
    fn limits_say_what_is_necessary() {
        let limits = [
            (
                DiagnosisLimit::NoCalls,
                "no calls to MPI or RCCL of several ranks were recorded; rpd-collect records these, but no other communication, such as that of gloo",
            ),
            (
                DiagnosisLimit::Threads { processes: 1 },
                "1 rank calls MPI in several threads, and which thread waits for which is not recorded",
            ),
            (
                DiagnosisLimit::Threads { processes: 2_000 },
                "2,000 ranks call MPI in several threads, and which thread waits for which is not recorded",
            ),
            (
                DiagnosisLimit::Unmatched { what: "collectives match", matched: 1_000, all: 2_000 },
                "only 1,000 of 2,000 collectives match (50.0 %), 95 % are necessary",
            ),
            (
                DiagnosisLimit::ReplayOff { share: 0.25 },
                "the calls explain 75.0 % of the length of the run; ranks wait for something that is not recorded",
            ),
            (
                DiagnosisLimit::FewSteps { steps: 1 },
                "only 1 step was found, at least 10 are necessary; mark them with ranges and name these with rpd-report --step NAME",
            ),
            (
                DiagnosisLimit::FewSteps { steps: 0 },
                "no steps were found, at least 10 are necessary; mark them with ranges and name these with rpd-report --step NAME",
            ),
            (
                DiagnosisLimit::LongCalls { share: 0.244, label: 0 },
                "a rank is 24 % of the run longer in calls than others, most in MPI_Win_fence, and what it waits for there is not known",
            ),
            (
                DiagnosisLimit::PollPauses { share: 0.061 },
                "a rank pauses between polls (MPI_Test, MPI_Iprobe, ...) for 6 % of the run, to work or to wait",
            ),
            (DiagnosisLimit::MethodsDisagree, "the replay and the delay analysis point to different ranks"),
        ];
        for (limit, wanted) in limits {
            let calls = RunCalls {
                labels: vec![CallLabel::Function("MPI_Win_fence".to_owned())],
                ..RunCalls::default()
            };
            let text = limit_reason(&limit, &calls);
            assert_eq!(text, wanted);
            assert_no_colon(&text);
        }
    }

    #[test]
    fn reasons_in_a_window_advise_another_one() {
        let limits = [
            (
                DiagnosisLimit::NoCalls,
                "no calls to MPI of several ranks are in the window; choose another one",
            ),
            (
                DiagnosisLimit::FewSteps { steps: 0 },
                "no whole step is in the window, at least 10 are necessary; choose a longer one",
            ),
            (
                DiagnosisLimit::FewSteps { steps: 9 },
                "only 9 whole steps are in the window, at least 10 are necessary; choose a longer one",
            ),
        ];
        let mut part = RunCalls::default();
        part.job.is_part = true;
        for (limit, wanted) in limits {
            assert_eq!(limit_reason(&limit, &part), wanted);
        }
        assert_eq!(
            missing_reason(&MissingCalls::NoMpiCalls, true),
            "no whole calls to MPI are in the window"
        );
        assert_eq!(missing_reason(&MissingCalls::NoSteps, true), "no steps were found in the window");
    }

    #[test]
    fn one_and_several_have_the_right_forms() {
        type OfCalls = fn(Vec<u32>, u64) -> MissingCalls;
        let of_calls: [(OfCalls, &str, &str); 8] = [
            (
                |ranks, calls| MissingCalls::CutCalls { ranks, calls, ns: 1_500_000_000 },
                "1 call of rank 3 is left out because the window cuts it, 1.500 s in all",
                "2,000 calls of ranks 0-2 are left out because the window cuts them, 1.500 s in all",
            ),
            (
                |ranks, calls| MissingCalls::DroppedCalls { ranks, calls },
                "1 call of rank 3 was dropped",
                "2,000 calls of ranks 0-2 were dropped",
            ),
            (
                |ranks, calls| MissingCalls::OverlappingCalls { ranks, calls },
                "1 call of rank 3 overlaps another of the same thread",
                "2,000 calls of ranks 0-2 overlap others of the same thread",
            ),
            (
                |ranks, calls| MissingCalls::WithoutCommunicator { ranks, calls },
                "1 call of rank 3 has no communicator, which profilers do not record",
                "2,000 calls of ranks 0-2 have no communicator, which profilers do not record",
            ),
            (
                |ranks, calls| MissingCalls::ReceiveHalves { ranks, calls },
                "the source of MPI_Sendrecv is not recorded for 1 call of rank 3",
                "the source of MPI_Sendrecv is not recorded for 2,000 calls of ranks 0-2",
            ),
            (
                |ranks, calls| MissingCalls::PersistentOperations { ranks, calls },
                "what MPI_Start starts is not recorded for 1 call of rank 3",
                "what MPI_Start starts is not recorded for 2,000 calls of ranks 0-2",
            ),
            (
                |ranks, calls| MissingCalls::MatchedProbes { ranks, calls },
                "the probe before MPI_Mrecv is not known for 1 call of rank 3",
                "the probe before MPI_Mrecv is not known for 2,000 calls of ranks 0-2",
            ),
            (
                |ranks, calls| MissingCalls::UnknownCompletions { ranks, calls },
                "the beginning of 1 operation that rank 3 completed is not known",
                "the beginning of 2,000 operations that ranks 0-2 completed is not known",
            ),
        ];
        for (of, one, several) in of_calls {
            for (missing, wanted) in [(of(vec![3], 1), one), (of(vec![0, 1, 2], 2_000), several)] {
                let text = missing_reason(&missing, false);
                assert_eq!(text, wanted);
                assert_no_colon(&text);
            }
        }
    }

    #[test]
    fn other_reasons_are_sentences() {
        let rows = |rows| MissingCalls::LostRows { table: "mpi_call".to_owned(), rows, is_of_rings: true };
        let members = |count: usize| MissingCalls::UnknownMembers(vec!["a".to_owned(); count]);
        let reasons = [
            (MissingCalls::NoMpiCalls, "no calls to MPI were recorded"),
            (MissingCalls::MissingRanks(vec![1]), "nothing was recorded of rank 1"),
            (MissingCalls::MissingRanks(vec![1, 4]), "nothing was recorded of ranks 1,4"),
            (MissingCalls::UnfinishedRanks(vec![1]), "the last calls of rank 1 are missing"),
            (rows(None), "rows of mpi_call were lost, which may belong to calls"),
            (rows(Some(1)), "1 row of mpi_call was lost, which may belong to calls"),
            (rows(Some(5)), "5 rows of mpi_call were lost, which may belong to calls"),
            (members(1), "not all members of communicator a are known"),
            (members(5), "not all members of communicators a, a, a and 2 more are known"),
            (MissingCalls::SeveralThreads(vec![7]), "rank 7 calls MPI in several threads"),
            (MissingCalls::SeveralThreads(vec![7, 8]), "ranks 7-8 call MPI in several threads"),
            (
                MissingCalls::DroppedCalls { ranks: Vec::new(), calls: 2 },
                "2 calls of processes without rank were dropped",
            ),
            (MissingCalls::UnusableRegions { regions: 1 }, "1 region has no valid times or no name"),
            (MissingCalls::UnusableRegions { regions: 2 }, "2 regions have no valid times or no name"),
            (MissingCalls::NoSteps, "no steps were found"),
        ];
        for (missing, wanted) in reasons {
            let text = missing_reason(&missing, false);
            assert_eq!(text, wanted);
            assert_no_colon(&text);
        }
        let hostile = MissingCalls::UnknownMembers(vec!["\x1b[31m\n".repeat(1 << 17); 9]);
        let text = missing_reason(&hostile, false);
        assert!(text.len() < 300 && !text.chars().any(char::is_control), "{text}");
    }
}
