//! Converts the arguments of a call to its record.

use super::abi::{MpiAbi, MpiHandle};
use super::new_communicator::CommunicatorCreation;
use super::pointers::{AnswerPlaces, HandleArray, NumberArray, StatusPlaces};
use crate::interpose::sequence::{self, CommunicatorTable};
use crate::runtime::thread_place::thread_place;
use rpd_ring::mpi::{self, MpiFunction};
use rpd_ring::record::{MpiCall, MpiReceive};
use std::ffi::c_int;

/// The relevant arguments of a call, as its MPI library represents them.
pub(super) struct CallArguments {
    pub(super) function: MpiFunction,
    pub(super) comm: Option<MpiHandle>,
    pub(super) peer: Option<c_int>,
    pub(super) root: Option<c_int>,
    pub(super) tag: Option<c_int>,
    pub(super) volume: DataVolume,
    /// A buffer is `MPI_IN_PLACE`, so the arguments that belong to it are not significant.
    pub(super) is_in_place: bool,
    /// The partners are the neighbours of this process, not the whole communicator.
    pub(super) is_of_neighbours: bool,
    pub(super) effect: CallEffect,
    /// Receive half of a call that also sends to its peer.
    pub(super) receive: Option<ReceiveArguments>,
    /// Use of a matched probe's message.
    pub(super) message: MessageUse,
}

/// Use of the message of a matched probe.
#[derive(Clone, Copy)]
pub(super) enum MessageUse {
    None,
    /// Finds it.
    Finds(HandleArray),
    /// Receives it.
    Receives(HandleArray),
}

/// The arguments for the receive half of a call.
#[derive(Clone, Copy)]
pub(super) struct ReceiveArguments {
    source: c_int,
    tag: c_int,
    count: i64,
    datatype: MpiHandle,
}

/// The amount of data of a call.
#[derive(Clone, Copy)]
pub(super) enum DataVolume {
    /// Unknown, or no data.
    Unknown,
    /// A number of elements.
    Elements(i64, MpiHandle),
    /// A number of elements for every process of the communicator.
    PerRank(i64, MpiHandle),
    /// A number of elements for every process of the local group.
    PerMember(i64, MpiHandle),
    /// The sum of one count for every process of the communicator.
    Counts(NumberArray, MpiHandle),
    /// The sum of one count for every process of the local group.
    MemberCounts(NumberArray, MpiHandle),
    /// The count of this process among those of all.
    OwnCount(NumberArray, MpiHandle),
    /// The sum of a count and a type for every process of the communicator.
    CountsOfTypes(NumberArray, HandleArray),
}

/// Effect of a call on requests and communicators, and location of its result.
#[derive(Clone, Copy)]
pub(super) enum CallEffect {
    /// Nothing.
    Nothing,
    /// Starts an operation and stores its request.
    Starts(HandleArray),
    /// The same for a receive.
    StartsReceive(HandleArray),
    /// Starts the operations of a number of persistent requests.
    StartsAgain(HandleArray, c_int),
    /// Creates a persistent request of a send.
    PreparesSend(HandleArray),
    /// Creates a persistent request of a receive.
    PreparesReceive(HandleArray),
    /// Completes some of a number of requests.
    Completes(HandleArray, c_int, CompletedRequests, StatusPlaces),
    /// Frees a request.
    Frees(HandleArray),
    /// Receives or detects a message, if the flag is set or there is none.
    Receives(Option<AnswerPlaces>, StatusPlaces),
    /// Creates `MPI_COMM_WORLD`.
    MakesWorld,
    /// Creates a communicator.
    Makes(CommunicatorCreation),
    /// Frees the communicator of the call.
    FreesComm,
    /// Names the communicator of the call.
    Names(*const u8, usize),
}

/// The requests that a call has completed.
#[derive(Clone, Copy)]
pub(super) enum CompletedRequests {
    /// All.
    All,
    /// All, if the flag is true.
    AllIf(AnswerPlaces),
    /// The request with this index.
    One(AnswerPlaces),
    /// The request with this index (second), if the flag (first) is true.
    OneIf(AnswerPlaces, AnswerPlaces),
    /// A number of requests (first) with these indices (second).
    Some(AnswerPlaces, AnswerPlaces),
}

/// Makes a call without a communicator.
pub(super) fn plain() -> CallArguments {
    CallArguments {
        // The caller replaces it.
        function: MpiFunction::MPI_Init,
        comm: None,
        peer: None,
        root: None,
        tag: None,
        volume: DataVolume::Unknown,
        is_in_place: false,
        is_of_neighbours: false,
        effect: CallEffect::Nothing,
        receive: None,
        message: MessageUse::None,
    }
}

/// Makes a call that sends to a peer or receives from one.
pub(super) fn message(
    count: i64,
    datatype: MpiHandle,
    peer: c_int,
    tag: c_int,
    comm: MpiHandle,
) -> CallArguments {
    CallArguments { volume: DataVolume::Elements(count, datatype), ..probe(peer, tag, comm) }
}

/// Makes a call that probes for a message of a peer.
pub(super) fn probe(peer: c_int, tag: c_int, comm: MpiHandle) -> CallArguments {
    CallArguments { comm: Some(comm), peer: Some(peer), tag: Some(tag), ..plain() }
}

/// Makes a call that receives the message of a matched probe.
pub(super) fn receives(count: i64, datatype: MpiHandle, message: HandleArray) -> CallArguments {
    let volume = DataVolume::Elements(count, datatype);
    CallArguments { volume, message: MessageUse::Receives(message), ..plain() }
}

/// Makes a collective call without a root.
pub(super) fn collective(volume: DataVolume, comm: MpiHandle) -> CallArguments {
    CallArguments { comm: Some(comm), volume, ..plain() }
}

/// Makes a collective call with a root.
pub(super) fn rooted(volume: DataVolume, root: c_int, comm: MpiHandle) -> CallArguments {
    CallArguments { root: Some(root), ..collective(volume, comm) }
}

/// Makes a collective call of the neighbours in a topology.
pub(super) fn neighbours(volume: DataVolume, comm: MpiHandle) -> CallArguments {
    CallArguments { is_of_neighbours: true, ..collective(volume, comm) }
}

impl CallArguments {
    /// Replaces the data volume if a buffer is `MPI_IN_PLACE`.
    pub(super) fn or_in_place(self, is_in_place: bool, volume: DataVolume) -> CallArguments {
        if is_in_place { CallArguments { is_in_place, volume, ..self } } else { self }
    }

    /// Adds an effect on requests or communicators.
    pub(super) fn and(self, effect: CallEffect) -> CallArguments {
        CallArguments { effect, ..self }
    }

    /// Adds the message that a matched probe finds.
    pub(super) fn finds(self, message: HandleArray) -> CallArguments {
        CallArguments { message: MessageUse::Finds(message), ..self }
    }

    /// Adds the receive half.
    pub(super) fn and_receives(
        self,
        count: i64,
        datatype: MpiHandle,
        source: c_int,
        tag: c_int,
        status: StatusPlaces,
    ) -> CallArguments {
        let receive = Some(ReceiveArguments { source, tag, count, datatype });
        CallArguments { receive, effect: CallEffect::Receives(None, status), ..self }
    }

    /// Whether the call needs more after it returns than the record of its end. For most functions, a constant after inlining.
    #[inline(always)]
    pub(super) fn has_effects(&self) -> bool {
        match (self.effect, self.message) {
            (CallEffect::Nothing, MessageUse::None) => false,
            (CallEffect::Receives(..), MessageUse::None) => self.is_of_any(),
            _ => true,
        }
    }

    /// Whether values must be saved before the call, besides its record.
    #[inline(always)]
    pub(super) fn needs_preparation(&self) -> bool {
        matches!(self.message, MessageUse::Receives(_))
            || matches!(
                self.effect,
                CallEffect::Completes(..)
                    | CallEffect::Frees(_)
                    | CallEffect::Makes(_)
                    | CallEffect::FreesComm
                    | CallEffect::Names(..)
            )
    }

    /// Returns the address of the request of a non-blocking call.
    pub(super) fn starts(&self) -> Option<HandleArray> {
        match self.effect {
            CallEffect::Starts(request) | CallEffect::StartsReceive(request) => Some(request),
            _ => None,
        }
    }

    /// Whether the call receives from any source or with any tag.
    #[inline(always)]
    pub(super) fn is_of_any(&self) -> bool {
        let (source, tag) = match self.receive {
            Some(receive) => (Some(receive.source), Some(receive.tag)),
            None => (self.peer, self.tag),
        };
        source.is_none_or(|source| MpiAbi::get().peer(source).is_none()) || tag.is_none_or(|tag| tag < 0)
    }

    /// Returns the communicator in its form in the ring, 0 for none.
    pub(super) fn communicator(&self) -> u64 {
        self.comm.map_or(0, |comm| COMMUNICATORS.name(MpiAbi::get().communicator(comm)))
    }

    /// Assigns the number of the call on its communicator, which is in the form of [`MpiAbi::communicator`].
    pub(super) fn seq(&self, communicator: u64) -> Option<u32> {
        let numbers = COMMUNICATORS.of(communicator)?;
        let is_collective = mpi::is_collective(self.function as u32);
        let counter = if is_collective { &numbers.collectives } else { &numbers.others };
        Some(sequence::next_of_mpi(counter, thread_place().addr()))
    }

    /// Converts the call to its form in the ring. The communicator is in the form of [`MpiAbi::communicator`].
    pub(super) fn resolve(&self, abi: MpiAbi, communicator: u64, seq: Option<u32>) -> MpiCall {
        MpiCall {
            function: self.function as u32,
            comm: Some(COMMUNICATORS.name(communicator)).filter(|comm| *comm != 0),
            peer: self.peer.and_then(|peer| abi.peer(peer)),
            root: self.root.filter(|root| *root >= 0),
            tag: self.tag.filter(|tag| *tag >= 0),
            bytes: self.significant_volume(abi).bytes(abi, self.comm),
            seq,
            receive: self.receive.map(|receive| MpiReceive {
                source: abi.peer(receive.source),
                tag: Some(receive.tag).filter(|tag| *tag >= 0),
                bytes: abi.bytes(receive.count, receive.datatype),
            }),
        }
    }

    /// On the root's side of a collective on an intercommunicator most arguments are not significant, and
    /// must not be passed to MPI: all arguments of processes that do not take part, and those for data that
    /// the root does not send.
    fn significant_volume(&self, abi: MpiAbi) -> DataVolume {
        use MpiFunction::{MPI_Bcast, MPI_Ibcast, MPI_Ireduce, MPI_Reduce};
        let is_of_both = matches!(self.function, MPI_Bcast | MPI_Ibcast | MPI_Reduce | MPI_Ireduce);
        match self.root {
            Some(root) if root < 0 && !(is_of_both && abi.is_root_itself(root)) => DataVolume::Unknown,
            _ => self.volume,
        }
    }
}

/// Sequence numbers of calls on MPI's communicators.
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
