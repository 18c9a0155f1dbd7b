//! The collectives of one process.

use super::from_regions::CallSequence;
use super::functions::{CollectiveFunction, MessageCall, WaitPattern};
use super::own_time::{self, MpiBefore, MpiTimes, OwnTime};
use super::sample::{CallSample, sample_key};
use super::untimed::ProcessTimes;
use rpd_shard::file::ShardStrings;
use rpd_shard::model::{Local, Rows, native};
use std::collections::{BTreeMap, HashMap};
use twox_hash::XxHash3_64;

/// Communicators that are told apart in one process.
const MOST_COMMS: usize = 1 << 14;
/// Longest name of a communicator that is kept.
const MAX_NAME: usize = 256;

/// A collective call of a process.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct CollectiveCall {
    /// Hash of communicator and number, by which it is kept or not.
    pub key: u64,
    /// Hash of the communicator's name.
    pub comm: u64,
    /// The how-manieth collective of the process on it, from 1.
    pub seq: u64,
    /// What was called.
    pub function: CollectiveFunction,
    /// Rank of the root in the communicator, where there is one.
    pub root: Option<u32>,
    /// Bytes, or elements where only those are known.
    pub size: Option<i64>,
    /// When the process entered, ns of its clock.
    pub enter: i64,
    /// When it left; `None` if that is not known, or says nothing of the others.
    pub exit: Option<i64>,
    /// What its thread had spent in MPI by then; `None` if that is not known.
    pub mpi_before: Option<MpiBefore>,
    /// Own time of the process before it, as soon as all its calls are there.
    pub own_time: Option<OwnTime>,
}

/// A communicator, as a process knows it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Comm {
    /// Its name, the same in all its ranks.
    pub name: Box<str>,
    /// Rank of the process in it, where that is known.
    pub rank: Option<u32>,
}

/// What is known of the collectives of one process.
#[derive(Clone, Debug, Default)]
pub struct ProcessCollectives {
    /// Those that are kept, see [`CallSample`].
    pub calls: Vec<CollectiveCall>,
    /// All communicators on which there was one, by the hash of their names.
    pub comms: BTreeMap<u64, Comm>,
    /// Rank of the process in communicators that it made.
    ranks: BTreeMap<u64, u32>,
    /// Of calls without numbers: those that belong together, in order.
    pub sequences: Vec<CallSequence>,
    /// Collectives that no other process can be compared with: their communicator has no name that means
    /// something elsewhere, or they have no number.
    pub alone: u64,
    /// Collectives of MPI on communicators that other processes may have.
    of_mpi: u64,
    /// Size of the process's `MPI_COMM_WORLD`, in processes, where that was recorded.
    world_size: Option<i64>,
    /// Whether the launcher started several processes and MPI put this one into an `MPI_COMM_WORLD` of its own: its
    /// communicators have the names of those of the others, and none of their processes.
    pub is_singleton: bool,
    /// Time in MPI calls.
    pub mpi: MpiTimes,
    /// Whether calls are missing in which it may have waited: its own time is an upper bound.
    pub lacks_calls: bool,
    /// Whether its last calls may be missing.
    pub is_cut: bool,
    /// Whether it is still being recorded: collectives after its last ones are to come.
    pub is_running: bool,
    /// Whether there are messages whose times are not compared.
    pub hides_messages: bool,
    /// Whether it calls MPI in several threads, so that own times are not known.
    pub is_in_threads: bool,
    /// Time in calls that are not compared.
    pub untimed: ProcessTimes,
    /// The level at which `calls` were last thinned out.
    level: usize,
}

/// Hash of a communicator's name.
pub(crate) fn comm_hash(name: &[u8]) -> u64 {
    XxHash3_64::oneshot(name)
}

impl ProcessCollectives {
    /// Whether there is nothing to compare.
    pub fn is_empty(&self) -> bool {
        self.comms.is_empty()
    }

    /// Notes a communicator; `None` if there are too many.
    pub(super) fn note_comm(&mut self, name: &str, rank: Option<u32>) -> Option<u64> {
        let hash = comm_hash(name.as_bytes());
        if self.comms.len() >= MOST_COMMS && !self.comms.contains_key(&hash) {
            return None;
        }
        let new = || Comm { name: name.chars().take(MAX_NAME).collect::<String>().into(), rank: None };
        let comm = self.comms.entry(hash).or_insert_with(new);
        comm.rank = comm.rank.or(rank);
        Some(hash)
    }

    /// Adds what another block of the process says.
    pub fn add(&mut self, mut other: ProcessCollectives, sample: &CallSample) {
        self.mpi.append(std::mem::take(&mut other.mpi), &mut other.calls);
        for (hash, comm) in other.comms {
            if self.comms.len() < MOST_COMMS || self.comms.contains_key(&hash) {
                self.comms.entry(hash).or_insert(comm);
            }
        }
        for (hash, rank) in other.ranks {
            if self.ranks.len() < MOST_COMMS {
                self.ranks.entry(hash).or_insert(rank);
            }
        }
        self.untimed.append(&other.untimed);
        self.alone += other.alone;
        self.of_mpi += other.of_mpi;
        self.world_size = self.world_size.or(other.world_size);
        self.calls.extend(other.calls);
        self.thin_out(sample.level());
    }

    /// Drops calls below a level.
    pub fn thin_out(&mut self, level: usize) {
        if level > self.level {
            self.calls.retain(|call| CallSample::keeps(level, call.key));
            self.calls.shrink_to_fit();
            self.level = level;
        }
    }

    /// When all blocks are in: the ranks that the process has in its communicators. `rank` is that in the job, and
    /// `launched` the number of processes that the launcher started.
    pub fn agree_on_result(&mut self, rank: Option<u32>, launched: Option<u32>) {
        self.is_in_threads = own_time::is_in_threads(self);
        if self.world_size == Some(1) && launched.is_some_and(|launched| launched > 1) {
            self.isolate();
        }
        let world = comm_hash(WORLD.as_bytes());
        for (hash, comm) in &mut self.comms {
            let known = self.ranks.get(hash).copied();
            comm.rank = comm.rank.or(known).or(if *hash == world { rank } else { None });
        }
        self.ranks.clear();
    }

    /// Keeps only what needs no MPI to be shared: communicators of RCCL, whose names come from an id.
    fn isolate(&mut self) {
        self.is_singleton = true;
        self.alone += std::mem::take(&mut self.of_mpi);
        self.comms.retain(|_, comm| comm.name.starts_with("nccl-"));
        let comms = &self.comms;
        self.calls.retain(|call| comms.contains_key(&call.comm));
    }

    /// Tells apart what several processes of one rank did on communicators of one name: this one was the
    /// how-manieth, from 0, by communicator.
    pub fn tell_apart(&mut self, times: &BTreeMap<u64, u32>) {
        let renamed = |hash: u64| match times.get(&hash) {
            None | Some(0) => hash,
            Some(n) => comm_hash(&[&hash.to_le_bytes()[..], &n.to_le_bytes()[..]].concat()),
        };
        self.calls.iter_mut().for_each(|call| call.comm = renamed(call.comm));
        for sequence in &mut self.sequences {
            // Those without a name are found by their place among the communicators of their process.
            let turn = times.get(&sequence.comm).copied().unwrap_or(0);
            sequence.place = sequence.place.saturating_add(turn.saturating_mul(MOST_COMMS as u32));
            sequence.comm = renamed(sequence.comm);
        }
        self.comms = std::mem::take(&mut self.comms).into_iter().map(|(h, c)| (renamed(h), c)).collect();
    }
}

const WORLD: &str = "MPI_COMM_WORLD";

/// Whether the name of a communicator means the same in all processes. That of one whose making was not seen, of
/// one that all ranks have for themselves, and of what was made from these, does not.
pub fn is_shared_communicator(name: &str) -> bool {
    let first = name.split('/').next().unwrap_or(name);
    let unseen = first.strip_prefix("comm-").is_some_and(|n| n.len() < 16);
    !(unseen || first == "MPI_COMM_SELF" || first.starts_with("nccl-local-"))
}

/// What a block of native rows says. All calls are counted by `sample`, which says how many are kept.
pub fn collectives_of_block(
    rows: &Rows<Local>,
    strings: &ShardStrings,
    sample: &CallSample,
) -> ProcessCollectives {
    let mut said = ProcessCollectives::default();
    match rows.id() {
        native::MPI_CALL | native::RCCL_CALL => calls(rows, strings, &mut said),
        native::COMMUNICATOR => {
            let (comms, ranks, sizes) = (rows.column("comm_id"), rows.column("rank"), rows.column("size"));
            for i in 0..rows.len {
                let name = comms.int(i).and_then(|id| strings.get(id));
                if name == Some(WORLD.as_bytes()) {
                    said.world_size = said.world_size.or(sizes.int(i));
                }
                let rank = ranks.int(i).and_then(|rank| u32::try_from(rank).ok());
                if let (Some(name), Some(rank)) = (name, rank) {
                    said.ranks.entry(comm_hash(name)).or_insert(rank);
                }
            }
        }
        _ => return said,
    }
    sample.count(said.calls.iter().map(|call| call.key));
    said.thin_out(sample.level());
    said
}

fn calls(rows: &Rows<Local>, strings: &ShardStrings, said: &mut ProcessCollectives) {
    let [names, comms, roots, sizes, seqs, starts, ends, threads] =
        ["name_id", "comm_id", "root", "bytes", "seq", "start", "end", "tid"]
            .map(|column| rows.column(column));
    let is_mpi = rows.id() == native::MPI_CALL;
    let mut functions: HashMap<i64, (Option<CollectiveFunction>, MessageCall)> = HashMap::new();
    let mut known: HashMap<i64, Option<(u64, bool)>> = HashMap::new();
    for i in 0..rows.len {
        let Some(name) = names.int(i) else { continue };
        let named = || {
            let name = strings.get(name).unwrap_or_default();
            (CollectiveFunction::named(name), MessageCall::named(name))
        };
        let (function, message) = *functions.entry(name).or_insert_with(named);
        let thread = threads.int(i).filter(|_| is_mpi);
        let mpi_before = thread
            .zip(starts.int(i))
            .and_then(|(thread, enter)| said.mpi.add(thread, message, enter, ends.int(i)));
        let time_inside = || match (starts.int(i), ends.int(i)) {
            (Some(enter), Some(exit)) if is_mpi => exit.saturating_sub(enter),
            _ => 0,
        };
        let Some(function) = function else {
            let name = strings.get(name).unwrap_or_default();
            match (starts.int(i), ends.int(i)) {
                (Some(enter), None) if is_mpi => said.untimed.add_open(name, enter),
                _ => said.untimed.add(name, time_inside()),
            }
            continue;
        };
        let comm = comms.int(i).and_then(|id| {
            *known.entry(id).or_insert_with(|| {
                let name = String::from_utf8_lossy(strings.get(id)?);
                let shared = is_shared_communicator(&name).then(|| said.note_comm(&name, None)).flatten();
                shared.map(|hash| (hash, name.starts_with("inter/")))
            })
        });
        let seq = seqs.int(i).and_then(|seq| u64::try_from(seq).ok()).filter(|seq| *seq > 0);
        let (Some((comm, is_between_groups)), Some(seq), Some(enter)) = (comm, seq, starts.int(i)) else {
            said.alone += 1;
            said.untimed.add(strings.get(name).unwrap_or_default(), time_inside());
            continue;
        };
        if is_mpi && function.waits() == WaitPattern::AllForAll && !function.only_starts() {
            said.untimed.synchronises();
        }
        // Between two groups nobody waits for the own group.
        said.of_mpi += u64::from(is_mpi);
        let says_nothing = function.only_starts() || function.is_rccl() || is_between_groups;
        said.calls.push(CollectiveCall {
            key: sample_key(comm, seq),
            comm,
            seq,
            function,
            root: roots.int(i).and_then(|root| u32::try_from(root).ok()),
            size: sizes.int(i).filter(|size| *size >= 0),
            enter,
            exit: ends.int(i).filter(|exit| !says_nothing && *exit >= enter),
            mpi_before,
            own_time: None,
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_that_mean_something_in_one_process_only_are_not_shared() {
        for shared in
            ["MPI_COMM_WORLD", "MPI_COMM_WORLD/2@4", "inter/1-2.3.1", "nccl-00ff", "comm-0123456789abcdef"]
        {
            assert!(is_shared_communicator(shared), "{shared}");
        }
        for own in ["comm-1", "comm-12/1@0", "MPI_COMM_SELF", "MPI_COMM_SELF/1@0", "nccl-local-1"] {
            assert!(!is_shared_communicator(own), "{own}");
        }
    }

    #[test]
    fn the_second_process_of_a_rank_has_communicators_of_its_own() {
        let mut said = ProcessCollectives::default();
        let hash = said.note_comm(WORLD, None).unwrap();
        said.agree_on_result(Some(3), Some(4));
        assert_eq!(said.comms[&hash].rank, Some(3));
        said.tell_apart(&BTreeMap::from([(hash, 0)]));
        assert!(said.comms.contains_key(&hash));
        said.tell_apart(&BTreeMap::from([(hash, 1)]));
        assert!(!said.comms.contains_key(&hash));
        assert_eq!(said.comms.len(), 1);
    }

    #[test]
    fn a_process_that_mpi_has_put_alone_shares_communicators_of_rccl_only() {
        let settled = |world_size, launched| {
            let mut said = ProcessCollectives { world_size, of_mpi: 2, ..ProcessCollectives::default() };
            said.note_comm(WORLD, None).unwrap();
            said.note_comm("nccl-00ff", None).unwrap();
            said.agree_on_result(Some(3), launched);
            let names: Vec<&str> = said.comms.values().map(|comm| &*comm.name).collect();
            (said.is_singleton, names.len(), names.contains(&WORLD), said.alone)
        };
        assert_eq!(settled(Some(1), Some(4)), (true, 1, false, 2));
        for (world_size, launched) in
            [(Some(4), Some(4)), (Some(1), Some(1)), (Some(1), None), (None, Some(4)), (Some(2), Some(4))]
        {
            assert_eq!(settled(world_size, launched), (false, 2, true, 0), "{world_size:?} of {launched:?}");
        }
    }
}
