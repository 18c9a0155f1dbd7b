//! From the arguments of a call to what is recorded of it.

use super::abi::{Abi, Handle};
use super::making::Making;
use super::pointers::{Answers, Handles, Numbers, Statuses};
use crate::interpose::sequence::{self, Table};
use rpd_ring::mpi::{self, MpiFunction};
use rpd_ring::record::MpiCall;
use std::ffi::c_int;

/// The arguments of a call that matter, still in the terms of its MPI library.
pub(super) struct Call {
    pub(super) function: MpiFunction,
    pub(super) comm: Option<Handle>,
    pub(super) peer: Option<c_int>,
    pub(super) root: Option<c_int>,
    pub(super) tag: Option<c_int>,
    pub(super) volume: Volume,
    /// The buffer that may be `MPI_IN_PLACE` is it: the arguments beside it need not make sense.
    pub(super) is_in_place: bool,
    /// Its partners are the neighbours of this process, not all of the communicator.
    pub(super) is_of_neighbours: bool,
    pub(super) effect: Effect,
}

/// How much data a call is about.
#[derive(Clone, Copy)]
pub(super) enum Volume {
    /// Not known, or none.
    Unknown,
    /// A number of elements.
    Elements(i64, Handle),
    /// As many elements for every process of the communicator.
    PerRank(i64, Handle),
    /// The same, for every process on this side of the communicator.
    PerMember(i64, Handle),
    /// One count for every process of the communicator, summed up.
    Counts(Numbers, Handle),
    /// The same, for every process on this side of the communicator.
    MemberCounts(Numbers, Handle),
    /// The count of this process among those of all.
    OwnCount(Numbers, Handle),
    /// A count and a type for every process of the communicator, summed up.
    CountsOfTypes(Numbers, Handles),
}

/// What a call does to requests and communicators, and where to see it.
#[derive(Clone, Copy)]
pub(super) enum Effect {
    /// Nothing.
    Nothing,
    /// Starts an operation, whose request is there afterwards.
    Starts(Handles),
    /// Starts the operations of so many persistent requests.
    StartsAgain(Handles, c_int),
    /// Makes a persistent request of a send.
    PreparesSend(Handles),
    /// Completes some of so many requests.
    Completes(Handles, c_int, Completed, Statuses),
    /// Frees a request.
    Frees(Handles),
    /// Has received or seen a message, if there is a flag and it is set.
    Receives(Option<Answers>, Statuses),
    /// Makes `MPI_COMM_WORLD`.
    MakesWorld,
    /// Makes a communicator.
    Makes(Making),
    /// Frees the communicator that the call is about.
    FreesComm,
    /// Names the communicator that the call is about.
    Names(*const u8, usize),
}

/// Which requests a call has completed.
#[derive(Clone, Copy)]
pub(super) enum Completed {
    /// All.
    All,
    /// All, if that is true.
    AllIf(Answers),
    /// The one with this index.
    One(Answers),
    /// The one with this index, if the flag in front is true.
    OneIf(Answers, Answers),
    /// So many, with these indices.
    Some(Answers, Answers),
}

/// A call without communicator.
pub(super) fn plain() -> Call {
    Call {
        // Every caller puts its own in.
        function: MpiFunction::MPI_Init,
        comm: None,
        peer: None,
        root: None,
        tag: None,
        volume: Volume::Unknown,
        is_in_place: false,
        is_of_neighbours: false,
        effect: Effect::Nothing,
    }
}

/// A message to or from a peer.
pub(super) fn message(count: i64, datatype: Handle, peer: c_int, tag: c_int, comm: Handle) -> Call {
    Call { volume: Volume::Elements(count, datatype), ..probe(peer, tag, comm) }
}

/// The head of a message from a peer.
pub(super) fn probe(peer: c_int, tag: c_int, comm: Handle) -> Call {
    Call { comm: Some(comm), peer: Some(peer), tag: Some(tag), ..plain() }
}

/// A collective without root.
pub(super) fn collective(volume: Volume, comm: Handle) -> Call {
    Call { comm: Some(comm), volume, ..plain() }
}

/// A collective with a root.
pub(super) fn rooted(volume: Volume, root: c_int, comm: Handle) -> Call {
    Call { root: Some(root), ..collective(volume, comm) }
}

/// A collective of the neighbours in a topology.
pub(super) fn neighbours(volume: Volume, comm: Handle) -> Call {
    Call { is_of_neighbours: true, ..collective(volume, comm) }
}

impl Call {
    /// What counts instead if a buffer is `MPI_IN_PLACE`.
    pub(super) fn or_in_place(self, is_in_place: bool, volume: Volume) -> Call {
        if is_in_place { Call { is_in_place, volume, ..self } } else { self }
    }

    /// It does this to requests or communicators.
    pub(super) fn and(self, effect: Effect) -> Call {
        Call { effect, ..self }
    }

    /// Where the request of a non-blocking call is.
    pub(super) fn starts(&self) -> Option<Handles> {
        match self.effect {
            Effect::Starts(request) => Some(request),
            _ => None,
        }
    }

    /// The communicator as the ring tells it, 0 for none.
    pub(super) fn comm(&self) -> u64 {
        self.comm.map_or(0, |comm| COMMUNICATORS.name(Abi::get().comm(comm)))
    }

    /// Number of the call on its communicator.
    pub(super) fn seq(&self) -> Option<u32> {
        let numbers = COMMUNICATORS.of(Abi::get().comm(self.comm?))?;
        let is_collective = mpi::is_collective(self.function as u32);
        Some(sequence::next(if is_collective { &numbers.collectives } else { &numbers.others }))
    }

    /// In the terms of the ring.
    pub(super) fn resolve(&self, seq: Option<u32>) -> MpiCall {
        let abi = Abi::get();
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

impl Call {
    /// On the root's side of a collective between two groups most arguments may be anything, and MPI must
    /// not be asked about them: all of those that only look on, and of the root what it does not hand over.
    fn significant_volume(&self, abi: Abi) -> Volume {
        use MpiFunction::{MPI_Bcast, MPI_Ibcast, MPI_Ireduce, MPI_Reduce};
        let is_of_both = matches!(self.function, MPI_Bcast | MPI_Ibcast | MPI_Reduce | MPI_Ireduce);
        match self.root {
            Some(root) if root < 0 && !(is_of_both && abi.is_root_itself(root)) => Volume::Unknown,
            _ => self.volume,
        }
    }
}

/// Numbers of the calls on MPI's communicators.
pub(super) static COMMUNICATORS: Table = Table::new();

impl Volume {
    fn bytes(self, abi: Abi, comm: Option<Handle>) -> Option<i64> {
        match self {
            Volume::Unknown => None,
            Volume::Elements(count, datatype) => abi.bytes(count, datatype),
            Volume::PerRank(count, datatype) => {
                abi.bytes(count.checked_mul(i64::from(abi.partners(comm?)?))?, datatype)
            }
            Volume::PerMember(count, datatype) => {
                abi.bytes(count.checked_mul(i64::from(abi.size(comm?)?))?, datatype)
            }
            Volume::Counts(counts, datatype) => abi.bytes(sum(counts, abi.partners(comm?)?)?, datatype),
            Volume::MemberCounts(counts, datatype) => abi.bytes(sum(counts, abi.size(comm?)?)?, datatype),
            Volume::OwnCount(counts, datatype) => {
                let rank = usize::try_from(abi.rank(comm?)?).ok()?;
                abi.bytes(counts.at(rank)?, datatype)
            }
            Volume::CountsOfTypes(counts, types) => (0..usize::try_from(abi.partners(comm?)?).ok()?)
                .try_fold(0i64, |sum, at| sum.checked_add(abi.bytes(counts.at(at)?, types.at(at))?)),
        }
    }
}

fn sum(counts: Numbers, length: c_int) -> Option<i64> {
    (0..usize::try_from(length).ok()?).try_fold(0i64, |sum, at| sum.checked_add(counts.at(at)?))
}
