//! Real programs whose slow rank is known: what a merged database has of them, and what a report says.

use rpd_tests::truth_real::{
    Answer, Proportions, Recorder, SCENARIOS, check_database, judge, report_findings,
};

/// Short: the lengths of ranges are compared, not yet what follows from them.
const SHORT: Proportions = Proportions { work_ms: 20.0, excess: 0.2, steps: 15, noise: 0.02 };

#[test]
fn each_program_with_a_slow_rank_is_merged_as_it_logged_itself_alone_under_mpi() {
    let folder = tempfile::tempdir().unwrap();
    let Some(recorder) = Recorder::new(folder.path()) else { return };
    let mut wrong = Vec::new();
    for scenario in &SCENARIOS {
        let recorded = recorder.record(scenario, &SHORT, 1, &folder.path().join(scenario.name));
        let checked = recorded.and_then(|recording| {
            check_database(&recording.database, &recording.logs)?;
            let truth = &recording.truth;
            match report_findings(&recording.database).transpose()? {
                Some(report) if judge(&report, truth).answer == Answer::WrongName => {
                    Err(format!("{:?} has to be named, not {report:?}", truth.culprit))
                }
                _ => Ok(()),
            }
        });
        wrong.extend(checked.err().map(|error| format!("{}: {error}", scenario.name)));
    }
    assert!(wrong.is_empty(), "{} of {}: {}", wrong.len(), SCENARIOS.len(), wrong.join("\n"));
}
