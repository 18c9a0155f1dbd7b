//! Roots that end, are killed, or are silent.

use super::super::folder::RootAgent;
use super::super::join::{JoinPacket, TreePlace};
use super::*;

/// Writes the file of a silent root.
fn leave_silent_root(root: &Path, test: &str, node: u64) -> (UdpSocket, AgentId) {
    let dead = UdpSocket::bind("127.0.0.1:0").unwrap();
    let (agent, addresses) = (AgentId(node + 1_000), vec![dead.local_addr().unwrap()]);
    let card = AgentCard { agent, domain: domain(node), addresses };
    folder(root, test).replace_root(&RootAgent { card, key: PacketKey::random().unwrap() }).unwrap();
    (dead, agent)
}

#[test]
fn a_root_that_was_killed_in_an_earlier_run_is_replaced_and_a_late_node_is_found() {
    let root = tempfile::tempdir().unwrap();
    let (_dead, silent) = leave_silent_root(root.path(), "late", 0);
    let (first, second) = (start(config(root.path(), "late", 2)), start(config(root.path(), "late", 5)));
    let began = Instant::now();
    let new = next_root(root.path(), "late", Some(silent));
    assert!(began.elapsed() < 4 * QUICK.next_deadline, "it took {:?}", began.elapsed());
    sleep(800);
    let late = start(config(root.path(), "late", 3));
    sleep(800);
    assert_eq!(root_of(root.path(), "late"), new);
    let bursts = end_all(vec![first, second, late]);
    bursts.iter().for_each(|bursts| assert_true(bursts));
    let root_node = new.card.domain.time_namespace;
    for (node, bursts) in [2, 5, 3].into_iter().zip(&bursts) {
        assert_eq!(bursts.is_empty(), node == root_node, "node {node}");
    }
    let late = probed(&bursts[2]);
    assert!(late.iter().all(|node| [2, 5].contains(node)), "{late:?}");
    assert!(!root.path().join(run_id("late")).join("clocks").exists(), "nothing is left");
}

#[test]
fn another_collector_of_the_node_takes_over_when_the_agent_is_killed() {
    let root = tempfile::tempdir().unwrap();
    let nodes = start_in_order(root.path(), "over", &[0, 1]);
    let third = start(ProbeConfig { rank: 12, ..config(root.path(), "over", 1) });
    sleep(500);
    let [parent, next] = nodes.try_into().ok().unwrap();
    let killed = machine::monotonic_raw();
    next.agent.kill();
    sleep(900);
    let (parent, third) = (parent.end(), third.end());
    assert_true(&third);
    assert!(parent.is_empty() && probed(&third) == [0], "{third:?}");
    let first = times(1, &third)[0];
    assert!(first > killed && first < killed + SECOND / 2, "one at a time, and soon");
}

#[test]
fn two_agents_of_a_node_that_do_not_see_each_other_both_measure() {
    let root = tempfile::tempdir().unwrap();
    let parent = start_in_order(root.path(), "both", &[0]);
    // A different name of the folder gives a different claim, as another network namespace would.
    let elsewhere = root.path().join(".");
    let both = [root.path(), Path::new(&format!("{}/.", elsewhere.display()))]
        .map(|path| start(ProbeConfig { rank: path.as_os_str().len() as u32, ..config(path, "both", 1) }));
    sleep(800);
    let bursts = end_all(parent.into_iter().chain(both).collect());
    bursts.iter().for_each(|bursts| assert_true(bursts));
    assert!(bursts[0].is_empty(), "the root");
    // One of them may have the other for its parent, with the same clock. That is not recorded.
    assert!(bursts[1..].iter().all(|bursts| probed(bursts) == [0]), "{bursts:?}");
}

#[test]
fn a_root_that_is_killed_is_replaced_and_all_measure_each_other_again() {
    let root = tempfile::tempdir().unwrap();
    let mut nodes = start_in_order(root.path(), "dead", &[0, 1, 2, 3, 4, 5]);
    sleep(500);
    let before = root_of(root.path(), "dead");
    assert_eq!(before.card.domain, domain(0));
    let killed = machine::monotonic_raw();
    nodes.remove(0).agent.kill();
    let new = next_root(root.path(), "dead", Some(before.card.agent));
    let within = 2 * QUICK.period + 2 * QUICK.next_deadline;
    sleep(within.as_millis() as u64);
    assert_eq!(new.key, before.key, "the secret of a run stays");
    let late = start(config(root.path(), "dead", 6));
    sleep(800);
    let ended = machine::monotonic_raw();
    let root_node = new.card.domain.time_namespace;
    let bursts = end_all(nodes.into_iter().chain([late]).collect());
    bursts.iter().for_each(|bursts| assert_true(bursts));
    for (node, bursts) in (1..).zip(&bursts) {
        let later: Vec<i64> =
            times(node, bursts).into_iter().filter(|time| (killed..ended).contains(time)).collect();
        assert_eq!(later.is_empty(), node == root_node, "node {node}: {later:?}");
        // Agents that probed the root itself have waited longest.
        let longest = killed + SECOND + within.as_nanos() as i64;
        assert!(later.first().is_none_or(|first| *first < longest || node == 6), "node {node}");
    }
    assert!(!root.path().join(run_id("dead")).join("clocks").exists(), "nothing is left");
}

#[test]
fn a_root_that_ends_first_hands_over_to_a_child() {
    let root = tempfile::tempdir().unwrap();
    let mut nodes = start_in_order(root.path(), "heir", &[0, 1, 2, 3]);
    sleep(500);
    let before = root_of(root.path(), "heir");
    let ended = Instant::now();
    nodes.remove(0).end_within(Duration::from_millis(400));
    let new = next_root(root.path(), "heir", Some(before.card.agent));
    assert!(ended.elapsed() < Duration::from_millis(500), "{:?}", ended.elapsed());
    assert!([domain(1), domain(2)].contains(&new.card.domain), "a child: {new:?}");
    assert_eq!(new.key, before.key);
    sleep(1_200);
    let late = start(config(root.path(), "heir", 4));
    sleep(600);
    let began = machine::monotonic_raw() - SECOND;
    let bursts = end_all(nodes.into_iter().chain([late]).collect());
    bursts.iter().for_each(|bursts| assert_true(bursts));
    let root_node = new.card.domain.time_namespace;
    for (node, bursts) in (1..).zip(&bursts) {
        let goes_on = times(node, bursts).iter().any(|time| *time > began);
        assert_eq!(goes_on, node != root_node, "node {node}: {:?}", probed(bursts));
    }
    assert_eq!(probed(&bursts[3])[0], root_node, "its only ancestor");
    assert!(!root.path().join(run_id("heir")).join("clocks").exists(), "nothing is left");
}

#[test]
fn where_nothing_replies_an_agent_takes_over_once_and_looks_less_and_less_often() {
    let root = tempfile::tempdir().unwrap();
    let (_first, first) = leave_silent_root(root.path(), "mute", 0);
    let own = config(root.path(), "mute", 1);
    let counts = std::sync::Arc::clone(&own.counts);
    let node = start(own);
    let taken = next_root(root.path(), "mute", Some(first));
    assert_eq!(taken.card.domain, domain(1));
    let taken_after = counts.all();
    sleep(600);
    // Another agent that receives no packet takes over as well. The first one does not read that.
    let (_second, second) = leave_silent_root(root.path(), "mute", 2);
    sleep(1_000);
    assert!(counts.all() <= taken_after + 7, "it waits, writes nothing and reads once: {}", counts.all());
    // An agent that loses against others reads the file again, and replaces none of them.
    let other = config(root.path(), "mute", 3);
    let counts = std::sync::Arc::clone(&other.counts);
    let loser = start(other);
    let third = next_root(root.path(), "mute", Some(second));
    assert_eq!(third.card.domain, domain(3));
    let (_third, third) = leave_silent_root(root.path(), "mute", 4);
    sleep(2_000);
    assert_eq!(root_of(root.path(), "mute").card.agent, third, "it takes over once");
    let looks = counts.all();
    sleep(4_000);
    assert!(counts.all() <= looks + 2 * 7, "{} after {looks}", counts.all());
    assert!(node.end().is_empty() && loser.end().is_empty());
    assert_eq!(root_of(root.path(), "mute").card.agent, third, "what names another agent is not removed");
}

#[test]
fn an_heir_that_ends_as_well_leaves_no_folder() {
    for removed_by_root in [false, true] {
        let root = tempfile::tempdir().unwrap();
        // The test is the root: it assigns the agent its place and hands over to it.
        let (socket, own) = leave_silent_root(root.path(), "ends", 0);
        let RootAgent { card, key } = root_of(root.path(), "ends");
        socket.set_read_timeout(Some(TIME_LIMIT)).unwrap();
        let heir = start(config(root.path(), "ends", 1));
        let mut bytes = [0; 1000];
        let mut has_joined = false;
        let (request, at) = loop {
            let (length, at) = socket.recv_from(&mut bytes).unwrap();
            if let Some(JoinPacket::Join(join)) = JoinPacket::open(&key, &bytes[..length]) {
                let (to, nonce, candidates) = (join.card.agent, join.nonce, vec![card.clone()]);
                let place = TreePlace { from: own, to, nonce, number: 1, first: 0, total: 1, candidates };
                socket.send_to(&JoinPacket::Place(place).seal(&key).unwrap(), at).unwrap();
                has_joined = true;
            } else if let Some(request) = key.open(&bytes[..length]).filter(|_| has_joined) {
                break (request, at);
            }
        };
        let (from, to) = (request.to, request.from);
        let handover = ProbePacket { kind: PacketKind::Handover, number: 0, from, to, ..request };
        let old = ProbePacket { burst: BurstId { nonce: 1, ..handover.burst }, ..handover };
        [old, handover].iter().for_each(|packet| drop(socket.send_to(&key.seal(packet), at)));
        let reply = loop {
            let (length, _) = socket.recv_from(&mut bytes).unwrap();
            match key.open(&bytes[..length]) {
                Some(reply) if reply.kind == PacketKind::Heir => break reply,
                _ => {}
            }
        };
        assert_eq!(reply.burst, request.burst, "no reply to a handover of another burst");
        if removed_by_root {
            // The root did not receive the reply of the heir in time.
            folder(root.path(), "ends").remove_root(own, QUICK.expiry).unwrap();
        }
        let _ = heir.end();
        assert!(!root.path().join(run_id("ends")).join("clocks").exists(), "{removed_by_root}");
    }
}
