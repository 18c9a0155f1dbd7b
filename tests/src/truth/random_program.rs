use super::operation::{Collective, CollectiveKind, Message, Operation, Peer, Slot, WorkPiece};
use super::program::{ModelCommunicator, Program};
use crate::synthetic::RandomSource;
use rpd_graph::ANY;

/// Number of tags.
const TAGS: usize = 3;
/// Longest work before a round, ns.
const MAX_WORK_NS: i64 = 200_000;
/// Bytes of messages that are copied, and of those that wait for their receive.
const SMALL: u64 = 512;
const LARGE: u64 = 1 << 20;
/// Slot of a collective; those of messages count from 0.
const COLLECTIVE_SLOT: Slot = 1_000;

/// Size of a random program.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct RandomProgramSize {
    /// Number of ranks.
    pub ranks: u32,
    /// Number of rounds.
    pub rounds: u32,
    /// Messages of a round.
    pub messages: u32,
    /// Whether some messages wait for their receive.
    pub has_large: bool,
}

/// How a rank receives on a communicator. It is the same in all rounds, so that each receive finds a message.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum ReceiveForm {
    Exact,
    AnySource,
    AnyTag,
    AnyMessage,
}

/// Returns a program of random messages and collectives that always ends.
///
/// In each round, every rank first begins its sends, then posts its receives in any order, and waits for all.
pub fn random_program(seed: u64, size: RandomProgramSize) -> Program {
    let mut random = RandomSource::new(&[seed, 99]);
    let communicators = communicators(size.ranks);
    let forms: Vec<ReceiveForm> = (0..communicators.len() * size.ranks as usize)
        .map(|_| {
            use ReceiveForm::{AnyMessage, AnySource, AnyTag, Exact};
            *random.pick(&[Exact, Exact, AnySource, AnyTag, AnyMessage])
        })
        .collect();
    let mut lists: Vec<Vec<Operation>> = vec![Vec::new(); size.ranks as usize];
    for _ in 0..size.rounds {
        for list in &mut lists {
            list.push(WorkPiece::operation("work", random.between(0, MAX_WORK_NS) as u64, 0));
        }
        if size.has_large {
            // Else a receive that accepts any message takes one of a later round, and the sender of a large message of
            // this round waits for a receive that is posted after a collective in which it is missing.
            let barrier = Operation::Collective(Collective::of_all(CollectiveKind::Barrier, 0));
            lists.iter_mut().for_each(|list| list.push(barrier.clone()));
        }
        add_messages(&mut lists, &communicators, &forms, size, &mut random);
        if random.chance(60) {
            add_collective(&mut lists, &communicators, &mut random);
        }
    }
    let mut program = Program::of_lists(size.ranks, move |rank, out| out.clone_from(&lists[rank as usize]));
    program.communicators = communicators;
    program
}

/// Returns the world, the world backwards, the even ranks, and the two halves with a communicator between them.
fn communicators(ranks: u32) -> Vec<ModelCommunicator> {
    let made_by = "MPI_Comm_split";
    let half = ranks / 2;
    vec![
        ModelCommunicator::world(ranks),
        ModelCommunicator::of("backwards", made_by, (0..ranks).rev()),
        ModelCommunicator::of("even", made_by, (0..ranks).filter(|rank| rank % 2 == 0)),
        ModelCommunicator {
            name: "between".to_owned(),
            made_by: "MPI_Intercomm_create",
            groups: vec![(0..half).collect(), (half..ranks).collect()],
        },
    ]
}

fn add_messages(
    lists: &mut [Vec<Operation>],
    communicators: &[ModelCommunicator],
    forms: &[ReceiveForm],
    size: RandomProgramSize,
    random: &mut RandomSource,
) {
    let mut slots: Vec<Slot> = vec![0; lists.len()];
    let mut receives: Vec<Vec<Message>> = vec![Vec::new(); lists.len()];
    for _ in 0..size.messages {
        let number = random.index(communicators.len());
        let groups = &communicators[number].groups;
        let from_group = random.index(groups.len());
        let to_group = if groups.len() > 1 { 1 - from_group } else { 0 };
        let (source, destination) =
            (random.index(groups[from_group].len()), random.index(groups[to_group].len()));
        let (from, to) = (groups[from_group][source] as usize, groups[to_group][destination] as usize);
        let tag = random.index(TAGS) as i32;
        let bytes = if size.has_large && random.chance(30) { LARGE } else { SMALL };
        let communicator = number as u32;
        let sent =
            Message { communicator, peer: Peer::Rank(destination as u32), tag, bytes, has_status: false };
        lists[from].push(Operation::BeginSend(sent, slots[from]));
        slots[from] += 1;
        let form = forms[number * lists.len() + to];
        let is_any_source = matches!(form, ReceiveForm::AnySource | ReceiveForm::AnyMessage);
        let is_any_tag = matches!(form, ReceiveForm::AnyTag | ReceiveForm::AnyMessage);
        receives[to].push(Message {
            communicator,
            peer: if is_any_source { Peer::Any } else { Peer::Rank(source as u32) },
            tag: if is_any_tag { ANY } else { tag },
            bytes: LARGE,
            has_status: true,
        });
    }
    for (rank, mut receives) in receives.into_iter().enumerate() {
        while !receives.is_empty() {
            let message = receives.swap_remove(random.index(receives.len()));
            if random.chance(40) {
                lists[rank].push(Operation::Receive(message));
            } else {
                lists[rank].push(Operation::BeginReceive(message, slots[rank]));
                slots[rank] += 1;
            }
        }
        match slots[rank] {
            0 => {}
            slots if random.chance(50) => lists[rank].push(Operation::Wait((0..slots).collect())),
            slots => lists[rank].extend((0..slots).map(|slot| Operation::Wait(vec![slot]))),
        }
    }
}

fn add_collective(
    lists: &mut [Vec<Operation>],
    communicators: &[ModelCommunicator],
    random: &mut RandomSource,
) {
    let number = random.index(communicators.len());
    let groups = &communicators[number].groups;
    let kinds = [
        CollectiveKind::Barrier,
        CollectiveKind::Allreduce,
        CollectiveKind::Bcast,
        CollectiveKind::Reduce,
        CollectiveKind::Gather,
        CollectiveKind::Scan,
        CollectiveKind::Alltoallv,
    ];
    let kind = if groups.len() > 1 { CollectiveKind::Barrier } else { *random.pick(&kinds) };
    let is_rooted = matches!(kind, CollectiveKind::Bcast | CollectiveKind::Reduce | CollectiveKind::Gather);
    let root = is_rooted.then(|| random.index(groups[0].len()) as u32);
    let collective = Collective { kind, communicator: number as u32, root, bytes: SMALL };
    let begins = random.chance(30) && !matches!(kind, CollectiveKind::Scan | CollectiveKind::Alltoallv);
    for rank in groups.iter().flatten() {
        let list = &mut lists[*rank as usize];
        if begins {
            list.push(Operation::BeginCollective(collective, COLLECTIVE_SLOT));
            list.push(WorkPiece::operation("overlap", random.between(0, MAX_WORK_NS) as u64, 0));
            list.push(Operation::Wait(vec![COLLECTIVE_SLOT]));
        } else {
            list.push(Operation::Collective(collective));
        }
    }
}
