//! Nodes that cannot measure their clocks, or not always, or not in peace.

use super::truth::{Offset, offsets};
use rpd_tests::cluster::{MergedJob, SlurmCluster, StepLauncher};
use rpd_tests::harness::{Job, python};
use std::time::Duration;

const AHEAD: [i64; 4] = [0, 1_500, 777_777, -30];
/// A node that is probed is off by less, ns.
const LIMIT: i64 = 100_000;
/// 6 s of training.
const STEPS: usize = 300;

fn collected(cluster: &SlurmCluster, words: &str, options: &[&str]) -> rpd_tests::cluster::Run {
    let training = cluster.training(STEPS);
    let training: Vec<&str> = training.iter().map(String::as_str).collect();
    let run = cluster.collect(StepLauncher::Srun, words, options, &training);
    eprintln!("{}", run.outcome);
    assert_eq!(run.outcome.code(), Some(0), "{}", run.outcome);
    assert!(run.outcome.stdout.contains("ranks: 4, steps: 300"), "{}", run.outcome);
    run
}

/// Whatever a node was aligned by: what is called certain is.
fn assert_certain(cluster: &SlurmCluster, merged: &MergedJob, reference: usize) -> Vec<Offset> {
    assert_eq!(merged.method(reference), "reference");
    let offsets = offsets(cluster, merged, reference);
    for offset in &offsets {
        assert!(offset.hard.is_none_or(|hard| offset.error.abs() <= hard), "{offset:?}");
    }
    offsets
}

/// Nodes with probes all the time, or for the most of it. Where all cores were busy, a reply may have taken
/// longer than that, or the probes and the collectives contradict each other and nothing is certain. Then
/// the merge has to say so: by the certain bound, or without one by a bar that large, of which the error is
/// no more than three.
fn assert_close(offsets: &[Offset]) {
    let is_close = |offset: &Offset| {
        let limit = match offset.hard {
            Some(hard) if hard > LIMIT => hard,
            None if offset.bar > LIMIT => 3 * offset.bar,
            _ => LIMIT,
        };
        offset.error.abs() <= limit
    };
    assert!(offsets.iter().all(is_close), "{offsets:?}");
}

/// Collectives count, too, where the probes do not refute them: here the nodes share a few cores.
fn assert_by_probes(offsets: &[Offset]) {
    assert!(methods(offsets).iter().all(|method| ["fusion", "probes"].contains(method)), "{offsets:?}");
}

fn methods(offsets: &[Offset]) -> Vec<&str> {
    offsets.iter().map(|offset| offset.method.as_str()).collect()
}

#[test]
fn nodes_without_probes_are_aligned_by_collectives_under_slurm() {
    let Some(cluster) = SlurmCluster::new(&AHEAD, "nodes without probes") else { return };
    // One has them switched off; the packets of the other reach no node. It comes last, as the others need up to 10 s
    // to replace a root that they do not reach, which is longer than the run.
    let words = "case $SLURM_PROCID in
        1) export RPD_PROBES=off ;;
        3) export RPD_PROBE_INTERFACE=lo; sleep 1 ;;
      esac; exec \"$@\"";
    let run = collected(&cluster, words, &[]);
    let merged = run.merge("some", &["--strict"]);
    let offsets = assert_certain(&cluster, &merged, 0);
    assert_eq!(methods(&offsets)[0], "collectives");
    assert_by_probes(&offsets[1..2]);
    assert_eq!(methods(&offsets)[2], "collectives");
    assert_close(&offsets[1..2]);
    assert_eq!([1, 3].map(|node| merged.clock(node)["probes"].as_i64().unwrap()), [0, 0]);
    // By collectives alone, all of them.
    assert_certain(&cluster, &run.merge("none", &["--align", "collectives"]), 0);
}

#[test]
fn a_late_node_a_killed_agent_and_no_rank_0_leave_the_others_aligned_under_slurm() {
    let Some(cluster) = SlurmCluster::new(&AHEAD, "a late node and a killed agent") else { return };
    // The process of the thread; a node sees its own processes only.
    let words = "case $SLURM_PROCID in
        2) (sleep 6
            for name in /proc/[0-9]*/task/*/comm; do
              if grep -qx rpd-probes $name; then kill -9 $(echo $name | cut -d / -f 3); echo agent killed; fi
            done) & ;;
        3) sleep 3 ;;
      esac; exec \"$@\"";
    let run = collected(&cluster, words, &[]);
    assert_eq!(run.outcome.stdout.matches("agent killed").count(), 1, "{}", run.outcome);
    let merged = run.merge("all", &[]);
    assert_eq!(
        merged.report["unfinished"].as_array().map(Vec::len),
        Some(1),
        "{}",
        merged.report["unfinished"]
    );
    let offsets = assert_certain(&cluster, &merged, 0);
    assert_by_probes(&offsets);
    assert_close(&offsets);

    // The lost node is a bridge: what others measured against it still joins them.
    std::fs::remove_file(run.shard(0)).unwrap();
    let merged = run.merge("without-rank-0", &[]);
    assert_eq!(merged.report["missing_ranks"], serde_json::json!([0]));
    let offsets = assert_certain(&cluster, &merged, 1);
    assert!(offsets.len() == 2, "{offsets:?}");
    assert_by_probes(&offsets);
    assert_close(&offsets);
}

/// Sends packets that are no valid requests to all ports of all nodes, for some seconds, and counts what
/// comes back.
const NOISE: &str = "
import os, socket, struct, sys, time
noise = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
noise.setblocking(False)
sent = replies = number = 0
end = time.monotonic() + float(sys.argv[1])
while time.monotonic() < end:
    for node in range(1, 5):
        for port in range(40000, 40004):
            number += 1
            request = struct.pack('<4s8B4xQQ', b'RPDP', 1, number % 4, 0, 0, 0, 0, 0, 0, number, number)
            packet = [os.urandom(number % 1400), request.ljust(64, b'\\0') + os.urandom(32),
                      b'RPDP\\1\\1\\0\\0' + os.urandom(88), b''][number % 4]
            try:
                noise.sendto(packet, (f'10.77.0.{node}', port))
                sent += 1
            except OSError:
                pass
            try:
                noise.recvfrom(2048)
                replies += 1
            except OSError:
                pass
    time.sleep(0.004)
print('sent', sent, 'replies', replies)
";

#[test]
fn garbage_and_a_wrong_key_change_nothing_for_the_others_under_slurm() {
    let Some(cluster) = SlurmCluster::new(&AHEAD, "garbage at the probe ports") else { return };
    // The last node sees another secret than the others.
    let words = "case $SLURM_PROCID in
        3) run=$RPD_CLUSTER/runs/job
           until [ -s $run/clocks/root ]; do sleep 0.1; done
           (umask 077 && sed 's/^secret ..../secret 0000/' $run/clocks/root >$RPD_CLUSTER/wrong)
           exec unshare --mount sh -c 'mount --bind $RPD_CLUSTER/wrong $0 && exec \"$@\"' $run/clocks/root \"$@\" ;;
      esac; exec \"$@\"";
    let noise = || -> Job {
        let job = cluster.on("head").arg(python()).args(["-c", NOISE, "8"]);
        job.limit(Duration::from_secs(60))
    };
    let (run, noise) = std::thread::scope(|scope| {
        let noise = scope.spawn(|| noise().run().success());
        let options = ["--probe-ports", "40000-40003", "--run-id", "job"];
        (collected(&cluster, words, &options), noise.join().unwrap())
    });
    let counted: Vec<&str> = noise.stdout.split_whitespace().collect();
    let [_, sent, _, replies] = counted[..] else { panic!("{noise}") };
    assert!(sent.parse::<u64>().unwrap() > 500, "{noise}");
    assert_eq!(replies, "0", "{noise}");
    let merged = run.merge("all", &["--strict"]);
    let offsets = assert_certain(&cluster, &merged, 0);
    assert_by_probes(&offsets[..2]);
    assert_eq!(methods(&offsets)[2..], ["collectives"]);
    assert_close(&offsets[..2]);
    assert_eq!(merged.clock(3)["probes"], 0);
}
