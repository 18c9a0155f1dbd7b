//! Packets that are hostile, replayed, or too many.

use super::super::burst::MAX_QUESTIONS;
use super::super::join::{JOIN_BYTES, JoinPacket, JoinQuestion, TreePlace};
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
fn nothing_but_a_new_question_with_the_right_key_is_answered() {
    let root = tempfile::tempdir().unwrap();
    let mut config = config(root.path(), "ill", 0);
    // The flood must be read, not left in the queue.
    config.choice.rate = 10_000_000;
    let node = start(config);
    let (asker, key) = asker(root.path(), "ill");
    let good = asker.question(10, 0);
    let sealed = key.seal(&good);
    let answer = asker.answer(&sealed).unwrap();
    assert!(answer.len() <= sealed.len(), "{} bytes for {}", answer.len(), sealed.len());
    asker.send(&sealed);
    asker.assert_silence(&key, 11);

    let wrong = PacketKey::new([7; PacketKey::BYTES]);
    let elsewhere = ProbePacket { to: 1, ..asker.question(12, 0) };
    let too_far = asker.question(12, MAX_QUESTIONS);
    let answers = ProbePacket { kind: PacketKind::Answer, ..asker.question(12, 1) };
    let words = [PacketKind::Closing, PacketKind::Goodbye, PacketKind::Handover, PacketKind::Heir];
    words
        .iter()
        .for_each(|kind| asker.send(&key.seal(&ProbePacket { kind: *kind, ..asker.question(12, 1) })));
    asker.send(&wrong.seal(&asker.question(12, 0)));
    [elsewhere, too_far, answers, good].iter().for_each(|packet| asker.send(&key.seal(packet)));
    let sealed = key.seal(&asker.question(12, 0));
    (0..PACKET_BYTES).for_each(|length| asker.send(&sealed[..length]));
    asker.send(&[&sealed[..], &[0]].concat());
    asker.send(&[&sealed[..], &[0; 60_000]].concat());
    asker.assert_silence(&key, 13);

    let mut dice = Dice(0x9e37_79b9_7f4a_7c15);
    for round in 0..100_000u32 {
        let mut bytes = sealed.to_vec();
        match dice.roll(4) {
            0 => bytes.iter_mut().for_each(|byte| *byte = dice.roll(256) as u8),
            1 => bytes[dice.roll(PACKET_BYTES)] ^= 1 << dice.roll(8),
            2 => bytes.truncate(dice.roll(PACKET_BYTES)),
            _ => bytes.resize(PACKET_BYTES + 1 + dice.roll(200), round as u8),
        }
        asker.send(&bytes);
    }
    sleep(200);
    asker.assert_silence(&key, 14);
    assert_eq!(node.end(), [], "nobody was there to be asked");
}

#[test]
fn more_than_the_rate_is_not_answered() {
    let root = tempfile::tempdir().unwrap();
    let mut config = config(root.path(), "rate", 0);
    config.choice.rate = 50;
    let node = start(config);
    let (asker, key) = asker(root.path(), "rate");
    asker.socket.set_read_timeout(Some(Duration::from_millis(300))).unwrap();
    (0..200).for_each(|number| asker.send(&key.seal(&asker.question(1, number))));
    let mut answer = [0; 200];
    let answers = std::iter::from_fn(|| asker.socket.recv(&mut answer).ok()).count();
    assert!((50..=150).contains(&answers), "{answers} of 200 questions were answered");
    sleep(1500);
    asker.assert_silence(&key, 2);
    node.end();
}

#[test]
fn places_are_given_to_agents_with_the_key_once_for_each_question() {
    let root = tempfile::tempdir().unwrap();
    let node = start(config(root.path(), "join", 0));
    let (asker, key) = asker(root.path(), "join");
    let own = |agent: u64| AgentCard {
        agent: AgentId(agent),
        domain: domain(agent),
        addresses: vec![asker.socket.local_addr().unwrap()],
    };
    let join = |agent: u64| JoinQuestion { card: own(agent), to: asker.root, nonce: 5, first: 0 };
    let seal = |join: JoinQuestion| JoinPacket::Join(join).seal(&key).unwrap();
    let place = |agent: u64| {
        let answer = asker.answer(&seal(join(agent))).unwrap();
        assert_eq!(answer.len(), JOIN_BYTES, "as long as the question");
        let Some(JoinPacket::Place(place)) = JoinPacket::open(&key, &answer) else { panic!("{answer:?}") };
        assert_eq!((place.from, place.to, place.nonce), (asker.root, AgentId(agent), 5));
        let asked: Vec<u64> = place.candidates.iter().map(|card| card.agent.0).collect();
        (place.number, asked)
    };
    let first = asker.root.0;
    assert_eq!(
        (place(ASKER), place(17), place(18)),
        ((1, vec![first]), (2, vec![first]), (3, vec![17, first]))
    );
    assert_eq!(place(17), (2, vec![first]), "its number stays");

    let wrong = PacketKey::new([7; PacketKey::BYTES]);
    asker.send(&JoinPacket::Join(join(30)).seal(&wrong).unwrap());
    asker.send(&seal(JoinQuestion { to: AgentId(1), ..join(30) }));
    asker.send(&seal(JoinQuestion { card: own(first), ..join(30) }));
    let (from, to) = (AgentId(ASKER), asker.root);
    let place_of = TreePlace { from, to, nonce: 5, number: 9, first: 0, total: 1, candidates: vec![own(40)] };
    asker.send(&JoinPacket::Place(place_of).seal(&key).unwrap());
    let sealed = seal(join(30));
    (0..JOIN_BYTES).for_each(|length| asker.send(&sealed[..length]));
    asker.send(&[&sealed[..], &[0]].concat());
    let mut dice = Dice(0x2545_f491_4f6c_dd1d);
    for _ in 0..5_000 {
        let mut bytes = sealed;
        bytes[dice.roll(JOIN_BYTES)] ^= 1 << dice.roll(8);
        asker.send(&bytes);
    }
    sleep(300);
    asker.assert_silence(&key, 3);
    assert_eq!(place(31).0, 4, "none of these has joined");
    assert_eq!(node.end(), [], "the root asks none of them");
}

/// Sends all packets between a child and its parent again, in either direction, at once and later.
#[test]
fn packets_that_are_sent_again_give_no_probe_and_no_answer() {
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
    let (mut questions, mut answers, mut child_at) = (Vec::new(), Vec::new(), None);
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
            questions.push(bytes[..length].to_vec());
            let old = questions.len() / 2;
            [&bytes[..length], &bytes[..length], &questions[old].clone()]
                .iter()
                .for_each(|packet| drop(beyond.send_to(packet, at)));
        }
        while let Ok((length, _)) = beyond.recv_from(&mut bytes) {
            answers.push(bytes[..length].to_vec());
            let old = answers.len() / 2;
            if let Some(child_at) = child_at {
                [&bytes[..length], &bytes[..length], &answers[old].clone()]
                    .iter()
                    .for_each(|packet| drop(middle.send_to(packet, child_at)));
            }
            beyond.set_nonblocking(true).unwrap();
        }
        beyond.set_nonblocking(false).unwrap();
    }
    let bursts = end_all(vec![parent, child]).remove(1);
    assert!(answers.len() > 50 && answers.len() <= questions.len(), "one answer each");
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
    let (asker, _) = asker(root.path(), "flood");
    let began = Instant::now();
    let mut sent = 0;
    while began.elapsed() < Duration::from_millis(500) {
        asker.send(&[0; PACKET_BYTES]);
        sent += 1;
    }
    let ended = Instant::now();
    node.end_within(Duration::from_millis(600));
    assert!(sent > 1_000 && ended.elapsed() < Duration::from_secs(1));
}
