//! Packets that are hostile, replayed, or too many.

use super::super::burst::MAX_REQUESTS;
use super::super::join::{JOIN_BYTES, JoinPacket, JoinRequest, TreePlace};
use super::super::packet::PACKET_BYTES;
use super::*;

/// A simple random number generator.
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
fn only_a_new_request_with_the_right_key_gets_a_reply() {
    let root = tempfile::tempdir().unwrap();
    let mut config = config(root.path(), "ill", 0);
    // The flood must be read, not left in the queue.
    config.choice.rate = 10_000_000;
    let node = start(config);
    let (prober, key) = prober(root.path(), "ill");
    let good = prober.request(10, 0);
    let sealed = key.seal(&good);
    let reply = prober.exchange(&sealed).unwrap();
    assert!(reply.len() <= sealed.len(), "{} bytes for {}", reply.len(), sealed.len());
    prober.send(&sealed);
    prober.assert_silence(&key, 11);

    let wrong = PacketKey::new([7; PacketKey::BYTES]);
    let elsewhere = ProbePacket { to: 1, ..prober.request(12, 0) };
    let too_far = prober.request(12, MAX_REQUESTS);
    let replies = ProbePacket { kind: PacketKind::Reply, ..prober.request(12, 1) };
    let words = [PacketKind::Closing, PacketKind::Goodbye, PacketKind::Handover, PacketKind::Heir];
    words
        .iter()
        .for_each(|kind| prober.send(&key.seal(&ProbePacket { kind: *kind, ..prober.request(12, 1) })));
    prober.send(&wrong.seal(&prober.request(12, 0)));
    [elsewhere, too_far, replies, good].iter().for_each(|packet| prober.send(&key.seal(packet)));
    let sealed = key.seal(&prober.request(12, 0));
    (0..PACKET_BYTES).for_each(|length| prober.send(&sealed[..length]));
    prober.send(&[&sealed[..], &[0]].concat());
    prober.send(&[&sealed[..], &[0; 60_000]].concat());
    prober.assert_silence(&key, 13);

    let mut dice = Dice(0x9e37_79b9_7f4a_7c15);
    for round in 0..100_000u32 {
        let mut bytes = sealed.to_vec();
        match dice.roll(4) {
            0 => bytes.iter_mut().for_each(|byte| *byte = dice.roll(256) as u8),
            1 => bytes[dice.roll(PACKET_BYTES)] ^= 1 << dice.roll(8),
            2 => bytes.truncate(dice.roll(PACKET_BYTES)),
            _ => bytes.resize(PACKET_BYTES + 1 + dice.roll(200), round as u8),
        }
        prober.send(&bytes);
    }
    sleep(200);
    prober.assert_silence(&key, 14);
    assert_eq!(node.end(), [], "there was no agent to probe");
}

#[test]
fn requests_beyond_the_rate_get_no_reply() {
    let root = tempfile::tempdir().unwrap();
    let mut config = config(root.path(), "rate", 0);
    config.choice.rate = 50;
    let node = start(config);
    let (prober, key) = prober(root.path(), "rate");
    prober.socket.set_read_timeout(Some(Duration::from_millis(300))).unwrap();
    (0..200).for_each(|number| prober.send(&key.seal(&prober.request(1, number))));
    let mut reply = [0; 200];
    let replies = std::iter::from_fn(|| prober.socket.recv(&mut reply).ok()).count();
    assert!((50..=150).contains(&replies), "{replies} of 200 requests got a reply");
    sleep(1500);
    prober.assert_silence(&key, 2);
    node.end();
}

#[test]
fn places_are_given_to_agents_with_the_key_once_for_each_request() {
    let root = tempfile::tempdir().unwrap();
    let node = start(config(root.path(), "join", 0));
    let (prober, key) = prober(root.path(), "join");
    let own = |agent: u64| AgentCard {
        agent: AgentId(agent),
        domain: domain(agent),
        addresses: vec![prober.socket.local_addr().unwrap()],
    };
    let join = |agent: u64| JoinRequest { card: own(agent), to: prober.root, nonce: 5, first: 0 };
    let seal = |join: JoinRequest| JoinPacket::Join(join).seal(&key).unwrap();
    let place = |agent: u64| {
        let reply = prober.exchange(&seal(join(agent))).unwrap();
        assert_eq!(reply.len(), JOIN_BYTES, "as long as the request");
        let Some(JoinPacket::Place(place)) = JoinPacket::open(&key, &reply) else { panic!("{reply:?}") };
        assert_eq!((place.from, place.to, place.nonce), (prober.root, AgentId(agent), 5));
        let candidates: Vec<u64> = place.candidates.iter().map(|card| card.agent.0).collect();
        (place.number, candidates)
    };
    let first = prober.root.0;
    assert_eq!(
        (place(TEST_PROBER), place(17), place(18)),
        ((1, vec![first]), (2, vec![first]), (3, vec![17, first]))
    );
    assert_eq!(place(17), (2, vec![first]), "its number stays");

    let wrong = PacketKey::new([7; PacketKey::BYTES]);
    prober.send(&JoinPacket::Join(join(30)).seal(&wrong).unwrap());
    prober.send(&seal(JoinRequest { to: AgentId(1), ..join(30) }));
    prober.send(&seal(JoinRequest { card: own(first), ..join(30) }));
    let (from, to) = (AgentId(TEST_PROBER), prober.root);
    let place_of = TreePlace { from, to, nonce: 5, number: 9, first: 0, total: 1, candidates: vec![own(40)] };
    prober.send(&JoinPacket::Place(place_of).seal(&key).unwrap());
    let sealed = seal(join(30));
    (0..JOIN_BYTES).for_each(|length| prober.send(&sealed[..length]));
    prober.send(&[&sealed[..], &[0]].concat());
    let mut dice = Dice(0x2545_f491_4f6c_dd1d);
    for _ in 0..5_000 {
        let mut bytes = sealed;
        bytes[dice.roll(JOIN_BYTES)] ^= 1 << dice.roll(8);
        prober.send(&bytes);
    }
    sleep(300);
    prober.assert_silence(&key, 3);
    assert_eq!(place(31).0, 4, "none of these has joined");
    assert_eq!(node.end(), [], "the root probes none of them");
}

/// Sends all packets between a child and its parent again, in either direction, at once and later.
#[test]
fn packets_that_are_sent_again_give_no_probe_and_no_reply() {
    let root = tempfile::tempdir().unwrap();
    let parent = start(config(root.path(), "again", 0));
    let found = root_of(root.path(), "again");
    let at = found.card.addresses[0];
    let middle = UdpSocket::bind("127.0.0.1:0").unwrap();
    let beyond = UdpSocket::bind("127.0.0.1:0").unwrap();
    let card = AgentCard { addresses: vec![middle.local_addr().unwrap()], ..found.card.clone() };
    let seen = folder(root.path(), "again");
    seen.replace_root(&RootAgent { card: card.clone(), key: found.key.clone() }).unwrap();
    let child = start(config(root.path(), "again", 1));
    [&middle, &beyond]
        .iter()
        .for_each(|socket| socket.set_read_timeout(Some(Duration::from_millis(1))).unwrap());
    let (mut requests, mut replies, mut child_at) = (Vec::new(), Vec::new(), None);
    let mut bytes = [0; 1000];
    let began = Instant::now();
    while began.elapsed() < Duration::from_millis(1500) {
        if let Ok((length, from)) = middle.recv_from(&mut bytes) {
            child_at = Some(from);
            if let Some(JoinPacket::Join(join)) = JoinPacket::open(&found.key, &bytes[..length]) {
                // The place that the root would assign, except for the address.
                let (from, to, nonce) = (card.agent, join.card.agent, join.nonce);
                let candidates = vec![card.clone()];
                let place = TreePlace { from, to, nonce, number: 1, first: 0, total: 1, candidates };
                let place = JoinPacket::Place(place).seal(&found.key).unwrap();
                (0..2).for_each(|_| drop(middle.send_to(&place, child_at.unwrap())));
                continue;
            }
            requests.push(bytes[..length].to_vec());
            let old = requests.len() / 2;
            [&bytes[..length], &bytes[..length], &requests[old].clone()]
                .iter()
                .for_each(|packet| drop(beyond.send_to(packet, at)));
        }
        while let Ok((length, _)) = beyond.recv_from(&mut bytes) {
            replies.push(bytes[..length].to_vec());
            let old = replies.len() / 2;
            if let Some(child_at) = child_at {
                [&bytes[..length], &bytes[..length], &replies[old].clone()]
                    .iter()
                    .for_each(|packet| drop(middle.send_to(packet, child_at)));
            }
            beyond.set_nonblocking(true).unwrap();
        }
        beyond.set_nonblocking(false).unwrap();
    }
    let bursts = end_all(vec![parent, child]).remove(1);
    assert!(replies.len() > 50 && replies.len() <= requests.len(), "one reply each");
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
    let (prober, _) = prober(root.path(), "flood");
    let began = Instant::now();
    let mut sent = 0;
    while began.elapsed() < Duration::from_millis(500) {
        prober.send(&[0; PACKET_BYTES]);
        sent += 1;
    }
    let ended = Instant::now();
    node.end_within(Duration::from_millis(600));
    assert!(sent > 1_000 && ended.elapsed() < Duration::from_secs(1));
}
