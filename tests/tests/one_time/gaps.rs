//! What is missing is missed nowhere else, and is told.

use super::plain::PlainJob;
use super::*;
use rpd_shard::file::BlockKind;
use std::time::Duration;

/// A run without collectives that could stand in for probes.
fn alone(nodes: u32) -> SyntheticRun {
    SyntheticRun { collectives: false, ..probed(nodes, 1) }
}

/// All that collectors can see but for what is changed.
fn but<'a>(
    run: &'a Run,
    change: impl Fn(&ModelRank, &mut ObservedClocks) + 'a,
) -> impl Fn(&ModelRank) -> Option<ObservedClocks> + 'a {
    move |rank| {
        let mut seen = ObservedClocks::of(run, rank);
        change(rank, &mut seen);
        Some(seen)
    }
}

/// Asserts that times of a rank are as exact as the merge says.
fn assert_within_the_bar(run: &Run, rank: u32, reference: usize, merged: &Merged) {
    let rank = &run.ranks[rank as usize];
    let host = &run.nodes[rank.node].node.hostname;
    let (errors, bar) = (errors(run, rank, reference, &merged.database), merged.number(host, "bar_ns"));
    let inside = errors.iter().filter(|error| error.abs() <= bar).count();
    assert!(inside * 10 >= errors.len() * 9, "{inside} of {}: {}", errors.len(), merged.clock(host));
}

#[test]
fn a_node_that_nobody_has_probed_goes_by_the_next_best_and_the_others_by_probes() {
    for (run, of_the_rest, of_the_node) in
        [(alone(4).plan(), "probes", "realtime_anchors"), (probed(4, 1).plan(), "fusion", "collectives")]
    {
        let folder = tempfile::tempdir().unwrap();
        let unprobed = run.nodes[1].clock.domain.clone();
        let seen = but(&run, |_, seen| seen.bursts.retain(|b| b.from != unprobed && b.to != unprobed));
        let inputs = shards(&run, &folder.path().join("in"), &seen);
        let merged = merge(&folder.path().join("out.db"), &[], &inputs);
        let methods = ["gpu000", "gpu001", "gpu002", "gpu003"].map(|host| merged.method(host).to_owned());
        assert_eq!(methods, ["reference", of_the_node, of_the_rest, of_the_rest], "{}", merged.stderr);
        (1..4).for_each(|rank| assert_within_the_bar(&run, rank, 0, &merged));
        let note = "no probes went between gpu001 (rank 1) and other nodes: rank-00001.log beside its shard may contain the reason\n";
        assert!(merged.stderr.contains(note), "{}", merged.stderr);
        let log = inputs[1].with_extension("log");
        fs::write(&log, "2026-11-21T06:20:20Z note: no clock probes: no network interface is up\n").unwrap();
        let merged = merge(&folder.path().join("out.db"), &[], &inputs);
        let note =
            format!("between gpu001 (rank 1) and other nodes: {} contains the reason\n", log.display());
        assert!(merged.stderr.contains(&note), "{}", merged.stderr);
        let others = merge(&folder.path().join("out.db"), &["--align", "anchors"], &inputs);
        assert!(!others.stderr.contains("no probes went"), "{}", others.stderr);
        let probes = merge(&folder.path().join("out.db"), &["--align", "probes"], &inputs);
        assert_eq!(probes.method("gpu001"), "none");
        let line = "gpu001 (rank 1): no probes reach it: not aligned, times unchanged and not comparable with others";
        assert!(probes.stderr.contains(line), "{}", probes.stderr);
    }
}

#[test]
fn a_node_that_joins_late_is_as_exact_from_then_on() {
    let run = alone(3).plan();
    let folder = tempfile::tempdir().unwrap();
    let joined = run.length() / 2;
    let from = run.nodes[1].clock.raw(rpd_tests::synthetic::RUN_START + joined);
    let seen = but(&run, |rank, seen| {
        if rank.node == 1 {
            seen.bursts = run.probes_between(1, 0, [joined, run.length()]);
            seen.sets.retain(|set| set.monotonic_raw >= from);
        }
    });
    let inputs = shards(&run, &folder.path().join("in"), &seen);
    let merged = merge(&folder.path().join("out.db"), &[], &inputs);
    assert_eq!((merged.method("gpu001"), merged.method("gpu002")), ("probes", "probes"));
    let errors = errors(&run, &run.ranks[1], 0, &merged.database);
    let later = &errors[errors.len() / 2..];
    let bar = merged.number("gpu001", "bar_ns");
    assert!(worst(later) <= bar && bar < 30_000, "{}: {}", worst(later), merged.clock("gpu001"));
    // What is before goes on at the same rate: three seconds with the error of a rate measured over three.
    assert!(worst(&errors) < 100_000, "{}", worst(&errors));
    assert_within_the_bar(&run, 2, 0, &merged);
}

#[test]
fn an_agent_that_was_killed_leaves_what_it_had_measured() {
    let run = alone(3).plan();
    let folder = tempfile::tempdir().unwrap();
    let domains: Vec<_> = run.nodes.iter().map(|node| node.clock.domain.clone()).collect();
    // Killed in the middle: no last burst, no clock set at the end, no end of the shard.
    let middle = run.nodes[1].clock.raw(rpd_tests::synthetic::RUN_START + run.length() / 2);
    let seen = but(&run, |rank, seen| {
        if rank.node == 1 {
            seen.bursts.retain(|burst| burst.best[0].t1 < middle);
            seen.sets.retain(|set| set.monotonic_raw < middle);
        }
        seen.bursts.retain(|burst| burst.to != domains[1]);
    });
    let inputs = shards(&run, &folder.path().join("in"), &seen);
    let whole = fs::read(&inputs[1]).unwrap();
    let blocks = rpd_tests::crafted::blocks(&whole);
    let is_end = |kind| matches!(kind, BlockKind::Ledger | BlockKind::Index);
    let end = blocks.iter().find(|block| is_end(block.header.kind)).unwrap();
    fs::write(&inputs[1], &whole[..end.offset as usize]).unwrap();
    let merged = merge(&folder.path().join("out.db"), &[], &inputs);
    assert_eq!(merged.method("gpu001"), "probes", "{}", merged.stderr);
    assert!(merged.number("gpu001", "probes") >= 1);
    // One or two bursts: the bar knows that the rate is hardly known, and that the run went on.
    assert_within_the_bar(&run, 1, 0, &merged);
    assert_within_the_bar(&run, 2, 0, &merged);
    assert!(merged.stderr.contains("not finished by its collector"), "{}", merged.stderr);
}

#[test]
fn without_rank_0_the_lowest_rank_is_the_reference_and_the_database_says_so() {
    let run = probed(4, 1).plan();
    let folder = tempfile::tempdir().unwrap();
    // Its node is not there: the others asked each other, and at first that one, too.
    let there = SyntheticRun { missing_rank: Some(0), ..probed(4, 1) }.plan();
    let seen = |rank: &ModelRank| {
        let mut seen = ObservedClocks::of(&there, rank);
        seen.bursts.extend((rank.rank == 2).then(|| run.probes(rank)).into_iter().flatten());
        (rank.rank != 0).then_some(seen)
    };
    let inputs = shards(&run, &folder.path().join("in"), &seen);
    assert_eq!(inputs.len(), 3);
    let merged = merge(&folder.path().join("out.db"), &[], &inputs);
    assert_eq!(merged.method("gpu001"), "reference");
    assert_eq!(merged.database.metadata()["rpd.clock.reference"], ["gpu001"]);
    assert!(
        merged.line("gpu001").ends_with("  reference, times unchanged; of rank 0 nothing is there"),
        "{}",
        merged.stderr
    );
    assert_eq!(worst(&errors(&run, &run.ranks[1], 1, &merged.database)), 0);
    for (rank, host) in [(2, "gpu002"), (3, "gpu003")] {
        assert_eq!(merged.method(host), "fusion", "{}", merged.stderr);
        assert_within_the_bar(&run, rank, 1, &merged);
    }
    // Where another rank of its node is there, nothing changes.
    let run = probed(2, 2).plan();
    let inputs = shards(&run, &folder.path().join("two"), &everything(&run));
    let merged = merge(&folder.path().join("out.db"), &[], &inputs[1..]);
    assert_eq!(merged.database.metadata()["rpd.clock.reference"], ["gpu000"]);
    assert!(merged.line("gpu000").contains("  reference, times unchanged"), "{}", merged.stderr);
}

#[test]
fn of_256_nodes_all_are_aligned() {
    let job = PlainJob::new(256, 60, 500_000_000);
    let folder = tempfile::tempdir().unwrap();
    let _ = job.shards(&folder.path().join("in"), &|rank| Some(job.seen(rank)));
    let out = folder.path().join("out.db");
    let merging = merging(&out, &[]).arg(folder.path().join("in")).limit(Duration::from_secs(90));
    let merged = opened(&merging.run().success(), &out);
    let mut inside = [0, 0];
    for rank in &job.run.ranks[1..] {
        let host = &job.run.nodes[rank.node].node.hostname;
        assert_eq!(merged.method(host), "fusion", "{}", merged.clock(host));
        let (errors, bar) = (job.errors(rank, 0, &merged.database), merged.number(host, "bar_ns"));
        assert!(worst(&errors) < 10_000 && bar < 20_000, "{} {}", worst(&errors), merged.clock(host));
        inside[0] += errors.iter().filter(|error| error.abs() <= bar).count();
        inside[1] += errors.len();
    }
    assert!(inside[0] * 100 >= inside[1] * 95, "{inside:?}");
    // Those that need a look, and the reference; the rest in one line.
    let lines: Vec<&str> = merged.stderr.lines().filter(|line| line.starts_with("clock ")).collect();
    assert_eq!(lines.len(), 1 + 12 + 1, "{lines:?}");
    assert!(lines[1].starts_with("clock      gpu000 (rank 0) "), "{lines:?}");
    assert!(lines[13].starts_with("clock      and 244 more, error bounds from "), "{lines:?}");
    assert!(lines[13].ends_with("; rpd-merge --json lists all"), "{lines:?}");
}
