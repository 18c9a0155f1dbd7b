//! From the arguments of a call to what is recorded of it.

use super::abi::{Abi, Handle, Ints, Ptr};
use rpd_ring::mpi::MpiFunction;
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
    /// A buffer, and what counts if it is `MPI_IN_PLACE`: the arguments beside such a buffer need
    /// not make sense, nor those of the root in another rank.
    pub(super) in_place: Option<(Ptr, Volume)>,
}

/// How much data a call is about.
#[derive(Clone, Copy)]
pub(super) enum Volume {
    /// Not known, or none.
    Unknown,
    /// A number of elements.
    Elements(c_int, Handle),
    /// As many elements for every process of the communicator.
    PerRank(c_int, Handle),
    /// One count for every process of the communicator, summed up.
    Counts(Ints, Handle),
    /// The count of this process among those of all.
    OwnCount(Ints, Handle),
    /// A count and a type for every process of the communicator, summed up.
    CountsOfTypes(Ints, Ptr),
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
        in_place: None,
    }
}

/// A message to or from a peer.
pub(super) fn message(count: c_int, datatype: Handle, peer: c_int, tag: c_int, comm: Handle) -> Call {
    Call {
        comm: Some(comm),
        peer: Some(peer),
        tag: Some(tag),
        volume: Volume::Elements(count, datatype),
        ..plain()
    }
}

/// A collective without root.
pub(super) fn collective(volume: Volume, comm: Handle) -> Call {
    Call { comm: Some(comm), volume, ..plain() }
}

/// A collective with a root.
pub(super) fn rooted(volume: Volume, root: c_int, comm: Handle) -> Call {
    Call { root: Some(root), ..collective(volume, comm) }
}

impl Call {
    /// What counts instead if `buffer` is `MPI_IN_PLACE`.
    pub(super) fn or_in_place(self, buffer: Ptr, volume: Volume) -> Call {
        Call { in_place: Some((buffer, volume)), ..self }
    }

    /// In the terms of the ring.
    pub(super) fn resolve(self) -> MpiCall {
        let abi = Abi::get();
        let volume = match self.in_place {
            Some((buffer, volume)) if abi.in_place(buffer) => volume,
            _ => self.volume,
        };
        MpiCall {
            function: self.function as u32,
            comm: self.comm.map(|comm| abi.comm(comm)),
            peer: self.peer.and_then(|peer| abi.peer(peer)),
            root: self.root.filter(|root| *root >= 0),
            tag: self.tag.filter(|tag| *tag >= 0),
            bytes: volume.bytes(abi, self.comm),
            seq: None,
        }
    }
}

impl Volume {
    fn bytes(self, abi: Abi, comm: Option<Handle>) -> Option<i64> {
        match self {
            Volume::Unknown => None,
            Volume::Elements(count, datatype) => abi.bytes(i64::from(count), datatype),
            Volume::PerRank(count, datatype) => {
                let size = abi.size(comm?)?;
                abi.bytes(i64::from(count) * i64::from(size), datatype)
            }
            Volume::Counts(counts, datatype) => {
                let size = usize::try_from(abi.size(comm?)?).ok()?;
                let sum = (0..size).map(|i| count_at(counts, i).map(i64::from)).sum::<Option<i64>>()?;
                abi.bytes(sum, datatype)
            }
            Volume::OwnCount(counts, datatype) => {
                let rank = usize::try_from(abi.rank(comm?)?).ok()?;
                abi.bytes(i64::from(count_at(counts, rank)?), datatype)
            }
            Volume::CountsOfTypes(counts, types) => {
                let size = usize::try_from(abi.size(comm?)?).ok()?;
                if types.is_null() {
                    return None;
                }
                (0..size)
                    // SAFETY: MPI wants one type for every process of the communicator.
                    .map(|i| abi.bytes(i64::from(count_at(counts, i)?), unsafe { abi.handle_at(types, i) }))
                    .sum()
            }
        }
    }
}

/// An element of an array with one count per process.
fn count_at(counts: Ints, at: usize) -> Option<c_int> {
    // SAFETY: MPI wants one count for every process of the communicator, and `at` is below their
    // number.
    (!counts.is_null()).then(|| unsafe { counts.add(at).read() })
}
