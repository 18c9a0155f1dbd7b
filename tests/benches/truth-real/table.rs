//! The table of all runs by scenario.

use super::results::{Results, RunResult};
use rpd_tests::measure::{ProportionInterval, median};
use rpd_tests::truth_real::{Answer, CAUSE_SCENARIOS, SCENARIOS, Truth};

/// A run in one line.
pub(crate) fn line(run: &RunResult) -> String {
    let Truth { scenario, seed, length_ns, gain_ns, nominal_gain_ns, waits_ns, .. } = &run.truth;
    let seconds = |ns: &i64| *ns as f64 / 1e9;
    let judged =
        run.judgement.as_ref().map_or("not judged".to_owned(), |judged| format!("{:?}", judged.answer));
    let error = run.judgement.as_ref().and_then(|judged| judged.gain_error).filter(|_| *gain_ns > 0);
    let error = error.map(|error| error * *length_ns as f64 / *gain_ns as f64 * 100.0);
    let error = error.map_or(String::new(), |error| format!(", reported gain {error:+.1} %"));
    let causes = run.judgement.as_ref().map_or(&[][..], |judged| &judged.causes);
    let causes = if causes.is_empty() { String::new() } else { format!(", cause {}", causes.join(" and ")) };
    let difference = run.difference.as_ref().map_or(String::new(), |text| format!("; DIFFERS: {text}"));
    format!(
        "{scenario} {seed}: {:.2} s, gain {:.3} s (planted {:.3}), waits {:.2} s; {judged}{causes}{error}{difference}",
        seconds(length_ns),
        seconds(gain_ns),
        seconds(nominal_gain_ns),
        seconds(waits_ns)
    )
}

/// Prints the table: right answers with their 95 % intervals, and errors of gains as shares of the runs.
pub(crate) fn print(results: &Results) {
    println!(
        "\n{:>3} {:<18} {:>4} {:>7} {:>26} {:>6} {:>6} {:>6} {:>6} {:>7} {:>8} {:>8}",
        "",
        "scenario",
        "runs",
        "differ",
        "right",
        "detail",
        "cause",
        "wrong",
        "missed",
        "unknown",
        "gain off",
        "covered"
    );
    for scenario in SCENARIOS.iter().chain(&CAUSE_SCENARIOS) {
        let runs = results.runs.iter().filter(|run| run.truth.scenario == scenario.name).collect();
        print_row(&scenario.number.to_string(), scenario.name, runs);
    }
    print_row("", "all", results.runs.iter().collect());
}

fn print_row(number: &str, name: &str, runs: Vec<&RunResult>) {
    let judged: Vec<_> = runs.iter().filter_map(|run| run.judgement.as_ref()).collect();
    let count = |answer| judged.iter().filter(|judged| judged.answer == answer).count();
    let errors = judged.iter().filter_map(|judged| judged.gain_error).map(f64::abs);
    let covered: Vec<bool> = judged.iter().filter_map(|judged| judged.is_covered).collect();
    let right = match judged.len() {
        0 => "not judged".to_owned(),
        judged => format!(
            "{} of {judged} {}",
            count(Answer::Right),
            ProportionInterval::of(count(Answer::Right), judged)
        ),
    };
    let error = median(errors);
    println!(
        "{number:>3} {name:<18} {:>4} {:>7} {right:>26} {:>6} {:>6} {:>6} {:>6} {:>7} {:>8} {:>8}",
        runs.len(),
        runs.iter().filter(|run| run.difference.is_some()).count(),
        count(Answer::WrongDetail),
        count(Answer::WrongCause),
        count(Answer::WrongName),
        count(Answer::Missed),
        count(Answer::CannotTell),
        if error.is_nan() { "-".to_owned() } else { format!("{:.2} %", error * 100.0) },
        format!("{}/{}", covered.iter().filter(|covered| **covered).count(), covered.len()),
    );
}
