//! A hang or a crash: in a sentence, and for machines.

use crate::analysed_run::AnalysedRun;
use crate::hang::{HangCause, RunHang, ends_text, named_ranks, ranks};
use crate::names::{gpus_of, hosts_of};
use serde_json::{Value as Json, json};

/// Returns the first line of the verdict on a hang or a crash, without its label.
pub(crate) fn hang_headline(found: &AnalysedRun<'_>, hang: &RunHang) -> String {
    let stalled = hang.stall.text(found.calls);
    let suspects = named_ranks(&ranks(found.calls, &hang.suspects));
    match hang.cause {
        HangCause::Died => format!("{}; {stalled}", ends_text(found.calls, &hang.suspects)),
        HangCause::Disagreement => format!("{stalled}; {suspects} disagree about a collective"),
        HangCause::Missing => format!("{stalled}; others wait for {suspects}"),
        HangCause::Deadlock if hang.suspects.len() == 1 => format!("{stalled}; {suspects} waits for itself"),
        HangCause::Deadlock => format!("{stalled}; {suspects} wait for one another"),
        HangCause::Unknown => format!("{stalled}; which ranks are waited for is not known"),
    }
}

/// Returns a hang or a crash for machines.
pub(crate) fn hang_json(found: &AnalysedRun<'_>, hang: &RunHang) -> Json {
    let of_suspects = |timeline: &u32| {
        let process = found.calls.job.timelines[*timeline as usize].process;
        hang.suspects.contains(&process)
    };
    let timelines: Vec<u32> = (0..found.calls.job.timelines.len() as u32).filter(of_suspects).collect();
    let cause = match hang.cause {
        HangCause::Died => "died",
        HangCause::Disagreement => "disagreement",
        HangCause::Missing => "missing",
        HangCause::Deadlock => "deadlock",
        HangCause::Unknown => "unknown",
    };
    json!({
        "kind": "hang",
        "cause": cause,
        "subject": {
            "ranks": ranks(found.calls, &hang.suspects),
            "hosts": hosts_of(found.calls, &timelines),
            "gpus": gpus_of(found.calls, &timelines),
        },
        "stalled_ns": hang.stalled_ns(),
    })
}
