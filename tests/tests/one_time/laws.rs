//! What must be so whatever the clocks are.

use super::*;
use rpd_clocks::AlignMethod;
use rpd_shard::ShardWriter;
use rpd_shard::model::{Value as Stored, native};
use rpd_shard::record::{Clock, Process};
use rpd_tests::harness::{mpi_missing, rpd_merge_mpi, skip};
use rpd_tests::synthetic::{process_record, run_identity, write_rocpd};
use std::collections::BTreeMap;

/// Every time of every row of a database.
fn times(database: &Database) -> BTreeMap<String, Vec<Vec<String>>> {
    let mut all = BTreeMap::new();
    for table in database.names("table").into_iter().filter(|name| name.starts_with("rocpd_")) {
        let columns = database.rows(&format!("SELECT name FROM pragma_table_info('{table}')"));
        let is_time =
            |name: &&String| ["start", "end", "timestamp", "init", "fini"].contains(&name.trim_matches('\''));
        let columns: Vec<String> = columns.into_iter().flatten().collect();
        let columns: Vec<&str> = columns.iter().filter(is_time).map(|name| name.trim_matches('\'')).collect();
        if !columns.is_empty() {
            let rows = database.rows(&format!("SELECT id, \"{}\" FROM \"{table}\"", columns.join("\", \"")));
            all.insert(table, rows);
        }
    }
    assert!(all.values().map(Vec::len).sum::<usize>() > 1_000, "a test of nothing");
    all
}

#[test]
fn a_merge_of_one_node_changes_no_time() {
    // Two ranks on one node, of which the agent has asked other nodes, which are not there.
    let run = short(3, 2).plan();
    let folder = tempfile::tempdir().unwrap();
    let mut seen: Vec<ObservedClocks> = run.ranks.iter().map(|rank| ObservedClocks::of(&run, rank)).collect();
    seen[2].bursts.extend(run.probes_between(2, 1, [0, run.length()]));
    let of_node_1 = |rank: &ModelRank| (rank.node == 1).then(|| seen[rank.rank as usize].clone());
    let shards = shards(&run, &folder.path().join("shards"), &of_node_1);
    let databases = write_rocpd(&run, &folder.path().join("databases")).unwrap();
    let rpd = folder.path().join("a.rpd");
    let _ = rpd_merge().args(["--format", "rpd", "-o"]).arg(&rpd).args(&databases[2..4]).run().success();
    for inputs in [shards.clone(), databases[2..4].to_vec(), vec![rpd]] {
        let [auto, none] = [&["--align", "auto", "--repair-causality"][..], &["--align", "none"]]
            .map(|arguments| merge(&folder.path().join("out.db"), arguments, &inputs));
        let (auto, none) = (times(&auto.database), times(&none.database));
        assert!(auto == none, "{inputs:?}");
    }
    let merged = merge(&folder.path().join("out.db"), &[], &shards);
    for rank in &run.ranks[2..4] {
        assert_eq!(worst(&errors(&run, rank, 1, &merged.database)), 0);
    }
    assert_eq!(merged.report["clocks"].as_array().unwrap().len(), 1, "{}", merged.stderr);
    assert!(
        merged.stderr.contains("clock      one clock, of gpu001 (ranks 2-3): times unchanged\n"),
        "{}",
        merged.stderr
    );
}

/// The run in which all clocks of one node are ahead by so much.
fn shifted(run: &Run, node: usize, ahead: i64) -> Run {
    let mut run = run.clone();
    run.nodes[node].clock.offset += ahead;
    run
}

#[test]
fn a_shift_of_one_node_moves_its_estimate_by_as_much_and_nothing_else() {
    let run = short(3, 1).plan();
    let folder = tempfile::tempdir().unwrap();
    let (before, out) = (folder.path().join("before.db"), folder.path().join("out.db"));
    let day = 86_400_000_000_000;
    for by in ["auto", "probes", "collectives"] {
        let told = |run: &Run, out: &Path| {
            let inputs = shards(run, &folder.path().join("in"), &everything(run));
            merge(out, &["--align", by], &inputs)
        };
        let first = told(&run, &before);
        let shifts = [-1, 40 * day + 1, 1, 999, -1_000_003, -7 * day - 13];
        for &ahead in if by == "auto" { &shifts[..] } else { &shifts[..2] } {
            let second = told(&shifted(&run, 1, ahead), &out);
            let moved = second.number("gpu001", "offset_ns") - first.number("gpu001", "offset_ns");
            assert_eq!(moved, -ahead, "by {by}");
            for host in ["gpu000", "gpu002"] {
                assert_eq!(first.clock(host), second.clock(host));
            }
            let but_offset = |merged: &Merged| {
                let mut row = merged.clock("gpu001").clone();
                row["offset_ns"].take();
                row
            };
            assert_eq!(but_offset(&first), but_offset(&second), "by {by}, {ahead} ns");
            assert_eq!(first.report["late_ranks"], second.report["late_ranks"]);
            assert_eq!(first.report["lateness"], second.report["lateness"]);
            assert!(times(&first.database) == times(&second.database), "by {by}, {ahead} ns");
        }
    }
}

#[test]
fn a_shift_of_the_reference_moves_all_estimates_by_as_much() {
    let run = short(3, 1).plan();
    let folder = tempfile::tempdir().unwrap();
    let told = |run: &Run| {
        let inputs = shards(run, &folder.path().join("in"), &everything(run));
        merge(&folder.path().join("out.db"), &[], &inputs)
    };
    let first = told(&run);
    for ahead in [1, -86_400_000_000_001] {
        let second = told(&shifted(&run, 0, ahead));
        for host in ["gpu001", "gpu002"] {
            assert_eq!(second.number(host, "offset_ns") - first.number(host, "offset_ns"), ahead);
            assert_eq!(second.clock(host)["bar_ns"], first.clock(host)["bar_ns"]);
        }
    }
}

#[test]
fn order_of_inputs_and_threads_change_nothing() {
    let run = short(4, 1).plan();
    let folder = tempfile::tempdir().unwrap();
    let mut inputs = shards(&run, &folder.path().join("in"), &everything(&run));
    let [first, second] = ["a.db", "b.db"].map(|name| folder.path().join(name));
    let told = merge(&first, &["--threads", "2"], &inputs);
    assert_eq!(told.method("gpu003"), AlignMethod::Fusion.name());
    for threads in ["1", "2"] {
        inputs.rotate_left(1);
        inputs.swap(0, 1);
        // Names tell nothing either.
        let moved = folder.path().join(format!("moved-{threads}"));
        fs::create_dir(&moved).unwrap();
        let renamed = |(i, path): (usize, &PathBuf)| {
            let to = moved.join(format!("{}.rpdshard", 9 - i));
            fs::copy(path, &to).unwrap();
            to
        };
        let renamed: Vec<PathBuf> = inputs.iter().enumerate().map(renamed).collect();
        let again = merge(&second, &["--threads", threads], &renamed);
        assert!(fs::read(&first).unwrap() == fs::read(&second).unwrap(), "the databases differ");
        assert_eq!(told.report["clocks"], again.report["clocks"]);
    }
}

#[test]
fn under_mpi_the_number_of_merge_ranks_changes_nothing() {
    if let Some(why) = mpi_missing() {
        return skip("merge ranks", why);
    }
    let run = short(3, 2).plan();
    let folder = tempfile::tempdir().unwrap();
    let inputs = shards(&run, &folder.path().join("in"), &everything(&run));
    let alone = folder.path().join("alone.db");
    let told = merge(&alone, &["--repair-causality"], &inputs);
    assert_eq!(told.method("gpu002"), AlignMethod::Fusion.name());
    for (ranks, threads) in [(1, "1"), (2, "1"), (2, "2"), (3, "1")] {
        let out = folder.path().join("out.db");
        let arguments = ["--force", "--json", "--repair-causality", "--threads", threads, "-o"];
        let outcome = rpd_merge_mpi(ranks).args(arguments).arg(&out).args(&inputs).run().success();
        let again = opened(&outcome, &out);
        for what in ["clocks", "collectives", "late_ranks"] {
            assert_eq!(told.report[what], again.report[what], "{ranks} ranks");
        }
        assert!(fs::read(&alone).unwrap() == fs::read(&out).unwrap(), "{ranks} ranks: the databases differ");
    }
}

#[test]
fn times_of_another_clock_stay_on_it_where_nothing_converts_them_and_the_database_says_so() {
    let run = short(1, 1).plan();
    let folder = tempfile::tempdir().unwrap();
    for (with_sets, named) in [(false, "CLOCK_MONOTONIC"), (true, "CLOCK_BOOTTIME")] {
        let mut shard = ShardWriter::new(Vec::new(), &run_identity(&run, 0)).unwrap();
        let process = Process { clock: Clock::Monotonic, ..process_record(&run, &run.ranks[0].processes[0]) };
        shard.process(&process).unwrap();
        let sets = run.clock_sets(&run.ranks[0]);
        sets.iter().filter(|_| with_sets).for_each(|set| shard.clock(set).unwrap());
        let none = Stored::Null;
        let (one, tid) = (Stored::Int(1), Stored::Int(7));
        shard.push(1, rocpd::INFO_THREAD, &[one, one, one, tid, none, none, none, none]).unwrap();
        let name = Stored::Int(shard.string(b"step").unwrap());
        let row = [one, Stored::Int(1_000), Stored::Int(2_000), name, one, Stored::Int(0)];
        shard.push(1, native::RANGE, &row).unwrap();
        let path = folder.path().join("rank-00000.rpdshard");
        fs::write(&path, shard.finish().unwrap()).unwrap();
        let merged = merge(&folder.path().join("out.db"), &[], &[path]);
        assert_eq!(merged.database.metadata()["rpd.clock"], [format!("{named} of the reference node")]);
        let moved = if with_sets { sets[0].boottime - sets[0].monotonic } else { 0 };
        assert_eq!(merged.database.number("SELECT start FROM rocpd_region"), 1_000 + moved);
    }
}
