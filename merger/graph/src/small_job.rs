//! Small jobs for tests: programs of a few ranks, executed with exact times.

use crate::job_calls::*;

/// Label of every call.
pub(crate) const IN_CALL: u32 = 0;
/// Duration of a call that does not wait, ns.
pub(crate) const CALL_NS: i64 = 1_000;

/// What a rank does next.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Act {
    /// Works under a label, ns.
    Work(u32, u64),
    /// Sends to a rank, with a tag.
    Send(i32, i32),
    /// Receives from a rank, with a tag.
    Receive(i32, i32),
    /// Sends to one rank and receives from another in one call, with a tag.
    Exchange(i32, i32, i32),
    /// Enters a collective of all ranks.
    Collective(CollectiveWaits),
    /// Begins a step.
    Step,
}

struct Rank {
    next: usize,
    now: i64,
    calls: CallTimeline,
    entries: u32,
    steps: Vec<u32>,
    sent: Vec<(i32, i32, i64)>,
    received: usize,
    entered: Option<i64>,
    /// It has sent the message of an exchange and not received yet.
    is_exchanging: bool,
}

/// Runs programs, one of each rank; two ranks share a node.
pub(crate) fn run(programs: &[Vec<Act>], labels: u32) -> JobCalls {
    run_with_delays(programs, labels, &|_, _| 0)
}

/// Runs programs in a network in which messages of one node to another come later, ns.
pub(crate) fn run_with_delays(
    programs: &[Vec<Act>],
    labels: u32,
    delay_ns: &dyn Fn(u32, u32) -> i64,
) -> JobCalls {
    let mut ranks: Vec<Rank> = (0..programs.len() as u32)
        .map(|rank| Rank {
            next: 0,
            now: 0,
            calls: CallTimeline {
                process: rank,
                node: rank / 2,
                error_bound_ns: Some(0),
                first_work: vec![0],
                ..CallTimeline::default()
            },
            entries: 0,
            steps: Vec::new(),
            sent: Vec::new(),
            received: 0,
            entered: None,
            is_exchanging: false,
        })
        .collect();
    let mut taken: Vec<(usize, usize)> = Vec::new();
    loop {
        let before: usize = ranks.iter().map(|rank| rank.next).sum();
        for rank in 0..ranks.len() {
            while let Some(act) = programs[rank].get(ranks[rank].next) {
                if !step(&mut ranks, &mut taken, rank, *act, delay_ns) {
                    break;
                }
                ranks[rank].next += 1;
            }
        }
        if before == ranks.iter().map(|rank| rank.next).sum() {
            break;
        }
    }
    let steps = ranks.iter().map(|rank| rank.steps.len()).min().unwrap_or(0);
    for (rank, program) in ranks.iter_mut().zip(programs) {
        assert_eq!(rank.next, program.len(), "a rank of the test waits forever");
        let calls = &mut rank.calls;
        calls.end_ns = rank.now;
        calls.first_work.push(calls.work.len() as u32);
        calls.first_call_of_step = rank.steps.clone();
        calls.first_call_of_step.push(calls.calls.len() as u32);
    }
    JobCalls {
        processes: ranks.len() as u32,
        communicators: vec![CommunicatorMembers { groups: vec![(0..ranks.len() as u32).collect()] }],
        timelines: ranks.into_iter().map(|rank| rank.calls).collect(),
        labels,
        steps: steps as u32,
        ..JobCalls::default()
    }
}

/// Lets a rank act; returns whether it could.
fn step(
    ranks: &mut [Rank],
    taken: &mut Vec<(usize, usize)>,
    rank: usize,
    act: Act,
    delay_ns: &dyn Fn(u32, u32) -> i64,
) -> bool {
    let now = ranks[rank].now;
    let call = ranks[rank].calls.calls.len() as u32;
    match act {
        Act::Step => ranks[rank].steps.push(call),
        Act::Work(label, ns) => {
            ranks[rank].calls.work.push(WorkSegment { label, ns });
            ranks[rank].now += ns as i64;
        }
        Act::Send(to, tag) => {
            ranks[rank].sent.push((to, tag, now));
            message(&mut ranks[rank], call, to, tag, MessageRole::Send);
            leave(&mut ranks[rank], now, now + CALL_NS);
        }
        Act::Exchange(to, from, tag) => {
            if !std::mem::replace(&mut ranks[rank].is_exchanging, true) {
                ranks[rank].sent.push((to, tag, now));
            }
            let Some(at) = arrival(ranks, taken, rank, (from, tag), delay_ns) else { return false };
            ranks[rank].is_exchanging = false;
            message(&mut ranks[rank], call, to, tag, MessageRole::Send);
            message(&mut ranks[rank], call, from, tag, MessageRole::Receive);
            leave(&mut ranks[rank], now, at);
        }
        Act::Receive(from, tag) => {
            let Some(at) = arrival(ranks, taken, rank, (from, tag), delay_ns) else { return false };
            message(&mut ranks[rank], call, from, tag, MessageRole::Receive);
            leave(&mut ranks[rank], now, at);
        }
        Act::Collective(waits) => {
            let number = ranks[rank].entries;
            ranks[rank].entered = Some(now);
            let missing = ranks.iter().any(|other| other.entries <= number && other.entered.is_none());
            if missing {
                return false;
            }
            // All ranks have entered: the last one completes the collective for all.
            let latest = ranks.iter().filter_map(|rank| rank.entered).max().unwrap_or(now);
            let root = ranks[0].entered.unwrap_or(now);
            for (place, rank) in ranks.iter_mut().enumerate() {
                let entered = rank.entered.take().unwrap_or(now);
                let leaves = match waits {
                    CollectiveWaits::ForAll => latest,
                    CollectiveWaits::ForRoot => root.max(entered),
                    CollectiveWaits::RootForAll if place == 0 => latest,
                    _ => entered,
                };
                let call = rank.calls.calls.len() as u32;
                let entry = CollectiveEntry {
                    call,
                    communicator: 0,
                    number,
                    function: 0,
                    root: 0,
                    waits,
                    is_blocking: true,
                    size_class: 0,
                    is_size_shared: false,
                };
                rank.calls.entries.push(entry);
                rank.entries += 1;
                leave(rank, entered, leaves + CALL_NS);
            }
            for (place, other) in ranks.iter_mut().enumerate() {
                other.next += usize::from(place != rank);
            }
        }
    }
    true
}

/// Takes the next message to a rank from another one. Returns when it has arrived, if it was sent.
fn arrival(
    ranks: &mut [Rank],
    taken: &mut Vec<(usize, usize)>,
    rank: usize,
    (from, tag): (i32, i32),
    delay_ns: &dyn Fn(u32, u32) -> i64,
) -> Option<i64> {
    let sent = &ranks[from as usize].sent;
    let fits = |place: &usize| {
        sent[*place].0 == rank as i32 && sent[*place].1 == tag && !taken.contains(&(from as usize, *place))
    };
    let place = (0..sent.len()).find(fits)?;
    let delay_ns = delay_ns(ranks[from as usize].calls.node, ranks[rank].calls.node);
    let at = (sent[place].2 + delay_ns).max(ranks[rank].now) + CALL_NS;
    taken.push((from as usize, place));
    ranks[rank].received += 1;
    Some(at)
}

fn message(rank: &mut Rank, call: u32, peer: i32, tag: i32, role: MessageRole) {
    let end = MessageEnd { call, communicator: 0, peer, tag, bytes: 8, role, is_blocking: true };
    rank.calls.message_ends.push(end);
}

fn leave(rank: &mut Rank, enter: i64, exit: i64) {
    rank.calls.calls.push(Call { enter_ns: enter, duration_ns: (exit - enter) as u64, label: IN_CALL });
    rank.calls.first_work.push(rank.calls.work.len() as u32);
    rank.now = exit;
}
