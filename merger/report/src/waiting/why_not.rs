//! Why no rank is named, and what is missing in the calls.

use crate::report::Unavailable;
use rpd_calls::{MissingCalls, RunCalls};
use rpd_console::wording::{counted, grouped, one_line, rank_ranges};
use rpd_graph::DiagnosisLimit;

/// Maximum number of communicators that a reason names.
const MAX_NAMED: usize = 3;

/// Describes what forbids to name a rank.
pub(crate) fn limit_reason(limit: &DiagnosisLimit) -> String {
    match *limit {
        DiagnosisLimit::NoCalls => {
            "no calls to MPI of several ranks were recorded; record with rpd-collect".to_owned()
        }
        DiagnosisLimit::Threads { processes } => format!(
            "{} in several threads, and which thread waits for which is not recorded",
            if processes == 1 {
                "1 rank calls MPI".to_owned()
            } else {
                format!("{} ranks call MPI", grouped(processes.into()))
            }
        ),
        DiagnosisLimit::Unmatched { matched_share } => format!(
            "only {:.1} % of the messages and collectives match, 95 % are necessary",
            matched_share * 100.0
        ),
        DiagnosisLimit::ReplayOff { share } => format!(
            "the calls explain {:.1} % of the length of the run; ranks wait for something that is not recorded",
            (1.0 - share) * 100.0
        ),
        DiagnosisLimit::FewSteps { steps } => format!(
            "the run has {}, at least 10 are necessary; mark them with ranges and name these with --step NAME",
            counted(steps.into(), "step")
        ),
        DiagnosisLimit::MethodsDisagree => {
            "the replay and the delay analysis point to different ranks".to_owned()
        }
    }
}

/// Describes what is missing in the calls.
pub(crate) fn missing_reasons(calls: &RunCalls) -> Vec<Unavailable> {
    calls.unavailable.iter().map(|missing| Unavailable::new("waiting", reason(missing))).collect()
}

fn reason(missing: &MissingCalls) -> String {
    let of = |ranks: &[u32], calls: u64, what: &str| {
        format!("{} of ranks {}: {what}", counted(calls, "call"), rank_ranges(ranks))
    };
    match missing {
        MissingCalls::NoMpiCalls => "no calls to MPI were recorded".to_owned(),
        MissingCalls::MissingRanks(ranks) => format!("nothing was recorded of ranks {}", rank_ranges(ranks)),
        MissingCalls::UnfinishedRanks(ranks) => {
            format!("the last calls of ranks {} are missing", rank_ranges(ranks))
        }
        MissingCalls::LostRows { table, rows } => {
            let rows = rows.map_or("rows".to_owned(), |rows| counted(rows, "row"));
            format!("{rows} of {} were lost, which may belong to calls", one_line(table))
        }
        MissingCalls::DroppedCalls { ranks, calls } => {
            format!("{} of ranks {} were dropped", counted(*calls, "call"), rank_ranges(ranks))
        }
        MissingCalls::UnknownMembers(names) => {
            let shown: Vec<String> = names.iter().take(MAX_NAMED).map(|name| one_line(name)).collect();
            let more = names.len().saturating_sub(MAX_NAMED);
            let more = if more > 0 { format!(" and {}", grouped(more as u64)) } else { String::new() };
            format!("the members of {}{more} are not all known", shown.join(", "))
        }
        MissingCalls::SeveralThreads(ranks) => {
            format!("ranks {} call MPI in several threads", rank_ranges(ranks))
        }
        MissingCalls::OverlappingCalls { ranks, calls } => of(ranks, *calls, "calls of one thread overlap"),
        MissingCalls::WithoutCommunicator { ranks, calls } => {
            of(ranks, *calls, "without communicator; profilers do not record it, rpd-collect does")
        }
        MissingCalls::ReceiveHalves { ranks, calls } => {
            of(ranks, *calls, "the source of MPI_Sendrecv is not recorded; record with this version")
        }
        MissingCalls::PersistentOperations { ranks, calls } => {
            of(ranks, *calls, "what MPI_Start starts is not recorded; record with this version")
        }
        MissingCalls::MatchedProbes { ranks, calls } => {
            of(ranks, *calls, "the probe of MPI_Mrecv is not known")
        }
        MissingCalls::UnknownCompletions { ranks, calls } => {
            of(ranks, *calls, "the beginning of what they complete is not known")
        }
        MissingCalls::UnusableRegions { regions } => {
            format!("{} without valid times or name", counted(*regions, "region"))
        }
        MissingCalls::NoSteps => {
            "steps; mark them with ranges, or name ranges of the run with --step NAME".to_owned()
        }
    }
}
