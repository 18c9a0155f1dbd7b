//! Bursts that no agent writes: no panic, no hang, and nothing that is not so is said to be so.

use super::plain::PlainJob;
use super::*;
use rpd_shard::file::{BlockHeader, BlockKind};
use rpd_shard::record::{ClockDomain, Probe, ProbeBurst, wire};
use rpd_tests::crafted::{CraftedBlock, before_rows};
use std::io::Write;
use std::time::Duration;

/// Half a minute of three nodes.
fn job() -> PlainJob {
    PlainJob::new(3, 30, 250_000_000)
}

/// Merges shards of which that of rank 1 has these bursts beside its own, in all ways; returns what `auto` gives.
fn merge_with(job: &PlainJob, bursts: &[ProbeBurst]) -> Merged {
    let folder = tempfile::tempdir().unwrap();
    let seen = |rank: &ModelRank| {
        let mut seen = job.seen(rank);
        if rank.rank == 1 {
            seen.bursts.splice(1..1, bursts.iter().cloned());
        }
        Some(seen)
    };
    let inputs = job.shards(&folder.path().join("in"), &seen);
    let out = folder.path().join("out.db");
    let run_it = |arguments: &[&str]| {
        let outcome = merging(&out, arguments).args(&inputs).limit(Duration::from_secs(30)).run().success();
        assert!(!outcome.stderr.contains("panicked"), "{outcome}");
        outcome
    };
    for by in ["probes", "collectives", "anchors", "none"] {
        let _ = run_it(&["--align", by, "--repair-causality"]);
    }
    opened(&run_it(&[]), &out)
}

fn burst(job: &PlainJob, best: Vec<Probe>) -> ProbeBurst {
    let [to, from] = [0, 1].map(|node: usize| job.run.nodes[node].clock.domain.clone());
    ProbeBurst { from, to, sent: 20, answered: 20, spread: 100, best, kernel_times: false }
}

/// Bursts of node 1 that are as they should be.
fn true_bursts(job: &PlainJob) -> Vec<ProbeBurst> {
    job.seen(&job.run.ranks[1]).bursts
}

/// Times of all nodes are as exact as it is said.
fn assert_exact(job: &PlainJob, merged: &Merged) {
    for (rank, host) in [(1, "gpu001"), (2, "gpu002")] {
        let errors = job.errors(&job.run.ranks[rank], 0, &merged.database);
        let bar = merged.number(host, "bar_ns");
        let inside = errors.iter().filter(|error| error.abs() <= bar).count();
        assert!(inside * 10 >= errors.len() * 9, "{inside} of {}: {}", errors.len(), merged.clock(host));
        assert!(bar < 20_000, "{}", merged.clock(host));
        assert_eq!(merged.method(host), "fusion");
    }
}

#[test]
fn times_at_the_ends_of_numbers_are_no_observation() {
    let job = job();
    let (low, high) = (i64::MIN, i64::MAX);
    let far = |t1: i64, t2: i64| Probe { t1, t2, t3: t2, t4: t1 };
    let wild = [(low, low), (low, high), (high, low), (high, high), (0, high), (low, 0), (high, 0)];
    let mut bursts: Vec<ProbeBurst> = wild.map(|(t1, t2)| burst(&job, vec![far(t1, t2)])).to_vec();
    bursts.push(burst(&job, vec![far(low, high), far(high, low), far(0, 0)]));
    bursts.push(burst(&job, vec![Probe { t1: 0, t2: 5, t3: 5, t4: high }]));
    bursts.push(ProbeBurst { spread: high, sent: u32::MAX, answered: u32::MAX, ..bursts[4].clone() });
    assert!(bursts.iter().all(ProbeBurst::is_sound));
    let merged = merge_with(&job, &bursts);
    assert_exact(&job, &merged);
    let note = "10 bursts of probes have times at which the job did not run, and are ignored";
    assert!(merged.stderr.contains(note), "{}", merged.stderr);
}

#[test]
fn absurd_times_among_true_ones_are_told_and_harm_no_other_node() {
    let job = job();
    // In some bursts the answerer is said to be hours off, in different ways.
    let truth = true_bursts(&job);
    let lie = |i: usize| {
        let hours = |t: i64| t + (i as i64 - 3) * 3_600_000_000_000;
        let mut lie = truth[i].clone();
        lie.best.iter_mut().for_each(|probe| (probe.t2, probe.t3) = (hours(probe.t2), hours(probe.t3)));
        lie
    };
    let merged = merge_with(&job, &[1, 4, 5].map(lie));
    // Shards have checksums, and agents keys: such a writer is found out, not put right.
    let row = merged.clock("gpu001");
    let troubles = ["steps", "contradictions", "violations"].map(|what| row[what].as_u64().unwrap());
    if troubles == [0; 3] {
        assert_exact(&job, &merged);
    }
    let errors = job.errors(&job.run.ranks[2], 0, &merged.database);
    assert!(worst(&errors) < 20_000, "the other node: {}", worst(&errors));
}

#[test]
fn domains_that_nobody_has_change_nothing() {
    let job = job();
    let plain = merge_with(&job, &[]);
    let own = &true_bursts(&job)[0];
    let unknown = |i: usize| ClockDomain { boot_id: format!("nobody-{i}"), time_namespace: 0 };
    let mut bursts = Vec::new();
    for i in 0..2_000 {
        bursts.push(ProbeBurst { to: unknown(i), ..own.clone() });
        bursts.push(ProbeBurst { from: unknown(i), to: unknown(i + 1), ..own.clone() });
        bursts.push(ProbeBurst { from: unknown(i), ..own.clone() });
    }
    let merged = merge_with(&job, &bursts);
    assert_eq!(plain.report["clocks"], merged.report["clocks"]);
}

#[test]
fn a_burst_of_a_clock_against_itself_and_others_that_contradict_themselves_are_damage() {
    let job = job();
    let own = &true_bursts(&job)[0];
    let backwards = Probe { t1: 9, t2: 1, t3: 0, t4: 5 };
    let bursts = [
        ProbeBurst { to: own.from.clone(), ..own.clone() },
        ProbeBurst { best: Vec::new(), ..own.clone() },
        ProbeBurst { best: vec![backwards], ..own.clone() },
        ProbeBurst { spread: -1, ..own.clone() },
        ProbeBurst { answered: 1, ..own.clone() },
        ProbeBurst { to: ClockDomain { boot_id: "x".repeat(100_000), time_namespace: 0 }, ..own.clone() },
    ];
    assert!(!bursts.iter().any(ProbeBurst::is_sound));
    let plain = merge_with(&job, &[]);
    let merged = merge_with(&job, &bursts);
    assert_eq!(plain.report["clocks"], merged.report["clocks"]);
    let damaged = merged.stderr.lines().filter(|line| line.contains("damaged")).count();
    assert!(damaged >= 1, "{}", merged.stderr);
}

/// The shard of rank 1 with so many more bursts, each to another domain if `to_all` is so.
fn flood(job: &PlainJob, path: &Path, bursts: usize, to_all: bool) {
    let bytes = fs::read(path).unwrap();
    let mut file = BufWriter::new(File::create(path).unwrap());
    file.write_all(&before_rows(&bytes)).unwrap();
    let own = true_bursts(job)[0].clone();
    let block = |i: usize| {
        let mut burst = own.clone();
        burst.best.truncate(1);
        burst.best[0].t1 -= i as i64;
        if to_all {
            burst.to.boot_id = format!("nobody-{i}");
        }
        let CraftedBlock { header, stored } =
            CraftedBlock::rows(rpd_shard::model::rocpd::STRING, 1, 0, &wire::encode(&burst));
        let header = BlockHeader { kind: BlockKind::Probes, min_time: 0, max_time: 0, ..header };
        [&header.to_bytes()[..], &stored].concat()
    };
    let one = block(0);
    for i in 0..bursts {
        let other = (to_all || i % 1_000 == 0).then(|| block(i));
        file.write_all(other.as_deref().unwrap_or(&one)).unwrap();
    }
    file.flush().unwrap();
}

#[test]
fn a_million_bursts_take_bounded_time_and_memory() {
    let job = job();
    for (bursts, to_all) in [(1_000_000, false), (140_000, true)] {
        let folder = tempfile::tempdir().unwrap();
        let inputs = job.shards(&folder.path().join("in"), &|rank| Some(job.seen(rank)));
        flood(&job, &inputs[1], bursts, to_all);
        let out = folder.path().join("out.db");
        let merging = merging(&out, &["--threads", "2"]).args(&inputs).address_space(2 << 30);
        let outcome = merging.limit(Duration::from_secs(60)).run().success();
        assert!(outcome.stderr.lines().count() < 100, "{outcome}");
        eprintln!("{bursts} bursts: {:?}", outcome.took);
        let report: Value = serde_json::from_str(&outcome.stdout).unwrap();
        assert_eq!(report["clocks"].as_array().unwrap().len(), 3);
        // What is not kept is not forgotten.
        assert!(outcome.stderr.contains("damaged"), "{outcome}");
    }
}
