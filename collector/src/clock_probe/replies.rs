//! Replies to children: which agents probe this one. No request gets two replies.

use super::burst::{MAX_REQUESTS, PeerRoute};
use super::packet::{BurstId, PacketKind, ProbePacket, ReceiveTime, STAYS};
use std::collections::HashMap;
use std::time::{Duration, Instant};

/// Maximum number of known agents. A tree of a thousand nodes has ten per agent; an agent without living
/// ancestors may have all.
const MAX_CHILDREN: usize = 4096;

/// An agent that probes this one.
#[derive(Debug)]
struct ChildAgent {
    burst: BurstId,
    /// Requests of its burst that got a reply, a bit for each.
    seen: [u64; MAX_REQUESTS as usize / 64],
    route: PeerRoute,
    last: Instant,
    left: bool,
    /// The child has left this parent and continues.
    stays: bool,
}

/// All agents that probe this one.
#[derive(Debug, Default)]
pub(super) struct ChildAgents(HashMap<u64, ChildAgent>);

impl ChildAgents {
    /// Makes the reply to a request, without the time at which it is sent. `None` if the request got one
    /// before or belongs to an older burst: it was sent again.
    pub(super) fn reply_to(
        &mut self,
        request: &ProbePacket,
        received: ReceiveTime,
        route: PeerRoute,
        now: Instant,
    ) -> Option<ProbePacket> {
        let known = self.0.contains_key(&request.from);
        if !known && self.0.len() >= MAX_CHILDREN {
            return None;
        }
        let (burst, seen) = (request.burst, Default::default());
        let new = || ChildAgent { burst, seen, route, last: now, left: false, stays: false };
        let child = self.0.entry(request.from).or_insert_with(new);
        if request.burst.began > child.burst.began {
            *child = new();
        }
        let (word, bit) = (child.seen.get_mut(request.number as usize / 64)?, 1 << (request.number % 64));
        if request.burst != child.burst || *word & bit != 0 {
            return None;
        }
        *word |= bit;
        (child.route, child.last, child.left) = (route, now, false);
        let (kind, from, to) = (PacketKind::Reply, request.to, request.from);
        Some(ProbePacket { kind, from, to, received, sent: 0, ..*request })
    }

    /// Marks a child as gone: it sends no more requests.
    pub(super) fn note_goodbye(&mut self, goodbye: &ProbePacket) {
        if let Some(child) = self.0.get_mut(&goodbye.from).filter(|child| child.burst == goodbye.burst) {
            child.left = true;
            child.stays = goodbye.number == STAYS;
        }
    }

    /// Returns the child that has left this parent and continues, with its last burst.
    pub(super) fn heir(&self) -> Option<(u64, BurstId, PeerRoute)> {
        let heir =
            self.0.iter().filter(|(_, child)| child.left && child.stays).min_by_key(|(from, _)| **from);
        heir.map(|(from, child)| (*from, child.burst, child.route))
    }

    /// Notes that a child does not reply to the offer to become the root.
    pub(super) fn pass_over(&mut self, heir: u64) {
        if let Some(child) = self.0.get_mut(&heir) {
            child.stays = false;
        }
    }

    /// Returns the children that sent a request within `within` and have not said goodbye, with their last
    /// bursts.
    pub(super) fn waiting(
        &self,
        within: Duration,
        now: Instant,
    ) -> impl Iterator<Item = (u64, BurstId, PeerRoute)> {
        let there =
            move |child: &ChildAgent| !child.left && now.saturating_duration_since(child.last) < within;
        let children = self.0.iter().filter(move |(_, child)| there(child));
        children.map(|(from, child)| (*from, child.burst, child.route))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::SocketAddr;

    const BURST: BurstId = BurstId { began: 50, nonce: 9 };
    const RECEIVED: ReceiveTime = ReceiveTime { program: 500, delay: std::num::NonZeroU32::new(7) };

    fn route() -> PeerRoute {
        PeerRoute { socket: 0, to: SocketAddr::from(([127, 0, 0, 1], 9)) }
    }

    fn request(burst: BurstId, number: u32) -> ProbePacket {
        ProbePacket {
            kind: PacketKind::Request,
            burst,
            number,
            from: 1,
            to: 2,
            received: ReceiveTime::default(),
            sent: 70,
        }
    }

    #[test]
    fn a_request_gets_one_reply() {
        let (mut children, now) = (ChildAgents::default(), Instant::now());
        let mut reply_to = |burst, number| children.reply_to(&request(burst, number), RECEIVED, route(), now);
        for number in 0..MAX_REQUESTS {
            let reply = reply_to(BURST, number).unwrap();
            assert_eq!(
                (reply.kind, reply.from, reply.to, reply.received),
                (PacketKind::Reply, 2, 1, RECEIVED)
            );
            assert!(reply_to(BURST, number).is_none(), "again");
        }
        assert!(reply_to(BURST, MAX_REQUESTS).is_none() && reply_to(BURST, u32::MAX).is_none());
        assert!(reply_to(BurstId { nonce: 8, ..BURST }, 0).is_none(), "another burst of the same time");
        let later = BurstId { began: 51, nonce: 3 };
        assert!(reply_to(later, 7).is_some());
        assert!(reply_to(BURST, 0).is_none() && reply_to(later, 7).is_none(), "a burst before the last");
    }

    #[test]
    fn children_wait_until_goodbye_or_long_silence() {
        let (mut children, now) = (ChildAgents::default(), Instant::now());
        let second = Duration::from_secs(1);
        children.reply_to(&request(BURST, 0), RECEIVED, route(), now).unwrap();
        let count = |children: &ChildAgents, later: Duration| children.waiting(second, now + later).count();
        assert_eq!((count(&children, Duration::ZERO), count(&children, second)), (1, 0));
        let goodbye = |burst| ProbePacket { kind: PacketKind::Goodbye, ..request(burst, 0) };
        children.note_goodbye(&goodbye(BurstId { began: 49, ..BURST }));
        assert_eq!(count(&children, Duration::ZERO), 1, "a goodbye of another burst");
        children.note_goodbye(&goodbye(BURST));
        assert_eq!(count(&children, Duration::ZERO), 0);
        children.reply_to(&request(BURST, 1), RECEIVED, route(), now).unwrap();
        assert_eq!(count(&children, Duration::ZERO), 1, "it sends requests again");
    }

    #[test]
    fn an_heir_is_a_child_that_goes_on() {
        let (mut children, now) = (ChildAgents::default(), Instant::now());
        for from in 1..=4 {
            children.reply_to(&ProbePacket { from, ..request(BURST, 0) }, RECEIVED, route(), now).unwrap();
        }
        let goodbye =
            |from, number| ProbePacket { kind: PacketKind::Goodbye, number, from, ..request(BURST, 0) };
        assert_eq!(children.heir(), None);
        [goodbye(1, 0), goodbye(3, STAYS), goodbye(2, STAYS)]
            .iter()
            .for_each(|packet| children.note_goodbye(packet));
        assert_eq!(children.heir(), Some((2, BURST, route())));
        children.note_goodbye(&goodbye(2, 0));
        assert_eq!(children.heir(), Some((3, BURST, route())), "the other one has ended since");
        children.pass_over(3);
        assert_eq!(children.heir(), None);
    }

    #[test]
    fn children_are_bounded() {
        let (mut children, now) = (ChildAgents::default(), Instant::now());
        let replies = (0..2 * MAX_CHILDREN as u64).filter(|from| {
            children
                .reply_to(&ProbePacket { from: *from, ..request(BURST, 0) }, RECEIVED, route(), now)
                .is_some()
        });
        assert_eq!(replies.count(), MAX_CHILDREN);
    }
}
