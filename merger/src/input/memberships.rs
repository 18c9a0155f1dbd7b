//! The communicators of a process, as a collector recorded them.

use rpd_collectives::is_shared_communicator;
use rpd_shard::file::ShardStrings;
use rpd_shard::model::{Local, Rows, native};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// Maximum number of communicators of a process that are kept. Those that it created first are kept.
const MAX_MEMBERSHIPS: usize = 256;

/// A communicator as all its processes know it, or one of the two sides of an intercommunicator.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug, Serialize, Deserialize)]
pub(crate) struct CommunicatorSide {
    /// Name of the communicator.
    pub(crate) name: Box<str>,
    /// 0 for the side with the leader of the lower rank in `MPI_COMM_WORLD`, 1 for the other one.
    pub(crate) side: Option<u8>,
}

/// Number of processes of a communicator or of one side, and rank of this process among them.
pub(crate) type SizeAndRank = (u32, u32);

/// The communicators of one process.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(crate) struct Memberships(BTreeMap<CommunicatorSide, SizeAndRank>);

impl Memberships {
    /// Returns the communicators in a block. Leaves out names that mean something in one process only, and
    /// communicators of one process.
    pub(super) fn of_block(rows: &Rows<Local>, strings: &ShardStrings) -> Memberships {
        let mut memberships = Memberships::default();
        if rows.id() != native::COMMUNICATOR {
            return memberships;
        }
        let [names, sizes, ranks, sides] =
            ["comm_id", "size", "rank", "side"].map(|column| rows.column(column));
        let number = |value: Option<i64>| value.and_then(|value| u32::try_from(value).ok());
        for i in 0..rows.len {
            let name = names.int(i).and_then(|id| strings.get(id)).map(String::from_utf8_lossy);
            let side = sides.int(i).and_then(|side| u8::try_from(side).ok()).filter(|side| *side < 2);
            let (Some(name), Some(size), Some(rank)) = (name, number(sizes.int(i)), number(ranks.int(i)))
            else {
                continue;
            };
            if is_shared_communicator(&name) && rank < size && (size > 1 || side.is_some()) {
                memberships.add_one(CommunicatorSide { name: name.into(), side }, (size, rank));
            }
        }
        memberships
    }

    /// Adds those of another block of the process.
    pub(super) fn add(&mut self, other: Memberships) {
        other.0.into_iter().for_each(|(side, size_and_rank)| self.add_one(side, size_and_rank));
    }

    fn add_one(&mut self, side: CommunicatorSide, size_and_rank: SizeAndRank) {
        if self.0.len() < MAX_MEMBERSHIPS {
            self.0.entry(side).or_insert(size_and_rank);
        }
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = (&CommunicatorSide, SizeAndRank)> {
        self.0.iter().map(|(side, size_and_rank)| (side, *size_and_rank))
    }
}
