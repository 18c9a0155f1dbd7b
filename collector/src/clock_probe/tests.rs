//! Agents with simulated clocks on the loopback of this machine.

mod hostile;
mod kernel_times;
mod node_clocks;
mod roots;
mod scale;

use super::burst::PeerRoute;
use super::card::{AgentCard, AgentId};
use super::folder::{RendezvousFolder, RootAgent, RootFileContent};
use super::packet::{BurstId, PacketKey, PacketKind, ProbePacket, ReceiveTime};
use super::sockets::ProbeSockets;
use super::*;
use crate::host::machine;
use crate::shard_output::{DEFAULT_MAX_BYTES, OutputBatch, OutputItem, ShardOutput, ShardPlace};
use node_clocks::{AHEAD, CLOCKS, SECOND};
use rpd_shard::Shard;
use rpd_shard::rank_set::RankSet;
use rpd_shard::record::{ProbeBurst, RunIdentity};
use std::net::{IpAddr, SocketAddr, UdpSocket};
use std::path::Path;
use std::sync::mpsc::Receiver;

const TIME_LIMIT: Duration = Duration::from_secs(60);
const HERE: [IpAddr; 1] = [IpAddr::V4(std::net::Ipv4Addr::LOCALHOST)];

const QUICK: ProbePace = ProbePace {
    period: Duration::from_millis(200),
    first_look: Duration::from_millis(20),
    next_deadline: Duration::from_millis(300),
    expiry: Duration::from_millis(600),
    retry: Duration::from_millis(50),
};

fn domain(node: u64) -> ClockDomain {
    ClockDomain { boot_id: format!("node {node}"), time_namespace: node }
}

/// A collector with nothing but its agent.
struct Node {
    agent: ProbeAgent,
    output: ShardOutput,
    finished: Receiver<Option<PathBuf>>,
    shard: PathBuf,
}

/// A run of its own, since other tests use the same machine.
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
    let (output, finished) = ShardOutput::start(place).unwrap();
    let agent = ProbeAgent::start(config, output.side()).unwrap();
    Node { agent, output, finished, shard }
}

impl Node {
    /// Ends the agent as the end of a command does. Returns its bursts.
    fn end(self) -> Vec<ProbeBurst> {
        self.end_within(Duration::from_secs(5))
    }

    fn end_within(mut self, most: Duration) -> Vec<ProbeBurst> {
        let began = Instant::now();
        self.agent.stop();
        self.agent.wait_until_measured();
        let _ = self.output.send(OutputBatch::of(vec![OutputItem::End]));
        self.finished.recv_timeout(TIME_LIMIT).unwrap();
        self.agent.leave();
        assert!(began.elapsed() < most, "it took {:?} to end", began.elapsed());
        let shard = Shard::open(&self.shard).unwrap();
        assert!(shard.complete() && shard.damage().is_empty());
        shard.probes
    }
}

/// Ends all agents at about the same time.
fn end_all(nodes: Vec<Node>) -> Vec<Vec<ProbeBurst>> {
    let ends: Vec<_> = nodes.into_iter().map(|node| std::thread::spawn(|| node.end())).collect();
    ends.into_iter().map(|thread| thread.join().unwrap()).collect()
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

fn probed(bursts: &[ProbeBurst]) -> Vec<u64> {
    let mut peers: Vec<u64> = bursts.iter().map(|burst| burst.to.time_namespace).collect();
    peers.dedup();
    peers
}

fn folder(root: &Path, test: &str) -> RendezvousFolder {
    let run = root.join(run_id(test));
    std::fs::create_dir_all(&run).unwrap();
    let run = std::sync::Arc::new(rpd_files::HeldFolder::open(&run).unwrap());
    RendezvousFolder::make(&run, false, &Default::default()).unwrap()
}

/// Waits until the file names another root than `before`. Returns that root.
fn next_root(root: &Path, test: &str, before: Option<AgentId>) -> RootAgent {
    let (folder, began) = (folder(root, test), Instant::now());
    loop {
        match folder.read_root().unwrap() {
            RootFileContent::Root(found) if Some(found.card.agent) != before => return found,
            _ => sleep(5),
        }
        assert!(began.elapsed() < TIME_LIMIT, "no root");
    }
}

fn root_of(root: &Path, test: &str) -> RootAgent {
    next_root(root, test, None)
}

/// Starts nodes one after the other, so that they join in this order.
fn start_in_order(root: &Path, test: &str, nodes: &[u64]) -> Vec<Node> {
    let start_next = |node: &u64| {
        let node = start(config(root, test, *node));
        let _ = root_of(root, test);
        sleep(100);
        node
    };
    nodes.iter().map(start_next).collect()
}

/// Times at which a node sent requests, by the true clock, ns.
fn times(node: u64, bursts: &[ProbeBurst]) -> Vec<i64> {
    bursts.iter().map(|burst| burst.best[0].t1 - AHEAD[node as usize % 4]).collect()
}

#[test]
fn children_measure_their_parents_at_the_start_in_between_and_at_the_end() {
    let root = tempfile::tempdir().unwrap();
    let nodes = start_in_order(root.path(), "tree", &[0, 1, 2, 3]);
    sleep(1500);
    let bursts = end_all(nodes);
    bursts.iter().for_each(|bursts| assert_true(bursts));
    assert_eq!(bursts[0], [], "the root probes no agent");
    for (node, parent) in [(1, 0), (2, 0), (3, 2)] {
        let own = &bursts[node];
        let to_parent: Vec<_> = own.iter().filter(|burst| burst.to == domain(parent)).collect();
        assert!(own.iter().all(|burst| burst.from == domain(node as u64)));
        assert!(to_parent.len() >= 3, "node {node} probed {:?}", probed(own));
        assert!(own[0].sent >= 200 && own.last().unwrap().sent >= 200, "at the start and the end");
        assert!(own.iter().any(|burst| burst.sent == 20), "in between");
        assert!(own.iter().all(|burst| burst.best.len() >= 3.min(burst.answered as usize)));
    }
    assert!(!root.path().join(run_id("tree")).join("clocks").exists(), "nothing is left");
}

#[test]
fn sixty_four_agents_on_one_machine_all_find_somebody_to_ask() {
    let root = tempfile::tempdir().unwrap();
    let pace = ProbePace { period: Duration::from_secs(1), ..QUICK };
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
    let _ = root_of(root.path(), "single");
    assert_eq!(node.end_within(Duration::from_millis(250)), []);
}

#[test]
fn a_parent_that_ends_first_has_its_children_ask_once_more_and_does_not_wait_long() {
    let root = tempfile::tempdir().unwrap();
    let [parent, child] = start_in_order(root.path(), "first", &[0, 1]).try_into().ok().unwrap();
    sleep(600);
    let ended = Instant::now();
    parent.end_within(Duration::from_millis(280));
    let took = ended.elapsed();
    sleep(100);
    let bursts = child.end();
    assert_true(&bursts);
    assert!(bursts.last().unwrap().sent >= 200, "{bursts:?}");
    // An agent that died cannot say goodbye. Others wait for it at most this long.
    let silent = start(config(root.path(), "first", 0));
    let (prober, key) = prober(root.path(), "first");
    assert!(prober.exchange(&key.seal(&prober.request(1, 0))).is_some());
    let ended = Instant::now();
    silent.end_within(Duration::from_millis(600));
    assert!(ended.elapsed() > Duration::from_millis(230) && took < Duration::from_millis(290), "{took:?}");
}

/// A hand-made agent, with or without the secret.
struct TestProber {
    socket: UdpSocket,
    at: SocketAddr,
    root: AgentId,
}

const TEST_PROBER: u64 = 999;

fn prober(root: &Path, test: &str) -> (TestProber, PacketKey) {
    let RootAgent { card, key } = root_of(root, test);
    let at = card.addresses[0];
    let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
    socket.set_read_timeout(Some(Duration::from_secs(2))).unwrap();
    (TestProber { socket, at, root: card.agent }, key)
}

impl TestProber {
    fn request(&self, began: i64, number: u32) -> ProbePacket {
        let (from, to) = (TEST_PROBER, self.root.0);
        let burst = BurstId { began, nonce: 3 };
        ProbePacket {
            kind: PacketKind::Request,
            burst,
            number,
            from,
            to,
            received: ReceiveTime::default(),
            sent: 5,
        }
    }

    fn send(&self, bytes: &[u8]) {
        self.socket.send_to(bytes, self.at).unwrap();
    }

    fn exchange(&self, bytes: &[u8]) -> Option<Vec<u8>> {
        self.send(bytes);
        let mut reply = [0; 2000];
        let length = self.socket.recv(&mut reply).ok()?;
        Some(reply[..length].to_vec())
    }

    /// No packet is pending, and none arrives before the reply to a valid request.
    fn assert_silence(&self, key: &PacketKey, began: i64) {
        let mut socket_is_silent = [0; 2000];
        self.socket.set_nonblocking(true).unwrap();
        assert!(self.socket.recv(&mut socket_is_silent).is_err(), "it got a reply");
        self.socket.set_nonblocking(false).unwrap();
        let reply = self.exchange(&key.seal(&self.request(began, 7))).expect("it still replies");
        let reply = key.open(&reply).expect("a reply");
        assert_eq!((reply.kind, reply.burst.began, reply.number), (PacketKind::Reply, began, 7));
    }
}

#[test]
fn the_ports_are_those_that_were_chosen() {
    let root = tempfile::tempdir().unwrap();
    let mut config = config(root.path(), "ports", 0);
    let free = ProbeSockets::bind(&HERE, None, 0).unwrap().addresses()[0].port();
    let last = free.saturating_add(20).max(free);
    config.choice.ports = format!("{free}-{last}").parse().ok();
    let node = start(config);
    let card = root_of(root.path(), "ports").card;
    assert!(card.addresses.iter().all(|at| (free..=last).contains(&at.port())), "{card:?}");
    node.end();
}

#[test]
fn routes_to_nowhere_are_no_routes() {
    let sockets = ProbeSockets::bind(&HERE, None, 0).unwrap();
    let to = "127.0.0.1:9".parse().unwrap();
    assert_eq!(sockets.route(to), Some(PeerRoute { socket: 0, to }));
}
