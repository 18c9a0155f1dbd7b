//! The agent thread: probes its parent and replies to its children.

mod joining;
mod leaving;
mod rounds;

use super::ProbePace;
use super::burst::{OpenBurst, PeerRoute};
use super::card::{AgentCard, AgentId};
use super::folder::RootAgent;
use super::join::{JOIN_BYTES, JoinPacket};
use super::kernel_times::{KernelTimes, NodeClock};
use super::packet::{BurstId, PacketKey, PacketKind, ProbePacket, ReceiveTime};
use super::rate_limit::RateLimit;
use super::replies::ChildAgents;
use super::sockets::ProbeSockets;
use crate::host::event_flag::EventFlag;
use crate::host::machine;
use crate::host::poll::timespec;
use crate::shard_output::{OutputBatch, OutputItem, SideOutput};
use joining::TreeMembership;
use leaving::LeavingState;
use rpd_shard::record::ClockDomain;
use rustix::event::{PollFd, PollFlags, poll};
use rustix::fd::AsFd;
use std::collections::HashMap;
use std::io::ErrorKind;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

/// Maximum number of packets to read from one socket before any other work.
const MAX_PACKETS_PER_READ: usize = 64;
/// Packets that may be read for each reply that may be sent.
const PACKETS_PER_REPLY: u32 = 2;
/// Time for which packets stay unread when more arrive than may be read.
const FLOOD_PAUSE: Duration = Duration::from_millis(2);

/// An order of the rendezvous thread to the agent thread.
#[derive(Debug)]
pub(super) enum AgentOrder {
    /// Join the tree of this root.
    Join(RootAgent),
    /// Become the root.
    Lead(PacketKey),
}

/// State that the agent thread and the rendezvous thread exchange.
#[derive(Debug, Default)]
pub(super) struct AgentMailbox {
    /// For the agent thread.
    pub(super) order: Option<AgentOrder>,
    /// For the rendezvous thread: this root does not reply.
    pub(super) silent_root: Option<AgentId>,
    /// For the rendezvous thread: this root has handed over to this agent.
    pub(super) inherits_from: Option<AgentId>,
    /// No agent that this one may probe replies.
    pub(super) is_orphan: bool,
    /// Number of packets with the right key that were read, at the last report.
    pub(super) received: u64,
    /// Number of other agents that were probed, at the last report.
    pub(super) others: usize,
}

/// Events that the threads of an agent and their owner wait for.
#[derive(Clone, Debug)]
pub(super) struct AgentSignals {
    /// There is an order for the agent thread, or the command has ended.
    pub(super) wake: EventFlag,
    /// The command has ended.
    pub(super) stop: EventFlag,
    /// The rendezvous thread must read the file of the root.
    pub(super) news: EventFlag,
    /// The last burst is recorded.
    pub(super) measured: EventFlag,
    /// The agent has ended, and its files are removed.
    pub(super) ended: EventFlag,
    /// The agent ends without a message, as if its process was killed.
    #[cfg(test)]
    pub(super) killed: EventFlag,
}

/// Initial state of the agent thread.
pub(super) struct AgentConfig {
    pub(super) domain: ClockDomain,
    /// Card of this agent.
    pub(super) card: AgentCard,
    pub(super) key: PacketKey,
    pub(super) sockets: ProbeSockets,
    pub(super) replies_per_second: u32,
    pub(super) pace: ProbePace,
    pub(super) clock: NodeClock,
    pub(super) board: Arc<Mutex<AgentMailbox>>,
    pub(super) signals: AgentSignals,
}

/// State of another agent.
#[derive(Default)]
struct KnownPeer {
    route: Option<(PeerRoute, i64)>,
    last_burst: BurstId,
    failures: u32,
    not_before: Option<Instant>,
}

/// The probe burst that is running.
enum RunningBurst {
    /// Which address of the agent has the shortest round trip?
    RouteSearch(OpenBurst, AgentCard),
    /// The burst that measures the clocks.
    Measurement {
        burst: OpenBurst,
        card: AgentCard,
        route: PeerRoute,
        wait: Duration,
        until: Option<Instant>,
        goodbye: bool,
    },
}

pub(super) struct AgentThread {
    with: AgentConfig,
    kernel_times: KernelTimes,
    own: u64,
    output: SideOutput,
    items: Vec<OutputItem>,
    children: ChildAgents,
    may_read: RateLimit,
    may_reply: RateLimit,
    membership: TreeMembership,
    /// Agents to probe, the parent first.
    candidates: Vec<AgentCard>,
    known: HashMap<AgentId, KnownPeer>,
    /// Candidates that are still to be tried in this round.
    to_try: Vec<AgentCard>,
    running_burst: Option<RunningBurst>,
    next_round: Instant,
    last_parent: Option<AgentCard>,
    leaving: Option<LeavingState>,
    measured: bool,
    /// Number of packets with the right key that were read.
    received: u64,
}

impl AgentThread {
    pub(super) fn new(with: AgentConfig, output: SideOutput) -> AgentThread {
        let (now, rate) = (Instant::now(), with.replies_per_second);
        // A rank without any call would have no other clock set.
        let items = vec![OutputItem::Clock(Box::new(machine::clock_set(&with.domain)))];
        AgentThread {
            own: with.card.agent.0,
            kernel_times: KernelTimes::new(with.clock, &with.sockets),
            with,
            output,
            items,
            children: ChildAgents::default(),
            may_read: RateLimit::new(rate.saturating_mul(PACKETS_PER_REPLY), now),
            may_reply: RateLimit::new(rate, now),
            membership: TreeMembership::default(),
            candidates: Vec::new(),
            known: HashMap::new(),
            to_try: Vec::new(),
            running_burst: None,
            next_round: now,
            last_parent: None,
            leaving: None,
            measured: false,
            received: 0,
        }
    }

    /// Runs until the command has ended and the children have said goodbye. Returns whether another agent has
    /// become the root.
    pub(super) fn run(mut self) -> bool {
        while !self.is_killed() {
            let now = Instant::now();
            self.receive_order(now);
            self.request_place(now);
            self.probe(now);
            self.leave(now);
            if self.is_done(now) {
                break;
            }
            let until = self.next_event(now);
            self.wait(until).into_iter().for_each(|socket| self.receive(socket));
        }
        self.hand_over(true);
        self.publish();
        self.with.signals.measured.set();
        self.has_handed_over()
    }

    #[cfg(test)]
    fn is_killed(&self) -> bool {
        self.with.signals.killed.is_set()
    }

    #[cfg(not(test))]
    fn is_killed(&self) -> bool {
        false
    }

    /// Receives an order of the rendezvous thread, or the end of the command.
    fn receive_order(&mut self, now: Instant) {
        if !self.with.signals.wake.is_set() {
            return;
        }
        self.with.signals.wake.clear();
        let order = self.board().order.take();
        if let Some(order) = order {
            self.follow(order, now);
        }
        self.begin_leaving(now);
    }

    fn board(&self) -> std::sync::MutexGuard<'_, AgentMailbox> {
        self.with.board.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Reports the counts of this agent to the rendezvous thread.
    fn publish(&self) {
        let mut board = self.board();
        (board.received, board.others) = (self.received, self.known.len());
    }

    /// Stamps and sends a packet. Requests and replies use this function, so that the time between the
    /// reading of the clock and the wire is the same for both. Returns the stamp; `None` if the packet could
    /// not be sent.
    fn stamp_and_send(&self, mut packet: ProbePacket, route: PeerRoute) -> Option<i64> {
        packet.sent = (self.with.clock.raw)();
        self.with.sockets.send(&self.with.key.seal(&packet), route).then_some(packet.sent)
    }

    fn next_event(&mut self, now: Instant) -> Instant {
        let next = match &self.running_burst {
            // Nothing is under way: the burst sends or concludes.
            Some(RunningBurst::RouteSearch(burst, _) | RunningBurst::Measurement { burst, .. })
                if burst.is_quiet() =>
            {
                Some(now)
            }
            Some(RunningBurst::RouteSearch(burst, _)) => burst.next_deadline(),
            Some(RunningBurst::Measurement { burst, until, .. }) => {
                burst.next_deadline().into_iter().chain(*until).min()
            }
            None => None,
        }
        .or_else(|| self.leaving.is_none().then_some(self.next_round));
        let others = [self.next_of_leaving(), self.membership.next_event()];
        next.into_iter().chain(others.into_iter().flatten()).min().unwrap_or(now)
    }

    /// Waits for packets or orders. Returns the sockets with packets; none while too many packets arrive.
    fn wait(&mut self, until: Instant) -> Vec<usize> {
        let now = Instant::now();
        let flooded = self.may_read.is_empty(now);
        let until = if flooded { until.min(now + FLOOD_PAUSE) } else { until };
        let sockets = self.with.sockets.all().map(|socket| socket.as_fd());
        let sockets = sockets.take(if flooded { 0 } else { usize::MAX });
        let all = sockets.chain(std::iter::once(self.with.signals.wake.descriptor()));
        let mut all: Vec<PollFd<'_>> = all.map(|fd| PollFd::from_borrowed_fd(fd, PollFlags::IN)).collect();
        let _ = poll(&mut all, Some(&timespec(until.saturating_duration_since(now))));
        let ready = all.iter().enumerate().filter(|(_, fd)| !fd.revents().is_empty());
        ready.map(|(number, _)| number).collect()
    }

    /// Reads some of the packets of a socket. Takes the receive time of a packet before anything else.
    fn receive(&mut self, number: usize) {
        // One byte more than the longest packet, to detect longer ones.
        let mut bytes = [0; JOIN_BYTES + 1];
        for _ in 0..MAX_PACKETS_PER_READ {
            let before = self.kernel_times.before_read();
            let datagram = match self.with.sockets.receive(number, &mut bytes) {
                Ok(datagram) => datagram,
                Err(error) => {
                    if error.kind() == ErrorKind::WouldBlock {
                        self.kernel_times.note_empty(number, before);
                        self.discard_if_stepped();
                    }
                    return;
                }
            };
            let time = self.kernel_times.receive_time(number, datagram.stamp);
            self.discard_if_stepped();
            let route = PeerRoute { socket: number, to: datagram.from };
            let bytes = bytes.get(..datagram.length).unwrap_or_default();
            if let Some(packet) = self.with.key.open(bytes).filter(|packet| packet.to == self.own) {
                self.received += 1;
                self.take(&packet, route, time);
            } else if let Some(packet) = JoinPacket::open(&self.with.key, bytes) {
                self.take_join(packet, route);
            }
            if !self.may_read.take(Instant::now()) {
                return;
            }
        }
    }

    /// Discards what the running burst has measured if `CLOCK_REALTIME` was stepped.
    fn discard_if_stepped(&mut self) {
        if self.kernel_times.take_step()
            && let Some(RunningBurst::Measurement { burst, .. }) = &mut self.running_burst
        {
            burst.discard_probes();
        }
    }

    fn take(&mut self, packet: &ProbePacket, route: PeerRoute, time: ReceiveTime) {
        let now = Instant::now();
        match packet.kind {
            PacketKind::Request => {
                let reply = self.children.reply_to(packet, time, route, now);
                if let Some(reply) = reply.filter(|_| self.may_reply.take(now)) {
                    let _ = self.stamp_and_send(reply, route);
                }
            }
            PacketKind::Reply => {
                if let Some(RunningBurst::RouteSearch(burst, _))
                | Some(RunningBurst::Measurement { burst, .. }) = &mut self.running_burst
                    && burst.take(packet, route.to, time)
                {
                    // Sends the next request at once, while both sides are awake.
                    self.go_on(now);
                }
            }
            PacketKind::Closing => self.take_closing(packet, now),
            PacketKind::Goodbye => self.children.note_goodbye(packet),
            PacketKind::Handover => self.take_handover(packet, route),
            PacketKind::Heir => self.take_heir(packet),
        }
    }

    /// Starts the last burst to a parent that is about to leave.
    fn take_closing(&mut self, packet: &ProbePacket, now: Instant) {
        let from = AgentId(packet.from);
        let is_new = self.known.get(&from).is_some_and(|known| known.last_burst == packet.burst);
        let parent = self.last_parent.clone().filter(|parent| parent.agent == from);
        let busy = matches!(&self.running_burst, Some(RunningBurst::Measurement { goodbye: true, .. }));
        if let Some(card) = parent.filter(|_| is_new && !busy) {
            self.begin_last_burst(card, now);
            self.go_on(now);
        }
    }

    fn hand_over(&mut self, at_last: bool) {
        if self.items.is_empty() {
            return;
        }
        let batch = OutputBatch::of(std::mem::take(&mut self.items));
        if at_last {
            let _ = self.output.send(batch);
        } else if let Err(batch) = self.output.try_send(batch) {
            self.items = batch.items;
        }
    }
}
