//! Agents with made-up clocks on the loopback of this machine, and who means them ill.

mod kernel_times;
mod node_clocks;

use super::burst::{MOST_QUESTIONS, Route};
use super::folder::{Card, Claimed, DomainId, Folder, Listed};
use super::kernel_times::ReceiveTime;
use super::packet::{BurstId, Key, Kind, PACKET_BYTES, Packet};
use super::sockets::Sockets;
use super::*;
use crate::machine;
use crate::output::{Batch, DEFAULT_MAX_BYTES, Item, Output, ShardPlace};
use node_clocks::{AHEAD, CLOCKS, SECOND};
use rpd_shard::Shard;
use rpd_shard::rank_set::RankSet;
use rpd_shard::record::{ProbeBurst, RunIdentity};
use std::net::{IpAddr, SocketAddr, UdpSocket};
use std::path::Path;
use std::sync::mpsc::Receiver;

const TIME_LIMIT: Duration = Duration::from_secs(60);
const HERE: [IpAddr; 1] = [IpAddr::V4(std::net::Ipv4Addr::LOCALHOST)];

const QUICK: Pace = Pace {
    period: Duration::from_millis(200),
    first_look: Duration::from_millis(20),
    beat: Duration::from_millis(100),
    expiry: Duration::from_millis(600),
    retry: Duration::from_millis(50),
};

fn domain(node: u64) -> ClockDomain {
    ClockDomain { boot_id: format!("node {node}"), time_namespace: node }
}

/// A collector with nothing but its agent.
struct Node {
    agent: ProbeAgent,
    output: Output,
    finished: Receiver<Option<PathBuf>>,
    shard: PathBuf,
}

/// A run of its own: other tests have the same machine.
fn run_id(test: &str) -> String {
    format!("{test}-{}", std::process::id())
}

fn config(root: &Path, test: &str, node: u64) -> ProbeConfig {
    let choice = ProbeChoice { interface: "127.0.0.1".parse().ok(), ..ProbeChoice::default() };
    let mut config =
        ProbeConfig::new(root.to_owned(), run_id(test), node as u32, domain(node), false, choice);
    (config.pace, config.clock) = (QUICK, CLOCKS[node as usize % 4]);
    config
}

fn start(config: ProbeConfig) -> Node {
    let run = RunIdentity {
        run_id: config.run_id.clone(),
        run_id_from: "test".to_owned(),
        rank: Some(config.rank),
        size: None,
        version: String::new(),
    };
    let shard = config.root.join(&config.run_id).join(format!("rank-{:05}.rpdshard", config.rank));
    let place = ShardPlace {
        root: config.root.clone(),
        run,
        ranks: RankSet::default(),
        domain: config.domain.clone(),
        max_bytes: DEFAULT_MAX_BYTES,
        share_group: config.share_group,
        always: false,
    };
    let (output, finished) = Output::start(place).unwrap();
    let agent = ProbeAgent::start(config, output.side()).unwrap();
    Node { agent, output, finished, shard }
}

impl Node {
    /// Ends it as the end of a command does, and returns its bursts.
    fn end(self) -> Vec<ProbeBurst> {
        self.end_within(Duration::from_secs(5))
    }

    fn end_within(mut self, most: Duration) -> Vec<ProbeBurst> {
        let began = Instant::now();
        self.agent.stop();
        self.agent.wait_until_measured();
        let _ = self.output.send(Batch::of(vec![Item::End]));
        self.finished.recv_timeout(TIME_LIMIT).unwrap();
        self.agent.leave();
        assert!(began.elapsed() < most, "it took {:?} to end", began.elapsed());
        let shard = Shard::open(&self.shard).unwrap();
        assert!(shard.complete() && shard.damage().is_empty());
        shard.probes
    }
}

/// Ends all at about the same time.
fn end_all(nodes: Vec<Node>) -> Vec<Vec<ProbeBurst>> {
    let ending: Vec<_> = nodes.into_iter().map(|node| std::thread::spawn(|| node.end())).collect();
    ending.into_iter().map(|thread| thread.join().unwrap()).collect()
}

fn sleep(ms: u64) {
    std::thread::sleep(Duration::from_millis(ms));
}

/// The true offset is within half of the round trip of every probe.
fn assert_true(bursts: &[ProbeBurst]) {
    for burst in bursts {
        let ahead = |domain: &ClockDomain| AHEAD[domain.time_namespace as usize % 4];
        let truth = ahead(&burst.to) - ahead(&burst.from);
        for probe in &burst.best {
            let (off, half) = ((probe.offset() - truth).abs(), probe.round_trip().unwrap() / 2 + 1);
            assert!(off <= half, "{off} ns off, {half} ns allowed: {burst:?}");
        }
    }
}

fn asked(bursts: &[ProbeBurst]) -> Vec<u64> {
    let mut peers: Vec<u64> = bursts.iter().map(|burst| burst.to.time_namespace).collect();
    peers.dedup();
    peers
}

fn folder(root: &Path, test: &str, node: u64) -> Folder {
    let run = root.join(run_id(test));
    std::fs::create_dir_all(&run).unwrap();
    let run = std::sync::Arc::new(rpd_files::HeldFolder::open(&run).unwrap());
    Folder::make(&run, false, DomainId::of(&domain(node))).unwrap()
}

/// The card of a node, once it is there.
fn card(folder: &Folder, node: u64) -> Card {
    let began = Instant::now();
    loop {
        let wanted = DomainId::of(&domain(node));
        let listed = folder.list().unwrap().into_iter().find(|agent: &Listed| agent.domain == wanted);
        if let Some(card) = listed.and_then(|agent| folder.card(agent)) {
            return card;
        }
        assert!(began.elapsed() < TIME_LIMIT, "no card");
        sleep(5);
    }
}

#[test]
fn children_measure_their_parents_at_the_start_in_between_and_at_the_end() {
    let root = tempfile::tempdir().unwrap();
    let nodes: Vec<Node> = (0..4).map(|node| start(config(root.path(), "tree", node))).collect();
    sleep(1500);
    let bursts = end_all(nodes);
    bursts.iter().for_each(|bursts| assert_true(bursts));
    assert_eq!(bursts[0], [], "the root asks nobody");
    for (node, parent) in [(1, 0), (2, 0), (3, 2)] {
        let own = &bursts[node];
        let to_parent: Vec<_> = own.iter().filter(|burst| burst.to == domain(parent)).collect();
        assert!(own.iter().all(|burst| burst.from == domain(node as u64)));
        assert!(to_parent.len() >= 3, "node {node} asked {:?}", asked(own));
        assert!(own[0].sent >= 200 && own.last().unwrap().sent >= 200, "at the start and the end");
        assert!(own.iter().any(|burst| burst.sent == 20), "in between");
        assert!(own.iter().all(|burst| burst.best.len() >= 3.min(burst.answered as usize)));
    }
    assert!(!root.path().join(run_id("tree")).join("clocks").exists(), "nothing is left");
}

#[test]
fn a_late_node_is_found_and_a_root_that_is_gone_costs_nothing_else() {
    let root = tempfile::tempdir().unwrap();
    // Node 0 died before: its card and its secret are still there, its port is silent.
    let dead = UdpSocket::bind("127.0.0.1:0").unwrap();
    let left = folder(root.path(), "late", 0);
    left.secret().unwrap();
    left.publish(0, &Card { domain: domain(0), addresses: vec![dead.local_addr().unwrap()] }).unwrap();
    let (first, second) = (start(config(root.path(), "late", 2)), start(config(root.path(), "late", 5)));
    sleep(800);
    let late = start(config(root.path(), "late", 3));
    sleep(1200);
    let bursts = end_all(vec![first, second, late]);
    bursts.iter().for_each(|bursts| assert_true(bursts));
    assert_eq!(bursts[0], [], "nobody is there to ask");
    assert_eq!(asked(&bursts[1])[0], 2, "the lowest that lives");
    // In the order 0, 2, 3, 5 the parent of 5 is 3, and of 3 it is 0, who is silent.
    assert!(asked(&bursts[1]).contains(&3) && asked(&bursts[2]) == [2], "{:?}", asked(&bursts[1]));
}

#[test]
fn another_collector_of_the_node_takes_over_when_the_agent_is_gone() {
    let root = tempfile::tempdir().unwrap();
    let parent = start(config(root.path(), "over", 0));
    // The agent of node 1 is in another network namespace, and dies now.
    let left = folder(root.path(), "over", 1);
    let claimed = Claimed { holder: 1, network: 2, rank: 1, beat: machine::boottime() };
    assert!(left.claim(&claimed).unwrap());
    let next = start(ProbeConfig { rank: 9, ..config(root.path(), "over", 1) });
    sleep(300);
    assert_eq!(left.claimed().unwrap(), Some(claimed), "it may still live");
    sleep(900);
    let taken = left.claimed().unwrap().unwrap();
    assert!(taken.holder != 1 && taken.rank == 1 && taken.beat > claimed.beat, "{taken:?}");
    // A third one of the node waits as long as the second lives.
    let third = start(ProbeConfig { rank: 12, ..config(root.path(), "over", 1) });
    sleep(500);
    let bursts = next.end();
    assert_eq!(asked(&bursts), [0]);
    sleep(500);
    let (parent, third) = (parent.end(), third.end());
    assert_true(&bursts);
    assert_true(&third);
    assert!(parent.is_empty() && asked(&third) == [0], "{third:?}");
    let last = |bursts: &[ProbeBurst]| bursts.last().unwrap().best[0].t1;
    assert!(third[0].best[0].t1 > last(&bursts), "one at a time");
}

#[test]
fn an_agent_whose_place_was_taken_gives_way() {
    let root = tempfile::tempdir().unwrap();
    let (parent, node) = (start(config(root.path(), "give", 0)), start(config(root.path(), "give", 1)));
    let seen = folder(root.path(), "give", 1);
    card(&seen, 1);
    sleep(300);
    let holder = || seen.claimed().unwrap().unwrap().holder;
    // The agent may be about to say that it lives, just now; then the other one is the one to give way.
    let taken = (0..5).any(|_| {
        let other = Claimed { holder: 1, network: 2, rank: 1, beat: machine::boottime() };
        seen.claim_again(&other).unwrap();
        sleep(400);
        holder() == 1
    });
    assert!(taken, "the other one lives");
    sleep(900);
    assert_ne!(holder(), 1, "it was not heard of again");
    let bursts = node.end();
    assert_true(&bursts);
    assert!(asked(&bursts) == [0] && parent.end().is_empty());
}

#[test]
fn sixty_four_agents_on_one_machine_all_find_somebody_to_ask() {
    let root = tempfile::tempdir().unwrap();
    let pace = Pace { period: Duration::from_secs(1), ..QUICK };
    let nodes: Vec<Node> =
        (0..64).map(|node| start(ProbeConfig { pace, ..config(root.path(), "many", node) })).collect();
    sleep(4000);
    let bursts = end_all(nodes);
    bursts.iter().for_each(|bursts| assert_true(bursts));
    let silent = bursts.iter().filter(|bursts| bursts.is_empty()).count();
    assert_eq!(silent, 1, "but for the root");
}

#[test]
fn a_run_without_others_ends_at_once() {
    let root = tempfile::tempdir().unwrap();
    let node = start(config(root.path(), "single", 0));
    card(&folder(root.path(), "single", 0), 0);
    assert_eq!(node.end_within(Duration::from_millis(250)), []);
}

#[test]
fn a_parent_that_ends_first_has_its_children_ask_once_more_and_does_not_wait_long() {
    let root = tempfile::tempdir().unwrap();
    let (parent, child) = (start(config(root.path(), "first", 0)), start(config(root.path(), "first", 1)));
    sleep(700);
    let ended = Instant::now();
    parent.end_within(Duration::from_millis(280));
    let took = ended.elapsed();
    sleep(100);
    let bursts = child.end();
    assert_true(&bursts);
    assert!(bursts.last().unwrap().sent >= 200, "{bursts:?}");
    // One that has died cannot say goodbye, and is waited for no longer than this.
    let silent = start(config(root.path(), "first", 0));
    let (asker, key) = asker(root.path(), "first", 0);
    assert!(asker.answer(&key.seal(&asker.question(1, 0))).is_some());
    let ended = Instant::now();
    silent.end_within(Duration::from_millis(600));
    assert!(ended.elapsed() > Duration::from_millis(290) && took < Duration::from_millis(290), "{took:?}");
}

/// Somebody who knows the secret, or not, and asks by hand.
struct Asker {
    socket: UdpSocket,
    at: SocketAddr,
    node: u64,
}

fn asker(root: &Path, test: &str, node: u64) -> (Asker, Key) {
    let folder = folder(root, test, 999);
    let at = card(&folder, node).addresses[0];
    let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
    socket.set_read_timeout(Some(Duration::from_secs(2))).unwrap();
    (Asker { socket, at, node }, folder.secret().unwrap())
}

impl Asker {
    fn question(&self, began: i64, number: u32) -> Packet {
        let (from, to) = (DomainId::of(&domain(999)).short(), DomainId::of(&domain(self.node)).short());
        let burst = BurstId { began, nonce: 3 };
        Packet { kind: Kind::Ask, burst, number, from, to, received: ReceiveTime::default(), sent: 5 }
    }

    fn send(&self, bytes: &[u8]) {
        self.socket.send_to(bytes, self.at).unwrap();
    }

    fn answer(&self, bytes: &[u8]) -> Option<Vec<u8>> {
        self.send(bytes);
        let mut answer = [0; 2000];
        let length = self.socket.recv(&mut answer).ok()?;
        Some(answer[..length].to_vec())
    }

    /// Nothing has come, and nothing comes before the answer to a good question.
    fn assert_silence(&self, key: &Key, began: i64) {
        let mut socket_is_silent = [0; 2000];
        self.socket.set_nonblocking(true).unwrap();
        assert!(self.socket.recv(&mut socket_is_silent).is_err(), "it was answered");
        self.socket.set_nonblocking(false).unwrap();
        let answer = self.answer(&key.seal(&self.question(began, 7))).expect("it still answers");
        let answer = key.open(&answer).expect("an answer");
        assert_eq!((answer.kind, answer.burst.began, answer.number), (Kind::Answer, began, 7));
    }
}

/// A generator of numbers that nobody needs to be good.
struct Dice(u64);

impl Dice {
    fn roll(&mut self, below: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 >> 11) as usize % below
    }
}

#[test]
fn nothing_but_a_new_question_with_the_right_key_is_answered() {
    let root = tempfile::tempdir().unwrap();
    let mut config = config(root.path(), "ill", 0);
    // The flood is to be read, not left lying.
    config.choice.rate = 10_000_000;
    let node = start(config);
    let (asker, key) = asker(root.path(), "ill", 0);
    let good = asker.question(10, 0);
    let sealed = key.seal(&good);
    let answer = asker.answer(&sealed).unwrap();
    assert!(answer.len() <= sealed.len(), "{} bytes for {}", answer.len(), sealed.len());
    asker.send(&sealed);
    asker.assert_silence(&key, 11);

    let wrong = Key::new([7; Key::BYTES]);
    let elsewhere = Packet { to: 1, ..asker.question(12, 0) };
    let too_far = asker.question(12, MOST_QUESTIONS);
    let answers = Packet { kind: Kind::Answer, ..asker.question(12, 1) };
    asker.send(&wrong.seal(&asker.question(12, 0)));
    [elsewhere, too_far, answers, good].iter().for_each(|packet| asker.send(&key.seal(packet)));
    let sealed = key.seal(&asker.question(12, 0));
    (0..PACKET_BYTES).for_each(|length| asker.send(&sealed[..length]));
    asker.send(&[&sealed[..], &[0]].concat());
    asker.send(&[&sealed[..], &[0; 60_000]].concat());
    asker.assert_silence(&key, 13);

    let mut dice = Dice(0x9e37_79b9_7f4a_7c15);
    for round in 0..100_000u32 {
        let mut bytes = sealed.to_vec();
        match dice.roll(4) {
            0 => bytes.iter_mut().for_each(|byte| *byte = dice.roll(256) as u8),
            1 => bytes[dice.roll(PACKET_BYTES)] ^= 1 << dice.roll(8),
            2 => bytes.truncate(dice.roll(PACKET_BYTES)),
            _ => bytes.resize(PACKET_BYTES + 1 + dice.roll(200), round as u8),
        }
        asker.send(&bytes);
    }
    sleep(200);
    asker.assert_silence(&key, 14);
    assert_eq!(node.end(), [], "nobody was there to be asked");
}

#[test]
fn more_than_the_rate_is_not_answered() {
    let root = tempfile::tempdir().unwrap();
    let mut config = config(root.path(), "rate", 0);
    config.choice.rate = 50;
    let node = start(config);
    let (asker, key) = asker(root.path(), "rate", 0);
    asker.socket.set_read_timeout(Some(Duration::from_millis(300))).unwrap();
    (0..200).for_each(|number| asker.send(&key.seal(&asker.question(1, number))));
    let mut answer = [0; 200];
    let answers = std::iter::from_fn(|| asker.socket.recv(&mut answer).ok()).count();
    assert!((50..=150).contains(&answers), "{answers} of 200 questions were answered");
    sleep(1500);
    asker.assert_silence(&key, 2);
    node.end();
}

/// Between a child and its parent there is somebody who sees all and sends everything again, in either
/// direction, at once and later.
#[test]
fn packets_that_are_sent_again_give_no_probe_and_no_answer() {
    let root = tempfile::tempdir().unwrap();
    let parent = start(config(root.path(), "again", 0));
    let seen = folder(root.path(), "again", 0);
    let at = card(&seen, 0).addresses[0];
    let middle = UdpSocket::bind("127.0.0.1:0").unwrap();
    let beyond = UdpSocket::bind("127.0.0.1:0").unwrap();
    let card = Card { domain: domain(0), addresses: vec![middle.local_addr().unwrap()] };
    seen.publish(0, &card).unwrap();
    let child = start(config(root.path(), "again", 1));
    [&middle, &beyond]
        .iter()
        .for_each(|socket| socket.set_read_timeout(Some(Duration::from_millis(1))).unwrap());
    let (mut questions, mut answers, mut child_at) = (Vec::new(), Vec::new(), None);
    let mut bytes = [0; 200];
    let began = Instant::now();
    while began.elapsed() < Duration::from_millis(1500) {
        if let Ok((length, from)) = middle.recv_from(&mut bytes) {
            child_at = Some(from);
            questions.push(bytes[..length].to_vec());
            let old = questions.len() / 2;
            [&bytes[..length], &bytes[..length], &questions[old].clone()]
                .iter()
                .for_each(|packet| drop(beyond.send_to(packet, at)));
        }
        while let Ok((length, _)) = beyond.recv_from(&mut bytes) {
            answers.push(bytes[..length].to_vec());
            let old = answers.len() / 2;
            if let Some(child_at) = child_at {
                [&bytes[..length], &bytes[..length], &answers[old].clone()]
                    .iter()
                    .for_each(|packet| drop(middle.send_to(packet, child_at)));
            }
            beyond.set_nonblocking(true).unwrap();
        }
        beyond.set_nonblocking(false).unwrap();
    }
    let bursts = end_all(vec![parent, child]).remove(1);
    assert!(answers.len() > 50 && answers.len() <= questions.len(), "one answer each");
    assert!(bursts.len() > 2, "{} bursts", bursts.len());
    assert!(bursts.iter().all(|burst| burst.answered <= burst.sent));
    assert_true(&bursts);
}

#[test]
fn a_flood_leaves_the_agent_most_of_its_time() {
    let root = tempfile::tempdir().unwrap();
    let mut config = config(root.path(), "flood", 0);
    config.choice.rate = 100;
    let node = start(config);
    let (asker, _) = asker(root.path(), "flood", 0);
    let began = Instant::now();
    let mut sent = 0;
    while began.elapsed() < Duration::from_millis(500) {
        asker.send(&[0; PACKET_BYTES]);
        sent += 1;
    }
    let ended = Instant::now();
    node.end_within(Duration::from_millis(600));
    assert!(sent > 1_000 && ended.elapsed() < Duration::from_secs(1));
}

#[test]
fn the_ports_are_those_that_were_chosen() {
    let root = tempfile::tempdir().unwrap();
    let mut config = config(root.path(), "ports", 0);
    let free = Sockets::bind(&HERE, None, 0).unwrap().addresses()[0].port();
    let last = free.saturating_add(20).max(free);
    config.choice.ports = format!("{free}-{last}").parse().ok();
    let node = start(config);
    let card = card(&folder(root.path(), "ports", 0), 0);
    assert!(card.addresses.iter().all(|at| (free..=last).contains(&at.port())), "{card:?}");
    node.end();
}

#[test]
fn routes_to_nowhere_are_no_routes() {
    let sockets = Sockets::bind(&HERE, None, 0).unwrap();
    let to = "127.0.0.1:9".parse().unwrap();
    assert_eq!(sockets.route(to), Some(Route { socket: 0, to }));
}
