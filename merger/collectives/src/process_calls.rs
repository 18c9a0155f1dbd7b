//! The collectives of one process.

use super::from_regions::CallSequence;
use super::functions::{CollectiveFunction, FunctionWaits, MessageCall};
use super::own_time::{self, MpiBefore, MpiTimes, OwnTime};
use super::sample::{CallSample, sample_key};
use super::untimed::ProcessTimes;
use foldhash::fast::RandomState;
use rpd_shard::file::ShardStrings;
use rpd_shard::model::{Local, Rows, native};
use std::collections::{BTreeMap, HashMap};
use twox_hash::XxHash3_64;

/// Maximum number of communicators that are distinguished in one process.
const MAX_COMMUNICATORS: usize = 1 << 14;
/// Maximum number of characters that are kept of a communicator's name.
const MAX_NAME_CHARACTERS: usize = 256;

/// A collective call of a process.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct CollectiveCall {
    /// Hash of communicator and number, which decides whether the call is sampled.
    pub key: u64,
    /// Hash of the communicator's name.
    pub comm: u64,
    /// Sequence number of the collective among those of the process on the communicator, from 1.
    pub seq: u64,
    /// The function.
    pub function: CollectiveFunction,
    /// Rank of the root in the communicator, where there is a root.
    pub root: Option<u32>,
    /// Size in bytes, or in elements if the byte size is not recorded.
    pub size: Option<i64>,
    /// Entry time, ns of the process's clock.
    pub enter: i64,
    /// Exit time, ns; `None` if it is not recorded or depends on no other rank.
    pub exit: Option<i64>,
    /// Recorded exit time, ns, of a call that waits for no rank of its own group.
    pub unrelated_exit: Option<i64>,
    /// Time that the thread had spent in MPI before the call; `None` if it is not known.
    pub mpi_before: Option<MpiBefore>,
    /// Own time of the process before the call. It is set after all calls of the process are read.
    pub own_time: Option<OwnTime>,
}

impl CollectiveCall {
    /// Creates a call without a number.
    pub(super) fn new(function: CollectiveFunction, enter: i64, exit: Option<i64>) -> CollectiveCall {
        CollectiveCall {
            key: 0,
            comm: 0,
            seq: 0,
            function,
            root: None,
            size: None,
            enter,
            exit,
            unrelated_exit: None,
            mpi_before: None,
            own_time: None,
        }
    }

    /// Sets the communicator and the number of the call.
    pub(super) fn numbered(self, comm: u64, seq: u64) -> CollectiveCall {
        CollectiveCall { key: sample_key(comm, seq), comm, seq, ..self }
    }
}

/// A communicator as one process recorded it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Communicator {
    /// Name of the communicator, the same in all its ranks.
    pub name: Box<str>,
    /// Rank of the process in the communicator, where it is recorded.
    pub rank: Option<u32>,
}

/// The recorded collectives of one process.
#[derive(Clone, Debug, Default)]
pub struct ProcessCollectives {
    /// Calls that are sampled, see [`CallSample`].
    pub calls: Vec<CollectiveCall>,
    /// All communicators with at least one collective, by the hash of their names.
    pub communicators: BTreeMap<u64, Communicator>,
    /// Rank of the process in communicators that it created.
    ranks: BTreeMap<u64, u32>,
    /// Unnumbered calls: one sequence for each communicator, in order.
    pub sequences: Vec<CallSequence>,
    /// Number of collectives that cannot be compared with any other process. They have no number, or the name of
    /// their communicator is valid in one process only.
    pub alone: u64,
    /// Number of MPI collectives on communicators that other processes may share.
    of_mpi: u64,
    /// Size of the process's `MPI_COMM_WORLD`, in processes, where it is recorded.
    world_size: Option<i64>,
    /// Whether MPI put the process into an `MPI_COMM_WORLD` of its own although the launcher started several
    /// processes. Its communicators have the names of the other processes' communicators, but share no process
    /// with them.
    pub is_singleton: bool,
    /// Time in MPI calls.
    pub mpi: MpiTimes,
    /// Whether calls are missing in which the process may have waited. Its own time is then an upper bound.
    pub lacks_calls: bool,
    /// Whether its last calls may be missing.
    pub is_cut: bool,
    /// Whether the process is still being recorded, so that later collectives may follow.
    pub is_running: bool,
    /// Whether it has messages that are not compared by time.
    pub hides_messages: bool,
    /// Whether it calls MPI in several threads, so that its own times are not known.
    pub is_in_threads: bool,
    /// Time in calls that are not compared.
    pub untimed: ProcessTimes,
    /// Sampling level to which `calls` were last reduced.
    level: usize,
}

/// Returns the hash of a communicator's name.
pub(crate) fn comm_hash(name: &[u8]) -> u64 {
    XxHash3_64::oneshot(name)
}

impl ProcessCollectives {
    /// Returns the collectives of a block of native rows. `sample` counts all calls and determines how many are
    /// kept.
    pub fn of_block(rows: &Rows<Local>, strings: &ShardStrings, sample: &CallSample) -> ProcessCollectives {
        let mut process = ProcessCollectives::default();
        match rows.id() {
            native::MPI_CALL | native::RCCL_CALL => calls(rows, strings, &mut process),
            native::COMMUNICATOR => {
                let (comms, ranks, sizes) =
                    (rows.column("comm_id"), rows.column("rank"), rows.column("size"));
                for i in 0..rows.len {
                    let name = comms.int(i).and_then(|id| strings.get(id));
                    if name == Some(WORLD.as_bytes()) {
                        process.world_size = process.world_size.or(sizes.int(i));
                    }
                    let rank = ranks.int(i).and_then(|rank| u32::try_from(rank).ok());
                    if let (Some(name), Some(rank)) = (name, rank) {
                        process.ranks.entry(comm_hash(name)).or_insert(rank);
                    }
                }
            }
            _ => return process,
        }
        sample.count(process.calls.iter().map(|call| call.key));
        process.thin_out(sample.level());
        process
    }

    /// Returns whether there is nothing to compare.
    pub fn is_empty(&self) -> bool {
        self.communicators.is_empty()
    }

    /// Records a communicator and returns its hash; returns `None` above `MAX_COMMUNICATORS` communicators.
    pub(super) fn note_communicator(&mut self, name: &str) -> Option<u64> {
        let hash = comm_hash(name.as_bytes());
        if self.communicators.len() >= MAX_COMMUNICATORS && !self.communicators.contains_key(&hash) {
            return None;
        }
        let name = || name.chars().take(MAX_NAME_CHARACTERS).collect::<String>().into();
        self.communicators.entry(hash).or_insert_with(|| Communicator { name: name(), rank: None });
        Some(hash)
    }

    /// Adds the collectives of another block of the same process.
    pub fn add(&mut self, mut other: ProcessCollectives, sample: &CallSample) {
        self.mpi.append(std::mem::take(&mut other.mpi), &mut other.calls);
        for (hash, comm) in other.communicators {
            if self.communicators.len() < MAX_COMMUNICATORS || self.communicators.contains_key(&hash) {
                self.communicators.entry(hash).or_insert(comm);
            }
        }
        for (hash, rank) in other.ranks {
            if self.ranks.len() < MAX_COMMUNICATORS {
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

    /// Drops calls below a sampling level.
    pub fn thin_out(&mut self, level: usize) {
        if level > self.level {
            self.calls.retain(|call| CallSample::keeps(level, call.key));
            self.calls.shrink_to_fit();
            self.level = level;
        }
    }

    /// Sets the ranks of the process in its communicators. Must be called after all blocks are added. `rank` is
    /// the rank in the job, `launched` the number of processes that the launcher started.
    pub fn set_ranks(&mut self, rank: Option<u32>, launched: Option<u32>) {
        self.is_in_threads = own_time::is_in_threads(self);
        if self.world_size == Some(1) && launched.is_some_and(|launched| launched > 1) {
            self.isolate();
        }
        let world = comm_hash(WORLD.as_bytes());
        for (hash, comm) in &mut self.communicators {
            let known = self.ranks.get(hash).copied();
            comm.rank = comm.rank.or(known).or(if *hash == world { rank } else { None });
        }
        self.ranks.clear();
    }

    /// Keeps only RCCL communicators. They are shared without MPI, because an id gives them their names.
    fn isolate(&mut self) {
        self.is_singleton = true;
        self.alone += std::mem::take(&mut self.of_mpi);
        self.communicators.retain(|_, comm| comm.name.starts_with("nccl-"));
        let communicators = &self.communicators;
        self.calls.retain(|call| communicators.contains_key(&call.comm));
    }

    /// Separates communicators of one name that several processes of one rank used. `times` has, by
    /// communicator, how many of these processes used it before this one.
    pub fn rename_communicators(&mut self, times: &BTreeMap<u64, u32>) {
        let renamed = |hash: u64| match times.get(&hash) {
            None | Some(0) => hash,
            Some(n) => comm_hash(&[&hash.to_le_bytes()[..], &n.to_le_bytes()[..]].concat()),
        };
        self.calls.iter_mut().for_each(|call| call.comm = renamed(call.comm));
        for sequence in &mut self.sequences {
            // Communicators without a name are identified by their position among the communicators of their
            // process.
            let turn = times.get(&sequence.comm).copied().unwrap_or(0);
            sequence.place = sequence.place.saturating_add(turn.saturating_mul(MAX_COMMUNICATORS as u32));
            sequence.comm = renamed(sequence.comm);
        }
        self.communicators =
            std::mem::take(&mut self.communicators).into_iter().map(|(h, c)| (renamed(h), c)).collect();
    }
}

const WORLD: &str = "MPI_COMM_WORLD";

/// Returns whether a communicator's name means the same in all processes.
///
/// It does not if the creation of the communicator was not recorded, or if each rank has one of its own. The
/// same holds for communicators derived from these.
pub fn is_shared_communicator(name: &str) -> bool {
    let first = name.split('/').next().unwrap_or(name);
    let unseen = first.strip_prefix("comm-").is_some_and(|n| n.len() < 16);
    !(unseen || first == "MPI_COMM_SELF" || first.starts_with("nccl-local-"))
}

fn calls(rows: &Rows<Local>, strings: &ShardStrings, process: &mut ProcessCollectives) {
    let [names, comms, roots, sizes, seqs, starts, ends, threads] =
        ["name_id", "comm_id", "root", "bytes", "seq", "start", "end", "tid"]
            .map(|column| rows.column(column));
    let is_mpi = rows.id() == native::MPI_CALL;
    let mut functions: HashMap<i64, (Option<CollectiveFunction>, MessageCall), RandomState> =
        HashMap::default();
    let mut known: HashMap<i64, Option<(u64, bool)>, RandomState> = HashMap::default();
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
            .and_then(|(thread, enter)| process.mpi.add(thread, message, enter, ends.int(i)));
        let time_inside = || match (starts.int(i), ends.int(i)) {
            (Some(enter), Some(exit)) if is_mpi => exit.saturating_sub(enter),
            _ => 0,
        };
        let Some(function) = function else {
            let name = strings.get(name).unwrap_or_default();
            match (starts.int(i), ends.int(i)) {
                (Some(enter), None) if is_mpi => process.untimed.add_open(name, enter),
                _ => process.untimed.add(name, time_inside()),
            }
            continue;
        };
        let comm = comms.int(i).and_then(|id| {
            *known.entry(id).or_insert_with(|| {
                let name = String::from_utf8_lossy(strings.get(id)?);
                let shared =
                    is_shared_communicator(&name).then(|| process.note_communicator(&name)).flatten();
                shared.map(|hash| (hash, name.starts_with("inter/")))
            })
        });
        let seq = seqs.int(i).and_then(|seq| u64::try_from(seq).ok()).filter(|seq| *seq > 0);
        let (Some((comm, is_between_groups)), Some(seq), Some(enter)) = (comm, seq, starts.int(i)) else {
            process.alone += 1;
            process.untimed.add(strings.get(name).unwrap_or_default(), time_inside());
            continue;
        };
        if is_mpi && function.waits() == FunctionWaits::AllForAll && !function.only_starts() {
            process.untimed.synchronises();
        }
        // On an intercommunicator no rank waits for ranks of its own group.
        process.of_mpi += u64::from(is_mpi);
        let has_no_times = function.only_starts() || function.is_rccl() || is_between_groups;
        let recorded_exit = ends.int(i).filter(|exit| *exit >= enter);
        process.calls.push(CollectiveCall {
            root: roots.int(i).and_then(|root| u32::try_from(root).ok()),
            // The groups of an intercommunicator may pass different sizes.
            size: sizes.int(i).filter(|size| *size >= 0 && !is_between_groups),
            mpi_before,
            unrelated_exit: recorded_exit.filter(|_| is_between_groups),
            ..CollectiveCall::new(function, enter, recorded_exit.filter(|_| !has_no_times))
                .numbered(comm, seq)
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
        let mut process = ProcessCollectives::default();
        let hash = process.note_communicator(WORLD).unwrap();
        process.set_ranks(Some(3), Some(4));
        assert_eq!(process.communicators[&hash].rank, Some(3));
        process.rename_communicators(&BTreeMap::from([(hash, 0)]));
        assert!(process.communicators.contains_key(&hash));
        process.rename_communicators(&BTreeMap::from([(hash, 1)]));
        assert!(!process.communicators.contains_key(&hash));
        assert_eq!(process.communicators.len(), 1);
    }

    #[test]
    fn a_process_that_mpi_has_put_alone_shares_communicators_of_rccl_only() {
        let settled = |world_size, launched| {
            let mut process = ProcessCollectives { world_size, of_mpi: 2, ..ProcessCollectives::default() };
            process.note_communicator(WORLD).unwrap();
            process.note_communicator("nccl-00ff").unwrap();
            process.set_ranks(Some(3), launched);
            let names: Vec<&str> = process.communicators.values().map(|comm| &*comm.name).collect();
            (process.is_singleton, names.len(), names.contains(&WORLD), process.alone)
        };
        assert_eq!(settled(Some(1), Some(4)), (true, 1, false, 2));
        for (world_size, launched) in
            [(Some(4), Some(4)), (Some(1), Some(1)), (Some(1), None), (None, Some(4)), (Some(2), Some(4))]
        {
            assert_eq!(settled(world_size, launched), (false, 2, true, 0), "{world_size:?} of {launched:?}");
        }
    }
}
