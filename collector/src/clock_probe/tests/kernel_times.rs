//! Receive times of the kernel, on nodes where `CLOCK_REALTIME` differs, is stepped, or gives no stamps.

use super::*;
use std::sync::atomic::{AtomicI64, Ordering::Relaxed};

/// The shortest round trip of the middle burst, ns.
fn usual_round_trip(bursts: &[ProbeBurst]) -> i64 {
    let mut trips: Vec<i64> = bursts.iter().map(|burst| burst.best[0].round_trip().unwrap()).collect();
    trips.sort_unstable();
    trips[trips.len() / 2]
}

/// A node with a kernel that does not stamp packets.
fn without_stamps(config: ProbeConfig) -> ProbeConfig {
    ProbeConfig { clock: NodeClock { stamp: |_| None, ..config.clock }, ..config }
}

#[test]
fn kernel_times_are_true_and_have_shorter_round_trips_than_times_of_the_program() {
    let root = tempfile::tempdir().unwrap();
    let mut nodes = start_in_order(root.path(), "kernel", &[0, 1, 2, 3]);
    for node in 0..2 {
        nodes.push(start(without_stamps(config(root.path(), "program", node))));
        let _ = root_of(root.path(), "program");
    }
    sleep(2000);
    let bursts = end_all(nodes);
    bursts.iter().for_each(|bursts| assert_true(bursts));
    for bursts in &bursts[1..4] {
        assert!(bursts.len() >= 3 && bursts.iter().all(|burst| burst.kernel_times), "{bursts:?}");
    }
    assert!(bursts[5].len() >= 3 && bursts[5].iter().all(|burst| !burst.kernel_times), "{:?}", bursts[5]);
    let (kernel, program) = (usual_round_trip(&bursts[1]), usual_round_trip(&bursts[5]));
    assert!(kernel < program * 3 / 4, "{kernel} ns by the kernels, {program} ns by the programs");
}

#[test]
fn where_one_kernel_notes_no_times_those_of_the_programs_count_on_both_sides() {
    for silent in [0, 1] {
        let root = tempfile::tempdir().unwrap();
        let nodes = (0..2).map(|node| {
            let config = config(root.path(), "mixed", node);
            let node = start(if node == silent { without_stamps(config) } else { config });
            let _ = root_of(root.path(), "mixed");
            node
        });
        let nodes: Vec<Node> = nodes.collect();
        sleep(500);
        let bursts = end_all(nodes).remove(1);
        assert!(bursts.len() >= 2 && bursts.iter().all(|burst| !burst.kernel_times), "{bursts:?}");
        assert_true(&bursts);
    }
}

/// How far REALTIME of node 1 is ahead of the machine's.
static SET: AtomicI64 = AtomicI64::new(0);

#[test]
fn a_realtime_that_is_set_during_a_run_does_no_harm() {
    let clock = NodeClock {
        realtime: || machine::realtime() + SET.load(Relaxed),
        stamp: |stamp| Some(stamp + SET.load(Relaxed)),
        ..CLOCKS[1]
    };
    let root = tempfile::tempdir().unwrap();
    let parent = start(config(root.path(), "set", 0));
    let _ = root_of(root.path(), "set");
    let child = start(ProbeConfig { clock, ..config(root.path(), "set", 1) });
    // Steps of REALTIME: large and small, forward and back, at any moment of a burst, and unnoticed by the
    // timer. A small step looks like slewing until the rate is measured again.
    for step in [3600 * SECOND, -20_000_000, -3600 * SECOND, 90_000, 2_000_000] {
        sleep(333);
        SET.fetch_add(step, Relaxed);
    }
    sleep(1500);
    let bursts = end_all(vec![parent, child]).remove(1);
    assert_true(&bursts);
    assert!(bursts.len() >= 6 && bursts.last().unwrap().kernel_times, "{bursts:?}");
}

/// Number of readings of REALTIME of node 1.
static READINGS: AtomicI64 = AtomicI64::new(0);

/// Steps by an hour once in a hundred readings.
fn ahead_by_readings() -> i64 {
    READINGS.load(Relaxed) / 100 * 3600 * SECOND
}

#[test]
fn a_burst_discards_what_was_measured_before_realtime_was_set() {
    let realtime = || {
        READINGS.fetch_add(1, Relaxed);
        machine::realtime() + ahead_by_readings()
    };
    let stamp = |stamp| Some(stamp + ahead_by_readings());
    let clock = NodeClock { realtime, stamp, ..CLOCKS[1] };
    let root = tempfile::tempdir().unwrap();
    let parent = start(config(root.path(), "often", 0));
    let _ = root_of(root.path(), "often");
    let child = start(ProbeConfig { clock, ..config(root.path(), "often", 1) });
    sleep(1000);
    let bursts = end_all(vec![parent, child]).remove(1);
    assert_true(&bursts);
    assert!(bursts.len() >= 2, "the parent is still probed: {bursts:?}");
    // Each reply takes two readings or more.
    assert!(bursts.iter().all(|burst| burst.answered <= 60), "{bursts:?}");
    assert!(bursts.iter().any(|burst| burst.sent >= 200), "{bursts:?}");
}
