//! Up to a thousand agents in one process: the real code on the loopback, with a queue in place of each
//! shard.

use super::super::folder::{RootAgent, counts::FileCounts};
use super::*;
use crate::shard_output::{SideOutput, TestQueue};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, PoisonError};

/// Descriptors of one agent: flags, socket, claim, and the folder of the run.
const DESCRIPTORS: u64 = 10;

/// A burst on arrival: the numbers of the two nodes.
#[derive(Clone, Copy, Debug)]
struct Seen {
    from: u64,
    to: u64,
}

struct Agents {
    agents: Vec<Option<ProbeAgent>>,
    counts: Vec<Arc<FileCounts>>,
    seen: Arc<Mutex<Vec<Seen>>>,
    ended: Arc<AtomicBool>,
    _outputs: Vec<ShardOutput>,
}

/// Removes the bursts of all agents from their queues.
fn drain(queues: &[TestQueue], seen: &Mutex<Vec<Seen>>, ended: &AtomicBool) {
    while !ended.load(Ordering::Relaxed) {
        for items in queues.iter().filter_map(TestQueue::take) {
            for item in items {
                if let OutputItem::Probes(burst) = item {
                    let (from, to) = (burst.from.time_namespace, burst.to.time_namespace);
                    let mut seen = seen.lock().unwrap_or_else(PoisonError::into_inner);
                    seen.push(Seen { from, to });
                }
            }
        }
        sleep(10);
    }
}

impl Agents {
    /// Starts the agents `gap_ms` apart: a real job has more cores.
    fn start(root: &Path, test: &str, count: u64, pace: ProbePace, gap_ms: u64) -> Agents {
        let (mut agents, mut counts, mut queues, mut outputs) = (vec![], vec![], vec![], vec![]);
        let (seen, ended): (Arc<Mutex<Vec<Seen>>>, Arc<AtomicBool>) = Default::default();
        let ends: Vec<(ShardOutput, SideOutput, TestQueue)> =
            (0..count).map(|_| SideOutput::to_test()).collect();
        let mut sides = Vec::new();
        for (output, side, queue) in ends {
            outputs.push(output);
            sides.push(side);
            queues.push(queue);
        }
        let (to, until) = (Arc::clone(&seen), Arc::clone(&ended));
        std::thread::spawn(move || drain(&queues, &to, &until));
        for (node, side) in (0..count).zip(sides) {
            let config = ProbeConfig { pace, ..config(root, test, node) };
            counts.push(Arc::clone(&config.counts));
            agents.push(Some(ProbeAgent::start(config, side).unwrap()));
            sleep(gap_ms);
        }
        Agents { agents, counts, seen, ended, _outputs: outputs }
    }

    fn seen(&self) -> Vec<Seen> {
        self.seen.lock().unwrap().clone()
    }

    /// Returns the agent that each one probed last.
    fn parents(&self) -> HashMap<u64, u64> {
        self.seen().iter().map(|seen| (seen.from, seen.to)).collect()
    }

    fn file_operations(&self) -> Vec<u64> {
        self.counts.iter().map(|counts| counts.all()).collect()
    }

    fn listings(&self) -> u64 {
        self.counts.iter().map(|counts| counts.listings()).sum()
    }

    fn wait_for(&self, what: &str, is_so: impl Fn(&Agents) -> bool) {
        let began = Instant::now();
        while !is_so(self) {
            assert!(began.elapsed() < TIME_LIMIT, "waited for: {what}");
            sleep(20);
        }
    }

    /// Ends all agents at about the same time, as a job does.
    fn end(&mut self) {
        self.agents.iter_mut().flatten().for_each(ProbeAgent::stop);
        let limit = Instant::now() + TIME_LIMIT;
        for agent in self.agents.iter().flatten() {
            assert!(agent.signals.ended.wait(limit), "an agent does not end");
        }
        self.ended.store(true, Ordering::Relaxed);
    }
}

/// File operations of a run: the maximum of one node at its start and its end, and the total of all nodes.
#[derive(Debug)]
struct Figures {
    start: u64,
    end: u64,
    all: u64,
}

fn measure(count: u64, pace: ProbePace, gap_ms: u64) -> Figures {
    let root = tempfile::tempdir().unwrap();
    let test = format!("scale-{count}");
    let mut agents = Agents::start(root.path(), &test, count, pace, gap_ms);
    agents.wait_for("all but the root have probed", |agents| agents.parents().len() as u64 == count - 1);
    let at_start = agents.file_operations();

    std::thread::sleep(pace.period + pace.period / 2);
    assert_eq!(agents.file_operations(), at_start, "nothing while parents reply");
    assert_eq!(agents.listings(), 0);

    let first = root_of(root.path(), &test).card.domain.time_namespace;
    let parents = agents.parents();
    let is_inner = |parent: &&u64| **parent != first && parents.values().any(|other| other == *parent);
    let dying = *parents.keys().find(is_inner).expect("a tree with two levels");
    let children: Vec<u64> =
        parents.iter().filter(|(_, parent)| **parent == dying).map(|(child, _)| *child).collect();
    let killed = Instant::now();
    agents.agents[dying as usize].take().unwrap().kill();
    agents.wait_for("another parent", |agents| {
        let parents = agents.parents();
        children.iter().all(|child| parents.get(child).is_some_and(|parent| *parent != dying))
    });
    // With the default period of 5 s, this is 10 s.
    assert!(killed.elapsed() < 2 * pace.period, "{:?} for {children:?}", killed.elapsed());
    assert_eq!(agents.file_operations(), at_start, "other ancestors are known already");

    let before = agents.seen().len();
    agents.end();
    assert!(agents.seen().len() > before, "last bursts");
    assert!(agents.listings() <= 1, "one sweeper: {}", agents.listings());
    assert!(!root.path().join(run_id(&test)).join("clocks").exists(), "nothing is left");
    let all = agents.file_operations();
    let end = all.iter().zip(&at_start).map(|(all, start)| all - start).max().unwrap();
    Figures { start: *at_start.iter().max().unwrap(), end, all: all.iter().sum() }
}

#[test]
fn file_operations_of_a_node_grow_with_the_logarithm_of_nodes_at_most() {
    let limit = getrlimit(Resource::Nofile);
    if limit.maximum.is_some_and(|most| most < 1_000 * DESCRIPTORS + 100) {
        return eprintln!("SKIPPED a thousand agents: this process may open {limit:?} files");
    }
    setrlimit(Resource::Nofile, Rlimit { current: limit.maximum, ..limit }).unwrap();
    let quick =
        ProbePace { period: Duration::from_millis(500), next_deadline: Duration::from_millis(700), ..QUICK };
    let large =
        ProbePace { period: Duration::from_secs(2), next_deadline: Duration::from_millis(1_500), ..QUICK };
    for (count, pace, gap_ms) in [(10, quick, 10), (100, quick, 10), (1_000, large, 8)] {
        let figures = measure(count, pace, gap_ms);
        eprintln!("{count} agents: {figures:?}");
        let logarithm = u64::from(count.ilog2());
        assert!(figures.start <= 20 + 2 * logarithm, "{count}: {figures:?}");
        assert!(figures.end <= 30 + 2 * logarithm, "{count}: {figures:?}");
        assert!(figures.all <= 8 * count + 60, "{count}: {figures:?}");
    }
}

#[test]
fn sixty_four_agents_lose_their_root_and_one_of_them_writes_the_file() {
    let root = tempfile::tempdir().unwrap();
    let pace =
        ProbePace { period: Duration::from_secs(1), next_deadline: Duration::from_millis(700), ..QUICK };
    let mut agents = Agents::start(root.path(), "orphans", 64, pace, 10);
    agents.wait_for("all but the root have probed", |agents| agents.parents().len() == 63);
    let (first, before) = (root_of(root.path(), "orphans"), agents.file_operations());
    let killed = Instant::now();
    let first_node = first.card.domain.time_namespace;
    agents.agents[first_node as usize].take().unwrap().kill();
    let children = agents.parents().values().filter(|parent| **parent == first_node).count();
    let root_node = |new: &RootAgent| new.card.domain.time_namespace;
    let new = next_root(root.path(), "orphans", Some(first.card.agent));
    agents.wait_for("other parents", |agents| {
        let parents = agents.parents();
        let has_moved = |node: u64| node == root_node(&new) || parents[&node] != first_node;
        (0..64).filter(|node| *node != first_node).all(has_moved)
    });
    assert!(killed.elapsed() < Duration::from_secs(5), "{:?}", killed.elapsed());
    let after = agents.file_operations();
    let busy = after.iter().zip(&before).filter(|(after, before)| after != before).count();
    assert!(busy <= children, "{busy} nodes used files, of {children} that had probed the root");
    let most = after.iter().zip(&before).map(|(after, before)| after - before).max().unwrap();
    assert!(most <= 60, "{most} operations of one node");
    let new = root_of(root.path(), "orphans");
    assert_eq!(after.len(), 64);
    let parents = agents.parents();
    for start in (0..64).filter(|node| *node != first_node) {
        let path = std::iter::successors(Some(start), |node| parents.get(node).copied());
        assert!(path.take(64).any(|node| domain(node) == new.card.domain), "{start} has lost the others");
    }
    agents.end();
    assert!(!root.path().join(run_id("orphans")).join("clocks").exists(), "nothing is left");
}
