//! The end of an agent: its last burst, its children, and, for a root, its heir.

use super::{AgentThread, RunningBurst};
use crate::clock_probe::burst::PeerRoute;
use crate::clock_probe::card::AgentId;
use crate::clock_probe::packet::{BurstId, PacketKind, ProbePacket, ReceiveTime, STAYS};
use crate::host::machine;
use crate::shard_output::OutputItem;
use std::time::{Duration, Instant};

/// Time that a leaving agent has for its last burst and its children.
const TIME_TO_LEAVE: Duration = Duration::from_millis(300);
/// Time that a leaving root has. It needs the rest to write or remove the file.
const TIME_TO_LEAVE_AS_ROOT: Duration = Duration::from_millis(240);
/// Time after which a root stops waiting for the last probes of its children and looks for an heir.
const TIME_BEFORE_HANDOVER: Duration = Duration::from_millis(180);
/// Interval between two messages to children of a leaving agent.
const REMIND_EVERY: Duration = Duration::from_millis(40);
/// Interval between two messages to an heir, and their maximum number.
const OFFER_EVERY: Duration = Duration::from_millis(15);
const MAX_OFFERS: u32 = 2;

/// State of an agent after the end of its command.
pub(super) struct LeavingState {
    began: Instant,
    until: Instant,
    remind: Instant,
    offer: Option<HeirOffer>,
    handed_over: bool,
}

/// An offer of the root's role to a child.
struct HeirOffer {
    heir: u64,
    sent: u32,
    again: Instant,
}

impl AgentThread {
    /// Starts the last burst when the command has ended.
    pub(super) fn begin_leaving(&mut self, now: Instant) {
        if !self.with.signals.stop.is_set() || self.leaving.is_some() {
            return;
        }
        let until = now + if self.membership.is_root() { TIME_TO_LEAVE_AS_ROOT } else { TIME_TO_LEAVE };
        self.leaving = Some(LeavingState { began: now, until, remind: now, offer: None, handed_over: false });
        self.membership.stop_joining();
        self.to_try.clear();
        match (&self.running_burst, self.last_parent.clone()) {
            (Some(RunningBurst::Measurement { card, .. }), _) => self.begin_last_burst(card.clone(), now),
            (_, Some(card)) => self.begin_last_burst(card, now),
            _ => self.running_burst = None,
        }
    }

    /// Continues to leave: first the last burst, then the children, then the heir.
    pub(super) fn leave(&mut self, now: Instant) {
        if self.leaving.is_some() && self.running_burst.is_none() && !self.measured {
            self.measured = true;
            self.items.push(OutputItem::Clock(Box::new(machine::clock_set(&self.with.domain))));
            self.hand_over(true);
            self.with.signals.measured.set();
        }
        self.offer_root(now);
        let within = self.patience_with_children();
        match &mut self.leaving {
            Some(leaving) if now >= leaving.remind => leaving.remind = now + REMIND_EVERY,
            _ => return,
        }
        for (child, burst, route) in self.children.waiting(within, now) {
            self.send_message(PacketKind::Closing, child, burst, route);
        }
    }

    /// Offers the role of the root to a child that continues; to another child if that one does not reply.
    fn offer_root(&mut self, now: Instant) {
        if !self.may_hand_over(now) {
            return;
        }
        while let Some((heir, burst, route)) = self.children.heir() {
            let Some(leaving) = &mut self.leaving else { return };
            let offer = leaving.offer.take_if(|offer| offer.heir == heir);
            let mut offer = offer.unwrap_or(HeirOffer { heir, sent: 0, again: now });
            if now < offer.again {
                leaving.offer = Some(offer);
                return;
            }
            if offer.sent < MAX_OFFERS {
                offer.sent += 1;
                offer.again = now + OFFER_EVERY;
                leaving.offer = Some(offer);
                return self.send_message(PacketKind::Handover, heir, burst, route);
            }
            self.children.pass_over(heir);
        }
    }

    /// Whether this agent is the root and its children have sent their last probes.
    fn may_hand_over(&self, now: Instant) -> bool {
        let Some(leaving) = self.leaving.as_ref().filter(|leaving| !leaving.handed_over) else {
            return false;
        };
        let are_done = !self.has_children(now) || now >= leaving.began + TIME_BEFORE_HANDOVER;
        self.membership.is_root() && self.measured && are_done
    }

    /// Processes the reply of an heir.
    pub(super) fn take_heir(&mut self, packet: &ProbePacket) {
        if let Some(leaving) = &mut self.leaving {
            leaving.handed_over |= leaving.offer.as_ref().is_some_and(|offer| offer.heir == packet.from);
        }
    }

    /// Processes the offer of a leaving root: replies whether this agent becomes the root.
    pub(super) fn take_handover(&mut self, packet: &ProbePacket, route: PeerRoute) {
        let from = AgentId(packet.from);
        if self.known.get(&from).is_none_or(|known| known.last_burst != packet.burst) {
            return;
        }
        let kind = if self.inherit(from) { PacketKind::Heir } else { PacketKind::Goodbye };
        self.send_numbered(kind, 0, packet.from, packet.burst, route);
    }

    /// Makes a goodbye packet that names the last burst between two agents.
    pub(super) fn send_message(&self, kind: PacketKind, to: u64, burst: BurstId, route: PeerRoute) {
        let stays = kind == PacketKind::Goodbye && self.leaving.is_none();
        self.send_numbered(kind, if stays { STAYS } else { 0 }, to, burst, route);
    }

    fn send_numbered(&self, kind: PacketKind, number: u32, to: u64, burst: BurstId, route: PeerRoute) {
        let received = ReceiveTime::default();
        let word = ProbePacket { kind, burst, number, from: self.own, to, received, sent: 0 };
        let _ = self.stamp_and_send(word, route);
    }

    fn patience_with_children(&self) -> Duration {
        self.with.pace.period.mul_f32(2.5)
    }

    fn has_children(&self, now: Instant) -> bool {
        self.children.waiting(self.patience_with_children(), now).next().is_some()
    }

    pub(super) fn is_done(&self, now: Instant) -> bool {
        let Some(leaving) = &self.leaving else { return false };
        let may_find_heir = || self.may_hand_over(now) && self.children.heir().is_some();
        now >= leaving.until || self.measured && !self.has_children(now) && !may_find_heir()
    }

    /// Whether another agent is the root now.
    pub(super) fn has_handed_over(&self) -> bool {
        self.leaving.as_ref().is_some_and(|leaving| leaving.handed_over)
    }

    /// Returns when the next step of leaving is due.
    pub(super) fn next_of_leaving(&self) -> Option<Instant> {
        let leaving = self.leaving.as_ref()?;
        let offer = leaving.offer.as_ref().filter(|_| !leaving.handed_over).map(|offer| offer.again);
        let handover = leaving.began + TIME_BEFORE_HANDOVER;
        let is_ahead = self.membership.is_root() && handover > Instant::now();
        let handover = is_ahead.then_some(handover);
        [Some(leaving.until), Some(leaving.remind), offer, handover].into_iter().flatten().min()
    }
}
