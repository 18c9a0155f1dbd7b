//! Names for communicators on which all their ranks agree without communication.
//!
//! A handle is valid in one process only, and may be reused. All ranks of a communicator share how it was
//! created: all ranks of the parent made the same call with the same ordinal on the parent, and no two
//! communicators from one call (a split) have the same rank 0. So `MPI_COMM_WORLD/2@4` comes from the second
//! such call on `MPI_COMM_WORLD`, for the group that has rank 4 of `MPI_COMM_WORLD` as its rank 0;
//! `MPI_COMM_WORLD/2@4/1@4` was created from that.
//!
//! | name | made by |
//! |---|---|
//! | `PARENT/N@LEADER` | all ranks of the parent; of RCCL: `LEADER` is the color of the split |
//! | `PARENT/gTAG.N@LEADER` | `MPI_Comm_create_group`, its N-th with this tag and leader |
//! | `inter/LOW-HIGH.TAG.N` | `MPI_Intercomm_create`: the leaders of the two sides, tag, N-th of these |
//! | `nccl-HASH` | `ncclCommInitRank`: hash of the unique id |
//! | `nccl-local-N` | `ncclCommInitAll` |
//! | `comm-N` | a call that was not recorded: the N-th of this process |

use super::outbox::RowOutbox;
use crate::shard_output::NameId;
use rpd_ring::record::{
    COMM_MADE, COMM_SELF, COMM_WORLD, CommunicatorBirth, NewCommunicator, RecordedLibrary,
};
use std::collections::{HashMap, VecDeque};
use twox_hash::XxHash3_64;

/// Maximum number of communicators per process that are distinguished.
const MAX_COMMUNICATORS: usize = 1 << 16;
/// Maximum number of freed communicators that are remembered: the ring of another thread may still contain
/// calls on them.
const MAX_FREED_COMMUNICATORS: usize = 1 << 10;
/// Maximum length of a name. A longer one becomes a hash, the same in all ranks.
const MAX_NAME_BYTES: usize = 256;

/// The communicators of a process.
#[derive(Default)]
pub(super) struct KnownCommunicators {
    known: HashMap<(RecordedLibrary, u64), KnownCommunicator>,
    /// Ordinals of names with the same base, where the library does not count creations.
    made: HashMap<String, u32>,
    /// Freed communicators, oldest first.
    freed: VecDeque<(RecordedLibrary, u64)>,
    unknown: u32,
}

/// A communicator of a process.
#[derive(Clone, Debug)]
pub(super) struct KnownCommunicator {
    text: Box<str>,
    /// Name for rows.
    pub(super) name: NameId,
    /// Number of its ranks, and rank of this process in it.
    pub(super) size_rank: Option<(u32, u32)>,
    /// Side of an intercommunicator: 0 or 1.
    pub(super) side: Option<u8>,
}

impl KnownCommunicators {
    /// Returns the communicator with this handle. Makes one if its creation was not recorded.
    pub(super) fn get(
        &mut self,
        library: RecordedLibrary,
        handle: u64,
        out: &mut RowOutbox,
    ) -> &KnownCommunicator {
        // Beyond the limit all others share one entry.
        let full = self.known.len() >= MAX_COMMUNICATORS && !self.known.contains_key(&(library, handle));
        let handle = if full { u64::MAX - 2 } else { handle };
        let unknown = &mut self.unknown;
        self.known.entry((library, handle)).or_insert_with(|| {
            let text = match (library, handle) {
                (RecordedLibrary::Mpi, COMM_WORLD) => "MPI_COMM_WORLD".into(),
                (RecordedLibrary::Mpi, COMM_SELF) => "MPI_COMM_SELF".into(),
                _ => {
                    *unknown += 1;
                    format!("comm-{unknown}")
                }
            };
            KnownCommunicator {
                name: out.name(text.as_bytes()),
                text: text.into(),
                size_rank: None,
                side: None,
            }
        })
    }

    /// Adds a new communicator and returns its name. `None` if this rank did not get one.
    pub(super) fn add(&mut self, made: &NewCommunicator, out: &mut RowOutbox) -> Option<NameId> {
        if made.handle == 0 {
            return None;
        }
        let text = self.text(made, out);
        let name = out.name(text.as_bytes());
        let communicator =
            KnownCommunicator { text: text.into(), name, size_rank: made.size_rank, side: made.side };
        if self.known.len() < MAX_COMMUNICATORS {
            self.known.insert((made.library, made.handle), communicator);
        }
        Some(name)
    }

    /// Whether the record that creates this communicator is still to be read, from the ring of another
    /// thread.
    pub(super) fn is_to_come(&self, library: RecordedLibrary, handle: u64) -> bool {
        (COMM_MADE..COMM_MADE * 2).contains(&handle) && !self.known.contains_key(&(library, handle))
    }

    /// Removes a communicator. A handle may be reused; a number is not.
    pub(super) fn free(&mut self, library: RecordedLibrary, handle: u64) {
        if handle < COMM_MADE {
            self.known.remove(&(library, handle));
            return;
        }
        self.freed.push_back((library, handle));
        if self.freed.len() > MAX_FREED_COMMUNICATORS
            && let Some(oldest) = self.freed.pop_front()
        {
            self.known.remove(&oldest);
        }
    }

    fn text(&mut self, made: &NewCommunicator, out: &mut RowOutbox) -> String {
        let parent = made.parent.map(|parent| self.get(made.library, parent, out).text.clone());
        let parent = parent.unwrap_or_default();
        let NewCommunicator { id, leader, tag, ordinal, .. } = made;
        let text = match made.birth {
            CommunicatorBirth::World => "MPI_COMM_WORLD".to_owned(),
            CommunicatorBirth::Collective => format!("{parent}/{ordinal}@{leader}"),
            CommunicatorBirth::Group => {
                let base = format!("{parent}/g{tag}@{leader}");
                let n = self.count(base);
                format!("{parent}/g{tag}.{n}@{leader}")
            }
            CommunicatorBirth::Inter => {
                let base = format!("inter/{}-{}.{tag}", *id as u32, id >> 32);
                let n = self.count(base.clone());
                format!("{base}.{n}")
            }
            CommunicatorBirth::Shared => format!("nccl-{id:016x}"),
            CommunicatorBirth::Alone => {
                let n = self.count("nccl-local".to_owned());
                format!("nccl-local-{n}")
            }
        };
        if text.len() > MAX_NAME_BYTES {
            return format!("comm-{:016x}", XxHash3_64::oneshot(text.as_bytes()));
        }
        text
    }

    fn count(&mut self, base: String) -> u32 {
        if self.made.len() >= MAX_COMMUNICATORS && !self.made.contains_key(&base) {
            return 0;
        }
        let n = self.made.entry(base).or_default();
        *n += 1;
        *n
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::shard_output::{OutputItem, ShardOutput};
    use rpd_ring::mpi::MpiFunction::MPI_Comm_split;

    fn name(out: &RowOutbox, id: NameId) -> String {
        let names = out.batch().items.iter().filter_map(|item| match item {
            OutputItem::Name(name) => Some(String::from_utf8_lossy(name).into_owned()),
            _ => None,
        });
        names.collect::<Vec<_>>()[id.0 as usize].clone()
    }

    fn split(parent: u64, handle: u64, ordinal: u32, leader: i32) -> NewCommunicator {
        NewCommunicator {
            library: RecordedLibrary::Mpi,
            function: MPI_Comm_split as u32,
            birth: CommunicatorBirth::Collective,
            handle,
            parent: Some(parent),
            id: 0,
            size_rank: Some((4, 0)),
            leader,
            tag: 0,
            ordinal,
            side: None,
        }
    }

    #[test]
    fn names_follow_from_the_creation_and_outlive_no_handle() {
        let mut out = RowOutbox::new(ShardOutput::into_nothing());
        let mut all = KnownCommunicators::default();
        let add = |all: &mut KnownCommunicators, out: &mut RowOutbox, made| {
            let id = all.add(&made, out);
            id.map(|id| name(out, id))
        };
        let made = add(&mut all, &mut out, split(COMM_WORLD, 77, 2, 4));
        assert_eq!(made.as_deref(), Some("MPI_COMM_WORLD/2@4"));
        let made = add(&mut all, &mut out, split(77, 78, 1, 4));
        assert_eq!(made.as_deref(), Some("MPI_COMM_WORLD/2@4/1@4"));
        assert_eq!(add(&mut all, &mut out, split(77, 0, 2, 4)), None);
        assert_eq!(all.get(RecordedLibrary::Mpi, 78, &mut out).size_rank, Some((4, 0)));
        all.free(RecordedLibrary::Mpi, 77);
        let unknown = all.get(RecordedLibrary::Mpi, 77, &mut out).name;
        assert_eq!(name(&out, unknown), "comm-1");
        let group =
            NewCommunicator { birth: CommunicatorBirth::Group, tag: 5, ..split(COMM_WORLD, 80, 0, 1) };
        assert_eq!(add(&mut all, &mut out, group).as_deref(), Some("MPI_COMM_WORLD/g5.1@1"));
        assert_eq!(add(&mut all, &mut out, group).as_deref(), Some("MPI_COMM_WORLD/g5.2@1"));
        let inter = NewCommunicator { birth: CommunicatorBirth::Inter, id: 3 | 9 << 32, tag: 5, ..group };
        assert_eq!(add(&mut all, &mut out, inter).as_deref(), Some("inter/3-9.5.1"));
        let shared = NewCommunicator {
            library: RecordedLibrary::Rccl,
            birth: CommunicatorBirth::Shared,
            id: 255,
            ..group
        };
        assert_eq!(add(&mut all, &mut out, shared).as_deref(), Some("nccl-00000000000000ff"));
    }

    #[test]
    fn a_number_is_known_for_a_while_after_its_end() {
        let mut out = RowOutbox::new(ShardOutput::into_nothing());
        let mut all = KnownCommunicators::default();
        assert!(all.is_to_come(RecordedLibrary::Mpi, COMM_MADE + 1));
        assert!(
            !all.is_to_come(RecordedLibrary::Mpi, COMM_WORLD) && !all.is_to_come(RecordedLibrary::Mpi, 77)
        );
        for n in 1..=MAX_FREED_COMMUNICATORS as u64 + 1 {
            all.add(&split(COMM_WORLD, COMM_MADE + n, n as u32, 0), &mut out);
            all.free(RecordedLibrary::Mpi, COMM_MADE + n);
            assert!(!all.is_to_come(RecordedLibrary::Mpi, COMM_MADE + n));
        }
        assert!(all.is_to_come(RecordedLibrary::Mpi, COMM_MADE + 1), "the oldest is forgotten");
    }

    #[test]
    fn a_long_line_of_parents_has_a_short_name() {
        let mut out = RowOutbox::new(ShardOutput::into_nothing());
        let mut all = KnownCommunicators::default();
        all.add(&split(COMM_WORLD, 1, 1, 0), &mut out);
        for handle in 1..500 {
            let id = all.add(&split(handle, handle + 1, 1, 0), &mut out).unwrap();
            assert!(name(&out, id).len() <= MAX_NAME_BYTES);
        }
    }
}
