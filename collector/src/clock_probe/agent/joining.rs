//! Joining the tree: an agent requests its place from the root, and the root assigns places.

use super::{AgentOrder, AgentThread};
use crate::clock_probe::burst::PeerRoute;
use crate::clock_probe::card::{AgentCard, AgentId};
use crate::clock_probe::folder::RootAgent;
use crate::clock_probe::join::{JoinPacket, JoinRequest, TreePlace};
use crate::clock_probe::registry::AgentRegistry;
use crate::host::random::random;
use std::time::{Duration, Instant};

/// First interval between two requests to the root, as a fraction of the next_deadline. Each later interval is
/// twice as long, which gives five requests.
const FIRST_GAP_DIVISOR: u32 = 30;
/// Maximum time before an agent sends another request to a silent root, unless the rendezvous thread finds
/// another root.
const MAX_PAUSE: Duration = Duration::from_secs(60);

/// A request to the root without a reply yet.
struct Joining {
    nonce: u64,
    /// Candidates received so far.
    candidates: Vec<AgentCard>,
    /// Time of the next request, and the interval after it.
    next: Instant,
    gap: Duration,
    /// Time at which the agent gives up.
    until: Instant,
}

/// Place of the agent in the tree.
#[derive(Default)]
pub(super) struct TreeMembership {
    /// The root that this agent has joined or wants to join.
    root: Option<AgentCard>,
    joining: Option<Joining>,
    /// The other agents, if this agent is the root.
    registry: Option<AgentRegistry>,
    failures: u32,
    not_before: Option<Instant>,
    /// The root that handed over to this agent.
    inherited: Option<AgentId>,
}

impl TreeMembership {
    pub(super) fn is_root(&self) -> bool {
        self.registry.is_some()
    }

    /// Whether an agent got its place from this one, so that this agent must not probe it.
    pub(super) fn is_below(&self, agent: AgentId) -> bool {
        self.registry.as_ref().is_some_and(|registry| registry.has(agent))
    }

    /// Returns when a request to the root is due.
    pub(super) fn next_event(&self) -> Option<Instant> {
        self.joining.as_ref().map(|joining| joining.next.min(joining.until))
    }

    /// Ends a request to the root.
    pub(super) fn stop_joining(&mut self) {
        self.joining = None;
    }
}

impl AgentThread {
    /// Executes an order of the rendezvous thread.
    pub(super) fn follow(&mut self, order: AgentOrder, now: Instant) {
        match order {
            AgentOrder::Join(RootAgent { card, key }) => {
                self.with.key = key;
                self.membership = TreeMembership { root: Some(card), ..TreeMembership::default() };
                self.begin_joining(now);
            }
            AgentOrder::Lead(key) => {
                self.with.key = key;
                let inherited = self.membership.inherited;
                let registry = Some(AgentRegistry::new(self.with.card.clone()));
                self.membership = TreeMembership { registry, inherited, ..TreeMembership::default() };
                self.board().is_orphan = false;
            }
        }
    }

    /// Sends another request to the root after a round in which no agent replied, if that may help.
    pub(super) fn note_round_without_parent(&mut self, now: Instant) {
        let is_busy =
            self.running_burst.is_some() || self.leaving.is_some() || self.membership.joining.is_some();
        if is_busy || self.last_parent.is_some() || self.membership.is_root() {
            return;
        }
        self.board().is_orphan = true;
        if self.membership.not_before.is_none_or(|moment| now >= moment) {
            self.begin_joining(now);
        }
    }

    fn begin_joining(&mut self, now: Instant) {
        let Some(root) = &self.membership.root else { return };
        self.known.entry(root.agent).or_default();
        let (next_deadline, nonce) = (self.with.pace.next_deadline, random().unwrap_or_default() as u64);
        let (candidates, gap, until) = (Vec::new(), next_deadline / FIRST_GAP_DIVISOR, now + next_deadline);
        self.membership.joining = Some(Joining { nonce, candidates, next: now, gap, until });
        self.request_place(now);
    }

    /// Sends the request to the root again when it is due, or gives up.
    pub(super) fn request_place(&mut self, now: Instant) {
        let Some(joining) = &mut self.membership.joining else { return };
        if now >= joining.until {
            return self.give_up_root(now);
        }
        let Some(root) = self.membership.root.as_ref().filter(|_| now >= joining.next) else { return };
        joining.next = now + joining.gap;
        joining.gap *= 2;
        let (nonce, first) = (joining.nonce, joining.candidates.len() as u16);
        let join = JoinRequest { card: self.with.card.clone(), to: root.agent, nonce, first };
        let Some(sealed) = JoinPacket::Join(join).seal(&self.with.key) else { return };
        for route in root.addresses.iter().filter_map(|to| self.with.sockets.route(*to)) {
            self.with.sockets.send(&sealed, route);
        }
    }

    fn give_up_root(&mut self, now: Instant) {
        let membership = &mut self.membership;
        let got_some = membership.joining.as_ref().is_some_and(|joining| !joining.candidates.is_empty());
        if got_some {
            return self.enter_place(now);
        }
        membership.joining = None;
        let pause = self.with.pace.period.saturating_mul(1 << membership.failures.min(5));
        membership.failures += 1;
        membership.not_before = Some(now + pause.min(MAX_PAUSE));
        if let Some(silent) = membership.root.as_ref().map(|root| root.agent) {
            self.publish();
            self.board().silent_root = Some(silent);
            self.with.signals.news.set();
        }
    }

    pub(super) fn take_join(&mut self, packet: JoinPacket, route: PeerRoute) {
        let (now, own) = (Instant::now(), self.with.card.agent);
        match packet {
            JoinPacket::Join(join) if join.to == own && join.card.agent != own => {
                self.received += 1;
                let Some(registry) = &mut self.membership.registry else { return };
                if !self.may_reply.take(now) {
                    return;
                }
                let place = TreePlace::reply_to(join, registry).map(JoinPacket::Place);
                if let Some(sealed) = place.and_then(|place| place.seal(&self.with.key)) {
                    self.with.sockets.send(&sealed, route);
                }
            }
            JoinPacket::Place(place) if place.to == own => self.take_place(place, now),
            _ => {}
        }
    }

    fn take_place(&mut self, place: TreePlace, now: Instant) {
        let root = self.membership.root.as_ref().map(|root| root.agent);
        let Some(joining) = &mut self.membership.joining else { return };
        let is_next = usize::from(place.first) == joining.candidates.len();
        if (Some(place.from), place.nonce) != (root, joining.nonce) || !is_next {
            return;
        }
        self.received += 1;
        let has_more = !place.candidates.is_empty();
        joining.candidates.extend(place.candidates);
        if has_more && joining.candidates.len() < place.total.into() {
            let next_deadline = self.with.pace.next_deadline;
            (joining.next, joining.gap, joining.until) =
                (now, next_deadline / FIRST_GAP_DIVISOR, now + next_deadline);
            return self.request_place(now);
        }
        self.enter_place(now);
    }

    /// Probes the agents that its place names from now on.
    fn enter_place(&mut self, now: Instant) {
        let Some(Joining { mut candidates, .. }) = self.membership.joining.take() else { return };
        // The root is an ancestor of all agents, even if the reply was truncated.
        candidates.extend(self.membership.root.clone());
        let mut seen = std::collections::HashSet::from([self.with.card.agent]);
        candidates.retain(|card| seen.insert(card.agent));
        if let Some(root) = candidates.last() {
            // The root is alive, so the next request may be sent at once.
            self.known.entry(root.agent).or_default().not_before = None;
        }
        self.candidates = candidates;
        (self.membership.failures, self.membership.not_before) = (0, None);
        self.board().is_orphan = false;
        if self.last_parent.is_none() && self.running_burst.is_none() {
            self.next_round = now;
        }
    }

    /// The root leaves and offers its role to this agent. Returns whether this agent accepts.
    pub(super) fn inherit(&mut self, from: AgentId) -> bool {
        if self.membership.inherited == Some(from) {
            return true;
        }
        let is_root_of_own = self.membership.root.as_ref().is_some_and(|root| root.agent == from);
        if self.leaving.is_some() || !is_root_of_own {
            return false;
        }
        self.membership.inherited = Some(from);
        self.board().inherits_from = Some(from);
        self.with.signals.news.set();
        true
    }
}
