//! Real programs with a known slow rank: what a merged database has of them, and what a report says.

use rpd_tests::truth_real::{Answer, Culprit, Proportions, Recorder, Recording, SCENARIOS, Truth};
use rpd_tests::truth_real::{check_database, judge, report_findings};

/// So short that all of them take less than a minute.
const SHORT: Proportions = Proportions { work_ms: 20.0, excess: 0.2, steps: 15, noise: 0.02 };

#[test]
fn real_programs_are_merged_as_they_logged_themselves_alone_under_mpi() {
    let folder = tempfile::tempdir().unwrap();
    let Some(recorder) = Recorder::new(folder.path()) else { return };
    let mut wrong = Vec::new();
    for scenario in &SCENARIOS {
        let recorded = recorder.record(scenario, &SHORT, 1, &folder.path().join(scenario.name));
        let checked = recorded.and_then(|recording| {
            check_database(&recording)?;
            check_truth(&recording.truth)?;
            check_report(&recording)
        });
        wrong.extend(checked.err().map(|error| format!("{}: {error}", scenario.name)));
    }
    assert!(wrong.is_empty(), "{} of {}: {}", wrong.len(), SCENARIOS.len(), wrong.join("\n"));
}

/// The delays were planted, and cost the run most of their length; noise of the other ranks hides the rest.
fn check_truth(truth: &Truth) -> Result<(), String> {
    let Truth { gain_ns, nominal_gain_ns, .. } = *truth;
    // In a step, a message may have to wait for one that came back, and so on.
    let most = if matches!(truth.culprit, Culprit::Network(_)) { 4 } else { 2 };
    let is_likely = gain_ns * 2 >= nominal_gain_ns && gain_ns <= nominal_gain_ns * most;
    if is_likely { Ok(()) } else { Err(format!("a gain of {gain_ns} ns, planted {nominal_gain_ns} ns")) }
}

/// A report never names another rank, or a cause that is not there. Nothing is checked where there is no rpd-report.
fn check_report(recording: &Recording) -> Result<(), String> {
    let Some(report) = report_findings(&recording.database).transpose()? else { return Ok(()) };
    let (truth, judged) = (&recording.truth, judge(&report, &recording.truth));
    eprintln!("{}: {judged:?}", truth.scenario);
    let is_wrong = matches!(judged.answer, Answer::WrongName | Answer::WrongCause);
    if is_wrong { Err(format!("{:?} has to be named, not {report:?}", truth.culprit)) } else { Ok(()) }
}
