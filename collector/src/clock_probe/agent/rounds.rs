//! Rounds: which agent to probe, by which route, and what to record.

use super::{AgentThread, RunningBurst};
use crate::clock_probe::burst::{MAX_REQUESTS, OpenBurst, PeerRoute};
use crate::clock_probe::card::{AgentCard, AgentId};
use crate::clock_probe::interfaces::MAX_ADDRESSES;
use crate::clock_probe::packet::{BurstId, PacketKind};
use crate::host::random::random;
use crate::shard_output::OutputItem;
use std::time::{Duration, Instant};

/// Requests in the first burst to a parent and in the last one; requests in the bursts between them.
const MANY_REQUESTS: u32 = 200;
const FEW_REQUESTS: u32 = 20;
/// Requests to each address of another agent, to find the shortest route.
const REQUESTS_PER_ROUTE: u32 = 3;
/// Minimum time before a request is given up: this or four round trips.
const MIN_PATIENCE: Duration = Duration::from_millis(10);
/// Maximum duration of a search for a route.
const SEARCH_TIME: Duration = Duration::from_millis(40);
/// Maximum duration of the last burst.
const LAST_BURST: Duration = Duration::from_millis(150);
/// Maximum time before an agent that does not reply is probed again.
const MAX_PAUSE: Duration = Duration::from_secs(60);
/// Maximum number of items that are kept while the writing thread is far behind.
const MAX_PENDING_ITEMS: usize = 512;

const _: () =
    assert!(MANY_REQUESTS <= MAX_REQUESTS && REQUESTS_PER_ROUTE * MAX_ADDRESSES as u32 <= MAX_REQUESTS);

impl AgentThread {
    /// Starts a round when it is due, and continues it: sends requests that are due, and gives up others.
    pub(super) fn probe(&mut self, now: Instant) {
        match &mut self.running_burst {
            Some(RunningBurst::RouteSearch(burst, _)) | Some(RunningBurst::Measurement { burst, .. }) => {
                burst.give_up(now)
            }
            None if self.leaving.is_none() && now >= self.next_round => self.begin_round(now),
            None => {}
        }
        self.go_on(now);
    }

    /// Every agent does this every few seconds, at a time of its own.
    fn begin_round(&mut self, now: Instant) {
        let period = self.with.pace.period;
        let random = random().unwrap_or_default() as u8;
        let jitter = period.mul_f32(f32::from(random) / 256.0);
        // The first interval is random, up to one period. The others are about one period.
        self.next_round = match self.last_parent {
            Some(_) => now + period.mul_f32(0.9) + jitter.mul_f32(0.2),
            None => now + period.mul_f32(0.2) + jitter.mul_f32(0.8),
        };
        let may_try = |card: &&AgentCard| {
            let standing = self.known.get(&card.agent);
            standing.and_then(|standing| standing.not_before).is_none_or(|moment| now >= moment)
                && !self.membership.is_below(card.agent)
        };
        self.to_try = self.candidates.iter().filter(may_try).cloned().collect();
        self.try_next(now);
    }

    /// Probes the next candidate, if there is one.
    fn try_next(&mut self, now: Instant) {
        self.running_burst = None;
        while !self.to_try.is_empty() && self.running_burst.is_none() {
            let card = self.to_try.remove(0);
            match self.known.get(&card.agent).and_then(|standing| standing.route) {
                Some(_) => self.begin_measurement(card),
                None => self.search_route(card, now),
            }
        }
        self.note_round_without_parent(now);
    }

    fn burst(&self, peer: AgentId, wanted: u32) -> OpenBurst {
        let nonce = random().unwrap_or_default() as u64;
        OpenBurst::new(BurstId { began: (self.with.clock.raw)(), nonce }, self.own, peer.0, wanted)
    }

    /// Sends a few requests to each address of an agent at once.
    fn search_route(&mut self, card: AgentCard, now: Instant) {
        let routes: Vec<PeerRoute> =
            card.addresses.iter().filter_map(|to| self.with.sockets.route(*to)).collect();
        let mut burst = self.burst(card.agent, REQUESTS_PER_ROUTE * routes.len() as u32);
        for route in std::iter::repeat_n(&routes, REQUESTS_PER_ROUTE as usize).flatten() {
            self.send_request(&mut burst, *route, SEARCH_TIME);
        }
        self.known.entry(card.agent).or_default().last_burst = burst.id;
        if burst.is_quiet() {
            return self.note_silence(card.agent, now);
        }
        self.running_burst = Some(RunningBurst::RouteSearch(burst, card));
    }

    /// Starts a burst by the route that was found before.
    fn begin_measurement(&mut self, card: AgentCard) {
        let is_new = self.last_parent.as_ref().is_none_or(|parent| parent.agent != card.agent);
        let burst = self.burst(card.agent, if is_new { MANY_REQUESTS } else { FEW_REQUESTS });
        let standing = self.known.entry(card.agent).or_default();
        let Some((route, trip)) = standing.route else { return };
        standing.last_burst = burst.id;
        let wait = MIN_PATIENCE.max(Duration::from_nanos(trip.unsigned_abs()) * 4);
        self.running_burst =
            Some(RunningBurst::Measurement { burst, card, route, wait, until: None, goodbye: false });
    }

    /// Starts the last burst to a parent, followed by a goodbye, because a command has ended here or there.
    pub(super) fn begin_last_burst(&mut self, card: AgentCard, now: Instant) {
        let is_measuring = matches!(&self.running_burst, Some(RunningBurst::Measurement { burst, .. }) if burst.peer == card.agent.0);
        if !is_measuring {
            self.running_burst = None;
            self.begin_measurement(card);
        }
        if let Some(RunningBurst::Measurement { burst, until, goodbye, .. }) = &mut self.running_burst {
            burst.extend(MANY_REQUESTS);
            *until = Some(now + LAST_BURST);
            *goodbye = true;
        }
    }

    /// Sends what is due, and concludes a burst after its last request.
    pub(super) fn go_on(&mut self, now: Instant) {
        match self.running_burst.take() {
            Some(RunningBurst::RouteSearch(burst, card)) if burst.is_quiet() => {
                self.conclude_search(burst, card, now)
            }
            Some(RunningBurst::Measurement { mut burst, card, route, wait, until, goodbye }) => {
                let in_time = until.is_none_or(|until| now < until);
                while burst.is_quiet() && burst.has_more() && in_time {
                    self.send_request(&mut burst, route, wait);
                }
                if burst.is_quiet() || !in_time {
                    self.conclude_measurement(&burst, card, goodbye, now);
                } else {
                    self.running_burst =
                        Some(RunningBurst::Measurement { burst, card, route, wait, until, goodbye });
                }
            }
            other => self.running_burst = other,
        }
    }

    fn send_request(&self, burst: &mut OpenBurst, route: PeerRoute, wait: Duration) {
        let until = Instant::now() + wait;
        let request = burst.next_request();
        burst.sent(request.number, route, self.stamp_and_send(request, route), until);
    }

    fn conclude_search(&mut self, burst: OpenBurst, card: AgentCard, now: Instant) {
        let peer = card.agent;
        match burst.best_route() {
            Some(found) => {
                self.known.entry(peer).or_default().route = Some(found);
                self.begin_measurement(card);
                self.go_on(now);
            }
            None => {
                self.note_silence(peer, now);
                self.try_next(now);
            }
        }
    }

    fn conclude_measurement(&mut self, burst: &OpenBurst, card: AgentCard, goodbye: bool, now: Instant) {
        let peer = card.agent;
        if let Some(result) = burst.result(&self.with.domain, &card.domain) {
            if self.items.len() < MAX_PENDING_ITEMS {
                self.items.push(OutputItem::Probes(Box::new(result)));
            }
            self.hand_over(false);
        }
        let standing = self.known.entry(peer).or_default();
        if goodbye {
            standing.not_before = Some(now + MAX_PAUSE);
            if let Some((route, _)) = standing.route.take() {
                // Sent twice, because one may get lost.
                (0..2).for_each(|_| self.send_message(PacketKind::Goodbye, peer.0, burst.id, route));
            }
            self.last_parent = None;
            self.to_try.clear();
            return;
        }
        if burst.is_in_vain() {
            standing.route = None;
        }
        if burst.reply_count() == 0 {
            self.last_parent.take_if(|parent| parent.agent == peer);
            self.note_silence(peer, now);
            return self.try_next(now);
        }
        standing.failures = 0;
        self.last_parent = Some(card);
        self.to_try.clear();
        self.board().is_orphan = false;
    }

    /// Pauses the probes of an agent that does not reply, longer each time.
    fn note_silence(&mut self, peer: AgentId, now: Instant) {
        let standing = self.known.entry(peer).or_default();
        let pause = self.with.pace.period.saturating_mul(1 << standing.failures.min(5));
        standing.failures += 1;
        standing.not_before = Some(now + pause.min(MAX_PAUSE));
    }
}
