//! From the arguments of a call to what is recorded of it.

use super::abi::{MpiAbi, MpiHandle};
use super::making::CommunicatorCreation;
use super::pointers::{AnswerPlaces, HandleArray, NumberArray, StatusPlaces};
use crate::interpose::sequence::{self, CommunicatorTable};
use rpd_ring::mpi::{self, MpiFunction};
use rpd_ring::record::MpiCall;
use std::ffi::c_int;

/// The arguments of a call that matter, still in the terms of its MPI library.
pub(super) struct CallArguments {
    pub(super) function: MpiFunction,
    pub(super) comm: Option<MpiHandle>,
    pub(super) peer: Option<c_int>,
    pub(super) root: Option<c_int>,
    pub(super) tag: Option<c_int>,
    pub(super) volume: DataVolume,
    /// The buffer that may be `MPI_IN_PLACE` is it: the arguments beside it need not make sense.
    pub(super) is_in_place: bool,
    /// Its partners are the neighbours of this process, not all of the communicator.
    pub(super) is_of_neighbours: bool,
    pub(super) effect: CallEffect,
}

/// How much data a call is about.
#[derive(Clone, Copy)]
pub(super) enum DataVolume {
    /// Not known, or none.
    Unknown,
    /// A number of elements.
    Elements(i64, MpiHandle),
    /// As many elements for every process of the communicator.
    PerRank(i64, MpiHandle),
    /// The same, for every process on this side of the communicator.
    PerMember(i64, MpiHandle),
    /// One count for every process of the communicator, summed up.
    Counts(NumberArray, MpiHandle),
    /// The same, for every process on this side of the communicator.
    MemberCounts(NumberArray, MpiHandle),
    /// The count of this process among those of all.
    OwnCount(NumberArray, MpiHandle),
    /// A count and a type for every process of the communicator, summed up.
    CountsOfTypes(NumberArray, HandleArray),
}

/// What a call does to requests and communicators, and where to see it.
#[derive(Clone, Copy)]
pub(super) enum CallEffect {
    /// Nothing.
    Nothing,
    /// Starts an operation, whose request is there afterwards.
    Starts(HandleArray),
    /// Starts the operations of so many persistent requests.
    StartsAgain(HandleArray, c_int),
    /// Makes a persistent request of a send.
    PreparesSend(HandleArray),
    /// Completes some of so many requests.
    Completes(HandleArray, c_int, CompletedRequests, StatusPlaces),
    /// Frees a request.
    Frees(HandleArray),
    /// Has received or seen a message, if there is a flag and it is set.
    Receives(Option<AnswerPlaces>, StatusPlaces),
    /// Makes `MPI_COMM_WORLD`.
    MakesWorld,
    /// Makes a communicator.
    Makes(CommunicatorCreation),
    /// Frees the communicator that the call is about.
    FreesComm,
    /// Names the communicator that the call is about.
    Names(*const u8, usize),
}

/// Which requests a call has completed.
#[derive(Clone, Copy)]
pub(super) enum CompletedRequests {
    /// All.
    All,
    /// All, if that is true.
    AllIf(AnswerPlaces),
    /// The one with this index.
    One(AnswerPlaces),
    /// The one with this index, if the flag in front is true.
    OneIf(AnswerPlaces, AnswerPlaces),
    /// So many, with these indices.
    Some(AnswerPlaces, AnswerPlaces),
}

/// A call without communicator.
pub(super) fn plain() -> CallArguments {
    CallArguments {
        // Every caller puts its own in.
        function: MpiFunction::MPI_Init,
        comm: None,
        peer: None,
        root: None,
        tag: None,
        volume: DataVolume::Unknown,
        is_in_place: false,
        is_of_neighbours: false,
        effect: CallEffect::Nothing,
    }
}

/// A message to or from a peer.
pub(super) fn message(
    count: i64,
    datatype: MpiHandle,
    peer: c_int,
    tag: c_int,
    comm: MpiHandle,
) -> CallArguments {
    CallArguments { volume: DataVolume::Elements(count, datatype), ..probe(peer, tag, comm) }
}

/// The head of a message from a peer.
pub(super) fn probe(peer: c_int, tag: c_int, comm: MpiHandle) -> CallArguments {
    CallArguments { comm: Some(comm), peer: Some(peer), tag: Some(tag), ..plain() }
}

/// A collective without root.
pub(super) fn collective(volume: DataVolume, comm: MpiHandle) -> CallArguments {
    CallArguments { comm: Some(comm), volume, ..plain() }
}

/// A collective with a root.
pub(super) fn rooted(volume: DataVolume, root: c_int, comm: MpiHandle) -> CallArguments {
    CallArguments { root: Some(root), ..collective(volume, comm) }
}

/// A collective of the neighbours in a topology.
pub(super) fn neighbours(volume: DataVolume, comm: MpiHandle) -> CallArguments {
    CallArguments { is_of_neighbours: true, ..collective(volume, comm) }
}

impl CallArguments {
    /// What counts instead if a buffer is `MPI_IN_PLACE`.
    pub(super) fn or_in_place(self, is_in_place: bool, volume: DataVolume) -> CallArguments {
        if is_in_place { CallArguments { is_in_place, volume, ..self } } else { self }
    }

    /// It does this to requests or communicators.
    pub(super) fn and(self, effect: CallEffect) -> CallArguments {
        CallArguments { effect, ..self }
    }

    /// Where the request of a non-blocking call is.
    pub(super) fn starts(&self) -> Option<HandleArray> {
        match self.effect {
            CallEffect::Starts(request) => Some(request),
            _ => None,
        }
    }

    /// The communicator as the ring tells it, 0 for none.
    pub(super) fn comm(&self) -> u64 {
        self.comm.map_or(0, |comm| COMMUNICATORS.name(MpiAbi::get().comm(comm)))
    }

    /// Number of the call on its communicator.
    pub(super) fn seq(&self) -> Option<u32> {
        let numbers = COMMUNICATORS.of(MpiAbi::get().comm(self.comm?))?;
        let is_collective = mpi::is_collective(self.function as u32);
        Some(sequence::next(if is_collective { &numbers.collectives } else { &numbers.others }))
    }

    /// In the terms of the ring.
    pub(super) fn resolve(&self, seq: Option<u32>) -> MpiCall {
        let abi = MpiAbi::get();
        MpiCall {
            function: self.function as u32,
            comm: Some(self.comm()).filter(|comm| *comm != 0),
            peer: self.peer.and_then(|peer| abi.peer(peer)),
            root: self.root.filter(|root| *root >= 0),
            tag: self.tag.filter(|tag| *tag >= 0),
            bytes: self.significant_volume(abi).bytes(abi, self.comm),
            seq,
        }
    }
}

impl CallArguments {
    /// On the root's side of a collective between two groups most arguments may be anything, and MPI must
    /// not be asked about them: all of those that only look on, and of the root what it does not hand over.
    fn significant_volume(&self, abi: MpiAbi) -> DataVolume {
        use MpiFunction::{MPI_Bcast, MPI_Ibcast, MPI_Ireduce, MPI_Reduce};
        let is_of_both = matches!(self.function, MPI_Bcast | MPI_Ibcast | MPI_Reduce | MPI_Ireduce);
        match self.root {
            Some(root) if root < 0 && !(is_of_both && abi.is_root_itself(root)) => DataVolume::Unknown,
            _ => self.volume,
        }
    }
}

/// Numbers of the calls on MPI's communicators.
pub(super) static COMMUNICATORS: CommunicatorTable = CommunicatorTable::new();

impl DataVolume {
    fn bytes(self, abi: MpiAbi, comm: Option<MpiHandle>) -> Option<i64> {
        match self {
            DataVolume::Unknown => None,
            DataVolume::Elements(count, datatype) => abi.bytes(count, datatype),
            DataVolume::PerRank(count, datatype) => {
                abi.bytes(count.checked_mul(i64::from(abi.partners(comm?)?))?, datatype)
            }
            DataVolume::PerMember(count, datatype) => {
                abi.bytes(count.checked_mul(i64::from(abi.size(comm?)?))?, datatype)
            }
            DataVolume::Counts(counts, datatype) => abi.bytes(sum(counts, abi.partners(comm?)?)?, datatype),
            DataVolume::MemberCounts(counts, datatype) => abi.bytes(sum(counts, abi.size(comm?)?)?, datatype),
            DataVolume::OwnCount(counts, datatype) => {
                let rank = usize::try_from(abi.rank(comm?)?).ok()?;
                abi.bytes(counts.at(rank)?, datatype)
            }
            DataVolume::CountsOfTypes(counts, types) => (0..usize::try_from(abi.partners(comm?)?).ok()?)
                .try_fold(0i64, |sum, at| sum.checked_add(abi.bytes(counts.at(at)?, types.at(at))?)),
        }
    }
}

fn sum(counts: NumberArray, length: c_int) -> Option<i64> {
    (0..usize::try_from(length).ok()?).try_fold(0i64, |sum, at| sum.checked_add(counts.at(at)?))
}
