//! The agent's thread: asks its parent, answers its children.

mod rounds;

use super::Pace;
use super::answers::Children;
use super::bucket::Bucket;
use super::burst::{Burst, Route};
use super::folder::{Card, DomainId};
use super::kernel_times::{KernelTimes, NodeClock, ReceiveTime};
use super::packet::{BurstId, Key, Kind, PACKET_BYTES, Packet};
use super::signal::{Signal, timespec};
use super::sockets::Sockets;
use crate::machine;
use crate::output::{Batch, Item, SideOutput};
use rpd_shard::record::ClockDomain;
use rustix::event::{PollFd, PollFlags, poll};
use rustix::fd::AsFd;
use std::collections::{HashMap, HashSet};
use std::io::ErrorKind;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

/// An agent that leaves has this long for its last burst and its children.
const LEAVING: Duration = Duration::from_millis(300);
/// Time between two words to children that an agent is about to leave.
const REMIND: Duration = Duration::from_millis(40);
/// Packets that are read from one socket before anything else is done.
const BATCH: usize = 64;
/// Packets that are read for each one that may be answered.
const READ_PER_ANSWER: u32 = 2;
/// Where more packets come than may be read, they are left lying for this long.
const TOO_MANY: Duration = Duration::from_millis(2);

/// What the agent and the thread that looks after the folder tell each other.
#[derive(Debug, Default)]
pub(super) struct Board {
    /// Agents to ask, the parent first.
    pub(super) candidates: Vec<(DomainId, Card)>,
    /// Agents that did not answer when they were asked last.
    pub(super) silent: HashSet<DomainId>,
    /// Agents that have answered.
    pub(super) answered: u64,
}

/// What the threads of an agent, and who started them, wait for.
#[derive(Clone, Debug)]
pub(super) struct Signals {
    /// Something happened: there are other candidates, or it is time to stop.
    pub(super) wake: Signal,
    /// The command has ended.
    pub(super) stop: Signal,
    /// Another agent has the domain.
    pub(super) lost: Signal,
    /// The last burst is recorded.
    pub(super) measured: Signal,
    /// The agent has ended, and the folder is left.
    pub(super) ended: Signal,
}

/// What an agent starts with.
pub(super) struct Equipment {
    pub(super) domain: ClockDomain,
    pub(super) key: Key,
    pub(super) sockets: Sockets,
    pub(super) answers_per_second: u32,
    pub(super) pace: Pace,
    pub(super) clock: NodeClock,
    pub(super) board: Arc<Mutex<Board>>,
    pub(super) signals: Signals,
}

/// What is known of another agent.
#[derive(Default)]
struct Standing {
    route: Option<(Route, i64)>,
    last_burst: BurstId,
    failures: u32,
    not_before: Option<Instant>,
}

/// What is being asked.
enum Asking {
    /// Which address of it is the nearest?
    Way(Burst, Card),
    /// The times.
    Times { burst: Burst, card: Card, route: Route, wait: Duration, until: Option<Instant>, goodbye: bool },
}

/// The end is near.
struct Leaving {
    until: Instant,
    remind: Instant,
}

pub(super) struct Agent {
    with: Equipment,
    kernel_times: KernelTimes,
    own: u64,
    output: SideOutput,
    items: Vec<Item>,
    children: Children,
    may_read: Bucket,
    may_answer: Bucket,
    candidates: Vec<(DomainId, Card)>,
    known: HashMap<u64, Standing>,
    /// Candidates that are still to be tried in this round.
    to_try: Vec<(DomainId, Card)>,
    asking: Option<Asking>,
    next_round: Instant,
    last_parent: Option<(DomainId, Card)>,
    leaving: Option<Leaving>,
    measured: bool,
}

impl Agent {
    pub(super) fn new(with: Equipment, output: SideOutput) -> Agent {
        let (now, rate) = (Instant::now(), with.answers_per_second);
        // The clocks of a rank that calls nothing would not be there otherwise.
        let items = vec![Item::Clock(Box::new(machine::clock_set(&with.domain)))];
        Agent {
            own: DomainId::of(&with.domain).short(),
            kernel_times: KernelTimes::new(with.clock, &with.sockets),
            with,
            output,
            items,
            children: Children::default(),
            may_read: Bucket::new(rate.saturating_mul(READ_PER_ANSWER), now),
            may_answer: Bucket::new(rate, now),
            candidates: Vec::new(),
            known: HashMap::new(),
            to_try: Vec::new(),
            asking: None,
            next_round: now,
            last_parent: None,
            leaving: None,
            measured: false,
        }
    }

    /// Runs until the command has ended and the children have said goodbye, or another has the domain.
    pub(super) fn run(mut self) {
        loop {
            let now = Instant::now();
            self.hear_news(now);
            self.ask(now);
            self.leave(now);
            if self.is_done(now) {
                break;
            }
            let until = self.next_event(now);
            self.wait(until).into_iter().for_each(|socket| self.receive(socket));
        }
        self.hand_over(true);
        self.with.signals.measured.set();
    }

    /// Takes in the candidates, and the word that it is time to end.
    fn hear_news(&mut self, now: Instant) {
        if !self.with.signals.wake.is_set() {
            return;
        }
        self.with.signals.wake.clear();
        let news = std::mem::take(&mut self.board().candidates);
        if !news.is_empty() {
            let alone = self.last_parent.is_none() && self.asking.is_none();
            for (peer, card) in &news {
                let is_other = |(known, before): &(DomainId, Card)| known == peer && before != card;
                if self.candidates.iter().any(is_other) {
                    // Another agent of that node: it may answer where the one before did not.
                    self.known.remove(&peer.short());
                }
            }
            self.candidates = news;
            if alone {
                self.next_round = now;
            }
        }
        if self.with.signals.stop.is_set() && self.leaving.is_none() {
            self.leaving = Some(Leaving { until: now + LEAVING, remind: now });
            self.to_try.clear();
            match (&self.asking, self.last_parent.clone()) {
                (Some(Asking::Times { card, .. }), _) => {
                    self.ask_for_the_last_time(DomainId::of(&card.domain), card.clone(), now);
                }
                (_, Some((peer, card))) => self.ask_for_the_last_time(peer, card, now),
                _ => self.asking = None,
            }
        }
    }

    fn board(&self) -> std::sync::MutexGuard<'_, Board> {
        self.with.board.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Questions and answers go this way: what is done between the reading of the clock and the wire takes
    /// both the same time. Returns that reading, `None` where nothing could be sent.
    fn stamp_and_send(&self, mut packet: Packet, route: Route) -> Option<i64> {
        packet.sent = (self.with.clock.raw)();
        self.with.sockets.send(&self.with.key.seal(&packet), route).then_some(packet.sent)
    }

    /// A word of farewell, about the last burst between the two.
    fn say(&self, kind: Kind, to: u64, burst: BurstId, route: Route) {
        let received = ReceiveTime::default();
        let word = Packet { kind, burst, number: 0, from: self.own, to, received, sent: 0 };
        let _ = self.stamp_and_send(word, route);
    }

    /// Tells the children that this agent is about to leave.
    fn leave(&mut self, now: Instant) {
        if self.leaving.is_some() && self.asking.is_none() && !self.measured {
            self.measured = true;
            self.items.push(Item::Clock(Box::new(machine::clock_set(&self.with.domain))));
            self.hand_over(true);
            self.with.signals.measured.set();
        }
        let within = self.patience_with_children();
        match &mut self.leaving {
            Some(leaving) if now >= leaving.remind => leaving.remind = now + REMIND,
            _ => return,
        }
        for (child, burst, route) in self.children.waiting(within, now) {
            self.say(Kind::Closing, child, burst, route);
        }
    }

    fn patience_with_children(&self) -> Duration {
        self.with.pace.period.mul_f32(2.5)
    }

    fn is_done(&self, now: Instant) -> bool {
        if self.with.signals.lost.is_set() {
            return true;
        }
        let Some(leaving) = &self.leaving else { return false };
        let nobody = || self.children.waiting(self.patience_with_children(), now).next().is_none();
        now >= leaving.until || self.measured && nobody()
    }

    fn next_event(&mut self, now: Instant) -> Instant {
        let mut next = match &self.asking {
            // Nothing is under way: there is something to send, or to conclude.
            Some(Asking::Way(burst, _) | Asking::Times { burst, .. }) if burst.is_quiet() => Some(now),
            Some(Asking::Way(burst, _)) => burst.patience(),
            Some(Asking::Times { burst, until, .. }) => burst.patience().into_iter().chain(*until).min(),
            None => None,
        }
        .unwrap_or_else(|| if self.leaving.is_some() { now + LEAVING } else { self.next_round });
        if let Some(leaving) = &self.leaving {
            next = next.min(leaving.until).min(leaving.remind);
        }
        next
    }

    /// Waits for packets or news; returns the sockets with packets. Where too many come, none is looked at.
    fn wait(&mut self, until: Instant) -> Vec<usize> {
        let now = Instant::now();
        let flooded = self.may_read.is_empty(now);
        let until = if flooded { until.min(now + TOO_MANY) } else { until };
        let sockets = self.with.sockets.all().map(|socket| socket.as_fd());
        let sockets = sockets.take(if flooded { 0 } else { usize::MAX });
        let all = sockets.chain(std::iter::once(self.with.signals.wake.descriptor()));
        let mut all: Vec<PollFd<'_>> = all.map(|fd| PollFd::from_borrowed_fd(fd, PollFlags::IN)).collect();
        let _ = poll(&mut all, Some(&timespec(until.saturating_duration_since(now))));
        let ready = all.iter().enumerate().filter(|(_, fd)| !fd.revents().is_empty());
        ready.map(|(number, _)| number).collect()
    }

    /// Reads what has arrived at a socket, some of it. A packet's time is read before anything else is done.
    fn receive(&mut self, number: usize) {
        // One byte more than a packet: what is longer is none.
        let mut bytes = [0; PACKET_BYTES + 1];
        for _ in 0..BATCH {
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
            let packet = bytes.get(..datagram.length).and_then(|packet| self.with.key.open(packet));
            if let Some(packet) = packet.filter(|packet| packet.to == self.own) {
                self.take(&packet, Route { socket: number, to: datagram.from }, time);
            }
            if !self.may_read.take(Instant::now()) {
                return;
            }
        }
    }

    /// Discards what the burst under way has measured if `CLOCK_REALTIME` was set.
    fn discard_if_stepped(&mut self) {
        if self.kernel_times.take_step()
            && let Some(Asking::Times { burst, .. }) = &mut self.asking
        {
            burst.discard_probes();
        }
    }

    fn take(&mut self, packet: &Packet, route: Route, time: ReceiveTime) {
        let now = Instant::now();
        match packet.kind {
            Kind::Ask => {
                let answer = self.children.answer(packet, time, route, now);
                if let Some(answer) = answer.filter(|_| self.may_answer.take(now)) {
                    let _ = self.stamp_and_send(answer, route);
                }
            }
            Kind::Answer => {
                if let Some(Asking::Way(burst, _)) | Some(Asking::Times { burst, .. }) = &mut self.asking
                    && burst.take(packet, route.to, time)
                {
                    // The next question goes out at once: both sides are awake now.
                    self.go_on(now);
                }
            }
            Kind::Closing => self.hear_closing(packet, now),
            Kind::Goodbye => self.children.part(packet),
        }
    }

    /// The parent is about to leave: its last times are asked for now.
    fn hear_closing(&mut self, packet: &Packet, now: Instant) {
        let is_new = self.known.get(&packet.from).is_some_and(|known| known.last_burst == packet.burst);
        let parent = self.last_parent.clone().filter(|(parent, _)| parent.short() == packet.from);
        let busy = matches!(&self.asking, Some(Asking::Times { goodbye: true, .. }));
        if let Some((peer, card)) = parent.filter(|_| is_new && !busy) {
            self.ask_for_the_last_time(peer, card, now);
            self.go_on(now);
        }
    }

    fn hand_over(&mut self, at_last: bool) {
        if self.items.is_empty() {
            return;
        }
        let batch = Batch::of(std::mem::take(&mut self.items));
        if at_last {
            let _ = self.output.send(batch);
        } else if let Err(batch) = self.output.try_send(batch) {
            self.items = batch.items;
        }
    }
}
