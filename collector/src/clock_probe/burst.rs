//! One probe burst to one agent, and its result.

use super::packet::{BurstId, PacketKind, ProbePacket, ReceiveTime};
use rpd_shard::record::{ClockDomain, Probe, ProbeBurst};
use std::net::SocketAddr;
use std::time::Instant;

/// Maximum number of requests in one burst: the replying agent keeps a bit for each.
pub(super) const MAX_REQUESTS: u32 = 256;
/// Number of consecutive requests without a reply that ends a burst.
const MAX_REQUESTS_WITHOUT_REPLY: u32 = 5;

/// Number of probes with kernel times on both sides that suffices to drop the others.
const MIN_KERNEL_PROBES: usize = 3;

/// A route to another agent: one of its addresses, and our socket that reaches it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct PeerRoute {
    pub(super) socket: usize,
    pub(super) to: SocketAddr,
}

/// A request that may still get a reply.
#[derive(Clone, Copy, Debug)]
struct OpenRequest {
    number: u32,
    route: PeerRoute,
    t1: i64,
    until: Instant,
}

/// A probe with its reply and both kinds of receive times.
#[derive(Clone, Copy, Debug)]
struct CompletedProbe {
    route: PeerRoute,
    /// With t2 and t4 as the programs read them.
    program: Probe,
    /// With t2 and t4 as the kernels stamped them, if both did.
    kernel: Option<Probe>,
}

/// A burst that is running.
#[derive(Debug)]
pub(super) struct OpenBurst {
    pub(super) id: BurstId,
    /// Hashes of the two clock domains.
    own: u64,
    pub(super) peer: u64,
    /// Requests that are still to be sent.
    pub(super) wanted: u32,
    sent: u32,
    open: Vec<OpenRequest>,
    probes: Vec<CompletedProbe>,
    /// Number of probes with a reply that were discarded.
    discarded: usize,
    /// Number of requests without a reply since the last reply.
    silent: u32,
}

impl OpenBurst {
    pub(super) fn new(id: BurstId, own: u64, peer: u64, wanted: u32) -> OpenBurst {
        let wanted = wanted.min(MAX_REQUESTS);
        let (open, probes) = (Vec::new(), Vec::new());
        OpenBurst { id, own, peer, wanted, sent: 0, open, probes, discarded: 0, silent: 0 }
    }

    /// Adds `more` requests to those sent so far.
    pub(super) fn extend(&mut self, more: u32) {
        self.wanted = self.wanted.max(self.sent.saturating_add(more).min(MAX_REQUESTS));
    }

    /// Whether a request is still to be sent.
    pub(super) fn has_more(&self) -> bool {
        self.sent < self.wanted && self.silent < MAX_REQUESTS_WITHOUT_REPLY
    }

    /// Whether no request waits for its reply.
    pub(super) fn is_quiet(&self) -> bool {
        self.open.is_empty()
    }

    /// Returns the number of replies, with those that were discarded.
    pub(super) fn reply_count(&self) -> usize {
        self.probes.len() + self.discarded
    }

    /// Whether the other agent has fallen silent.
    pub(super) fn is_in_vain(&self) -> bool {
        self.silent >= MAX_REQUESTS_WITHOUT_REPLY || self.reply_count() == 0
    }

    /// Makes the next request, without the time at which it is sent: see [`OpenBurst::sent`].
    pub(super) fn next_request(&mut self) -> ProbePacket {
        let number = self.sent;
        self.sent += 1;
        let (kind, burst, received) = (PacketKind::Request, self.id, ReceiveTime::default());
        ProbePacket { kind, burst, number, from: self.own, to: self.peer, received, sent: 0 }
    }

    /// Notes when the request was sent, or that it could not be sent.
    pub(super) fn sent(&mut self, number: u32, route: PeerRoute, t1: Option<i64>, until: Instant) {
        match t1 {
            Some(t1) => self.open.push(OpenRequest { number, route, t1, until }),
            None => self.silent += 1,
        }
    }

    /// Adds a reply. Returns `false` if no request waits for it.
    pub(super) fn take(&mut self, reply: &ProbePacket, from: SocketAddr, received: ReceiveTime) -> bool {
        if (reply.kind, reply.burst, reply.from, reply.to)
            != (PacketKind::Reply, self.id, self.peer, self.own)
        {
            return false;
        }
        let fits = |request: &OpenRequest| request.number == reply.number && request.route.to == from;
        let Some(at) = self.open.iter().position(fits) else { return false };
        let OpenRequest { t1, route, .. } = self.open.swap_remove(at);
        self.silent = 0;
        let probe = |t2, t4| Probe { t1, t2, t3: reply.sent, t4 };
        let program = probe(reply.received.program, received.program);
        let noted = reply.received.kernel().zip(received.kernel());
        let kernel = noted.map(|(t2, t4)| probe(t2, t4)).filter(|probe| probe.round_trip().is_some());
        // A clock stepped in between.
        if program.round_trip().is_some() {
            self.probes.push(CompletedProbe { route, program, kernel });
        }
        true
    }

    /// Discards the probes so far, because a clock was stepped. Requests without a reply continue.
    pub(super) fn discard_probes(&mut self) {
        self.discarded += self.probes.len();
        self.probes.clear();
    }

    /// Returns when the next request times out.
    pub(super) fn next_deadline(&self) -> Option<Instant> {
        self.open.iter().map(|request| request.until).min()
    }

    /// Gives up requests without a reply in time.
    pub(super) fn give_up(&mut self, now: Instant) {
        let before = self.open.len();
        self.open.retain(|request| request.until > now);
        self.silent += (before - self.open.len()) as u32;
    }

    /// Returns the route with the shortest round trip, and that time in ns.
    pub(super) fn best_route(&self) -> Option<(PeerRoute, i64)> {
        let trips = self
            .probes
            .iter()
            .filter_map(|probe| Some((probe.route, probe.kernel.unwrap_or(probe.program).round_trip()?)));
        trips.min_by_key(|(_, trip)| *trip)
    }

    /// Makes the record of the burst; `None` without a reply. Probes with kernel times on both sides are
    /// recorded alone if there are three, or if all probes have them. Otherwise all are recorded with the
    /// times of the programs. So no recorded burst mixes the two.
    pub(super) fn result(&self, from: &ClockDomain, to: &ClockDomain) -> Option<ProbeBurst> {
        let by_kernels: Vec<Probe> = self.probes.iter().filter_map(|probe| probe.kernel).collect();
        let kernel_times = by_kernels.len() >= MIN_KERNEL_PROBES.min(self.probes.len());
        let by_programs = || self.probes.iter().map(|probe| probe.program).collect();
        let mut probes = if kernel_times { by_kernels } else { by_programs() };
        let answered = self.probes.len() as u32;
        let spread = spread(&probes);
        probes.sort_by_key(|probe| (probe.round_trip(), probe.t1));
        probes.truncate(ProbeBurst::MOST_KEPT);
        let (from, to) = (from.clone(), to.clone());
        let burst = ProbeBurst { from, to, sent: self.sent, answered, spread, best: probes, kernel_times };
        burst.is_sound().then_some(burst)
    }
}

/// Returns the median absolute deviation of the offsets.
fn spread(probes: &[Probe]) -> i64 {
    let middle = |values: &mut Vec<i64>| {
        values.sort_unstable();
        values.get(values.len() / 2).copied().unwrap_or(0)
    };
    let mut offsets: Vec<i64> = probes.iter().map(Probe::offset).collect();
    let median = middle(&mut offsets);
    let mut deviations: Vec<i64> =
        offsets.iter().map(|offset| offset.saturating_sub(median).saturating_abs()).collect();
    middle(&mut deviations)
}

#[cfg(test)]
mod tests {
    use super::*;

    use std::time::Duration;

    const WAIT: Duration = Duration::from_millis(10);
    const ID: BurstId = BurstId { began: 1, nonce: 2 };

    fn route(port: u16) -> PeerRoute {
        PeerRoute { socket: 0, to: SocketAddr::from(([127, 0, 0, 1], port)) }
    }

    fn send_request(burst: &mut OpenBurst, port: u16, t1: i64) -> ProbePacket {
        let request = burst.next_request();
        burst.sent(request.number, route(port), Some(t1), Instant::now() + WAIT);
        ProbePacket { sent: t1, ..request }
    }

    fn reply_to(request: &ProbePacket, there: i64, stay: i64) -> ProbePacket {
        let received = request.sent + there;
        let sent = received + stay;
        let received = ReceiveTime::of_program(received);
        let kind = PacketKind::Reply;
        ProbePacket { kind, from: request.to, to: request.from, received, sent, ..*request }
    }

    fn at(time: i64) -> ReceiveTime {
        ReceiveTime::of_program(time)
    }

    /// The kernel stamped the packet this much earlier.
    fn noted(time: ReceiveTime, delay: u32) -> ReceiveTime {
        ReceiveTime { delay: std::num::NonZeroU32::new(delay), ..time }
    }

    /// Adds probes with a round trip of 60 ns and an offset of 500 ns by the programs. Both kernels stamped
    /// the first `both`, 20 and 10 ns earlier; one kernel alone stamped the others.
    fn measured(both: u32, all: u32) -> OpenBurst {
        let mut burst = OpenBurst::new(ID, 1, 2, 20);
        for number in 0..all {
            let request = send_request(&mut burst, 9, 1_000 * i64::from(number));
            let plain = reply_to(&request, 530, 10);
            let here = u32::from(number < both || number % 2 == 0) * 20;
            let there = u32::from(number < both || number % 2 == 1) * 10;
            let reply = ProbePacket { received: noted(plain.received, there), ..plain };
            assert!(burst.take(&reply, route(9).to, noted(at(request.sent + 70), here)));
        }
        burst
    }

    #[test]
    fn a_burst_has_kernel_times_on_both_sides_or_on_none() {
        let (own, peer) = domains();
        for (both, all, by_kernels) in [
            (5, 5, true),
            (3, 9, true),
            (2, 9, false),
            (0, 9, false),
            (2, 2, true),
            (1, 2, false),
            (1, 1, true),
        ] {
            let result = measured(both, all).result(&own, &peer).unwrap();
            assert_eq!((result.kernel_times, result.answered), (by_kernels, all), "{both} of {all}");
            let expected = if by_kernels { (both, 30, 505) } else { (all.min(8), 60, 500) };
            assert_eq!(result.best.len(), expected.0 as usize);
            for probe in &result.best {
                assert_eq!((probe.round_trip().unwrap(), probe.offset()), (expected.1, expected.2));
            }
        }
    }

    #[test]
    fn discarded_probes_are_not_recorded_and_their_peer_is_not_silent() {
        let (own, peer) = domains();
        let mut burst = measured(4, 4);
        let request = send_request(&mut burst, 9, 9_000);
        burst.discard_probes();
        assert!(burst.result(&own, &peer).is_none() && burst.reply_count() == 4 && !burst.is_in_vain());
        assert!(burst.take(&reply_to(&request, 530, 10), route(9).to, at(9_070)), "it is still under way");
        let result = burst.result(&own, &peer).unwrap();
        assert_eq!((result.sent, result.answered, result.best.len()), (5, 1, 1));
    }

    fn domains() -> (ClockDomain, ClockDomain) {
        let domain = |time_namespace| ClockDomain { boot_id: "b".into(), time_namespace };
        (domain(1), domain(2))
    }

    #[test]
    fn the_best_probes_with_a_reply_remain() {
        let mut burst = OpenBurst::new(ID, 1, 2, 20);
        let mut time = 0;
        while burst.has_more() {
            time += 1_000_000;
            let request = send_request(&mut burst, 9, time);
            let number = i64::from(request.number);
            if number % 4 != 3 {
                // An offset of 500 ns; each reply takes longer than the one before.
                let reply = reply_to(&request, 530, 10);
                assert!(burst.take(&reply, route(9).to, at(time + 70 + number)));
            } else {
                burst.give_up(Instant::now() + 2 * WAIT);
            }
        }
        let (own, peer) = domains();
        let result = burst.result(&own, &peer).unwrap();
        assert_eq!((result.sent, result.answered, result.best.len()), (20, 15, 8));
        let trips: Vec<i64> = result.best.iter().map(|probe| probe.round_trip().unwrap()).collect();
        assert_eq!(trips, [60, 61, 62, 64, 65, 66, 68, 69]);
        for probe in &result.best {
            assert!((probe.offset() - 500).abs() <= probe.round_trip().unwrap() / 2 + 1);
        }
        assert!((1..=4).contains(&result.spread), "{}", result.spread);
    }

    #[test]
    fn a_reply_without_its_request_gives_no_probe() {
        let mut burst = OpenBurst::new(ID, 1, 2, 20);
        let request = send_request(&mut burst, 9, 100);
        let good = reply_to(&request, 5, 5);
        for bad in [
            ProbePacket { number: 1, ..good },
            ProbePacket { burst: BurstId { nonce: 3, ..ID }, ..good },
            ProbePacket { burst: BurstId { began: 0, ..ID }, ..good },
            ProbePacket { from: 3, ..good },
            ProbePacket { to: 3, ..good },
            ProbePacket { kind: PacketKind::Request, ..good },
        ] {
            assert!(!burst.take(&bad, route(9).to, at(120)), "{bad:?}");
        }
        assert!(!burst.take(&good, route(8).to, at(120)), "from elsewhere");
        assert!(burst.take(&good, route(9).to, at(120)));
        assert!(!burst.take(&good, route(9).to, at(130)), "a second time");
        let late = send_request(&mut burst, 9, 200);
        burst.give_up(Instant::now() + 2 * WAIT);
        assert!(!burst.take(&reply_to(&late, 5, 5), route(9).to, at(220)), "too late");
        assert_eq!(burst.reply_count(), 1);
    }

    #[test]
    fn times_that_contradict_each_other_give_no_probe() {
        let mut burst = OpenBurst::new(ID, 1, 2, 20);
        for (stay, back) in [(-1, 20), (21, 20), (5, -1)] {
            let request = send_request(&mut burst, 9, 100);
            assert!(burst.take(&reply_to(&request, 5, stay), route(9).to, at(100 + back)));
        }
        let (own, peer) = domains();
        assert!(burst.result(&own, &peer).is_none() && burst.is_in_vain());
    }

    #[test]
    fn a_silent_peer_is_given_up_soon_and_the_shortest_route_is_chosen() {
        let mut burst = OpenBurst::new(ID, 1, 2, 200);
        let later = Instant::now() + Duration::from_secs(1);
        while burst.has_more() {
            send_request(&mut burst, 9, 1);
            burst.give_up(later);
        }
        assert!(burst.sent == MAX_REQUESTS_WITHOUT_REPLY && burst.is_in_vain());
        let mut search = OpenBurst::new(ID, 1, 2, 6);
        for port in [7, 8, 9] {
            let request = send_request(&mut search, port, 100);
            assert!(search.take(&reply_to(&request, 5, 5), route(port).to, at(300 - i64::from(port % 8))));
        }
        assert_eq!(search.best_route(), Some((route(7), 188)));
    }
}
