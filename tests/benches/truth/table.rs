use crate::results::{AnswerLine, AnswerSource};
use rpd_tests::truth::{AnswerVerdict, RecordTreatment, wilson_interval};
use std::collections::BTreeMap;

/// Prints the answers by scenario, and all of each kind of records.
pub(crate) fn print(lines: &[AnswerLine]) {
    let of_source = |source: AnswerSource| RecordTreatment::ALL.map(|treatment| source.treatment(treatment));
    for treatment in AnswerSource::ALL.into_iter().flat_map(of_source) {
        let of: Vec<&AnswerLine> = lines.iter().filter(|line| line.key.treatment == treatment).collect();
        if of.is_empty() {
            continue;
        }
        println!(
            "\n{treatment}: share of right answers with its 95 % interval, errors of the gain in % of the run"
        );
        let columns = "   right  95 %        missed no-data unknown wrong alarm cause   range pattern error p50   p95  within";
        println!("{:32}{columns}", "scenario");
        let mut by_scenario: BTreeMap<(u32, &str), Vec<&AnswerLine>> = BTreeMap::new();
        for line in &of {
            let name = line.key.scenario.as_str();
            let number = name.split(' ').next().and_then(|number| number.parse().ok()).unwrap_or(0);
            by_scenario.entry((number, name)).or_default().push(line);
        }
        for ((_, name), lines) in &by_scenario {
            print_row(name, lines);
        }
        print_row("all", &of);
    }
    print_others(lines);
}

/// Prints the wrong results, with their seeds.
fn print_others(lines: &[AnswerLine]) {
    let mut seeds: BTreeMap<[&str; 4], Vec<u64>> = BTreeMap::new();
    let is_right =
        |line: &AnswerLine| line.is(AnswerVerdict::Right) || line.is(AnswerVerdict::RightlyUnknown);
    for line in lines.iter().filter(|line| !is_right(line)) {
        let AnswerLine { key, verdict, says, .. } = line;
        seeds.entry([verdict, &key.scenario, &key.treatment, says]).or_default().push(key.seed);
    }
    println!();
    for ([verdict, scenario, treatment, says], seeds) in seeds {
        println!("{verdict}: {scenario}, {treatment}: {says}; seeds {seeds:?}");
    }
}

fn print_row(name: &str, lines: &[&AnswerLine]) {
    let count = |verdict: AnswerVerdict| lines.iter().filter(|line| line.is(verdict)).count() as u64;
    let (right, all) = (count(AnswerVerdict::Right), lines.len() as u64);
    let (low, high) = wilson_interval(right, all);
    let [missed, hidden, unknown, wrong, alarm, cause] = [
        AnswerVerdict::Missed,
        AnswerVerdict::RightlyUnknown,
        AnswerVerdict::Unknown,
        AnswerVerdict::WrongName,
        AnswerVerdict::FalseAlarm,
        AnswerVerdict::WrongCause,
    ]
    .map(count);
    let share = |of: &dyn Fn(&AnswerLine) -> Option<bool>| {
        let known: Vec<bool> = lines.iter().filter_map(|line| of(line)).collect();
        let yes = known.iter().filter(|is_so| **is_so).count();
        if known.is_empty() { "-".to_owned() } else { format!("{yes}/{}", known.len()) }
    };
    let mut errors: Vec<f64> = lines.iter().filter_map(|line| line.gain_error).collect();
    errors.sort_by(f64::total_cmp);
    let error = |part: f64| {
        let place = (errors.len().saturating_sub(1) as f64 * part).ceil() as usize;
        errors.get(place).map_or("-".to_owned(), |error| format!("{:.2}", error * 100.0))
    };
    println!(
        "{name:32}{:>8}  {low:.3}-{high:.3}  {missed:>5}{hidden:>8}{unknown:>8}{wrong:>6}{alarm:>6}{cause:>6}{:>8}{:>8}{:>10}{:>6}{:>8}",
        format!("{right}/{all}"),
        share(&|line| line.has_range),
        share(&|line| line.has_pattern),
        error(0.5),
        error(0.95),
        share(&|line| line.covers_gain),
    );
}
