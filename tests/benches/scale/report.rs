//! What is printed.

use crate::inputs::{Baseline, Inputs};
use crate::ways::{Measured, Way};
use rpd_tests::measure::machine;
use rpd_tests::synthetic::SyntheticRun;
use std::collections::BTreeMap;
use std::path::Path;

const MIB: f64 = (1 << 20) as f64;
/// Most memory of a merge of 10,000 ranks, MiB.
const AIM: f64 = 1024.0;

/// What is merged, and on what machine.
pub(crate) fn print_inputs(run: &SyntheticRun, inputs: &Inputs, folder: &Path) {
    println!("{}", machine(folder));
    println!(
        "{} ranks on {} nodes: {} shards of {:.1} KB, {:.0} MB in all",
        run.nodes * run.ranks_per_node,
        run.nodes,
        inputs.files,
        inputs.bytes as f64 / inputs.files.max(1) as f64 / 1e3,
        inputs.bytes as f64 / 1e6
    );
}

/// What was measured.
pub(crate) fn print(run: &SyntheticRun, measured: &[(Way, Measured)], baseline: &Baseline) {
    let ranks = run.nodes * run.ranks_per_node;
    for (way, seen) in measured {
        let told = &seen.told;
        let peaks: Vec<f64> = seen.peaks.iter().map(|bytes| *bytes as f64 / MIB).collect();
        println!("\n{way}: {:.2} s, {:.0} MiB at most", seen.seconds, peaks.iter().sum::<f64>());
        if peaks.len() > 1 {
            let each: Vec<String> = peaks.iter().map(|mib| format!("{mib:.0}")).collect();
            println!("    MiB of each process     {}", each.join(" + "));
        }
        println!("    phases (s)              {}", phases(seen));
        println!(
            "    rows                    {} read from {} shards, {} in {:.0} MB; {}",
            told.rows_read(),
            told.shards,
            told.rows(),
            seen.bytes as f64 / 1e6,
            if told.is_whole() { "nothing lost" } else { "ROWS LOST" }
        );
        println!(
            "    clocks                  {} of {} nodes: {}",
            told.clocks.len(),
            told.nodes,
            methods(seen)
        );
        println!("    lines on the terminal   {}", seen.lines);
    }
    println!("\nreading all shards once: {:.2} s", baseline.reading);
    let each = baseline.sqlite / baseline.databases.max(1) as f64;
    println!(
        "SQLite alone, databases of {} ranks into one: {:.2} s, {:.2} ms each; {ranks} would take {:.0} s",
        baseline.databases,
        baseline.sqlite,
        each * 1e3,
        each * f64::from(ranks)
    );
    let database = measured.iter().find(|(way, _)| *way == Way::Database);
    if let Some((_, seen)) = database {
        let faster = each * f64::from(ranks) / seen.seconds;
        println!(
            "rpd-merge, {:.2} ms each: {faster:.1} times as fast",
            seen.seconds * 1e3 / f64::from(ranks)
        );
    }
    for (way, seen) in measured {
        let sum = seen.peaks.iter().sum::<u64>() as f64 / MIB;
        let whole = seen.told.is_whole() && seen.told.ranks == u64::from(ranks) && !seen.peaks.is_empty();
        aim(&format!("{way}: below {AIM:.0} MiB (is {sum:.0})"), sum < AIM);
        aim(&format!("{way}: all ranks are there, nothing is lost"), whole);
    }
}

fn phases(seen: &Measured) -> String {
    let all = seen.told.phases.iter().map(|phase| format!("{} {:.2}", phase.phase, phase.seconds));
    all.collect::<Vec<_>>().join(", ")
}

/// By what the clocks were aligned, and how many.
fn methods(seen: &Measured) -> String {
    let mut methods: BTreeMap<&str, usize> = BTreeMap::new();
    seen.told.clocks.iter().for_each(|clock| *methods.entry(clock.method.as_str()).or_default() += 1);
    methods.iter().map(|(method, count)| format!("{count} by {method}")).collect::<Vec<_>>().join(", ")
}

fn aim(what: &str, holds: bool) {
    println!("aim: {what}: {}", if holds { "holds" } else { "MISSED" });
}
