use crate::time::Timestamp;

/// What becomes of spans that are at the same time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Overlaps {
    /// One that lies within another is drawn below it, on the same lane, as calls of a thread are. One that begins
    /// within another and ends after it goes to the next lane.
    Nest,
    /// Each goes to a lane of its own, as kernels of a GPU queue do.
    Separate,
}

/// Until when a span may last that is put on a lane. A tree of maxima over the lanes, so that the first lane that
/// takes a span is found without looking at each.
#[derive(Clone, Debug)]
pub(crate) struct Room {
    /// Leaves are in the second half; the parent of `i` is `i / 2`. Nothing is 0, `t + 1` is room until t.
    tree: Vec<u64>,
    lanes: usize,
}

const FREE: u64 = u64::MAX;

impl Room {
    pub(crate) fn new() -> Room {
        Room { tree: vec![0; 2], lanes: 0 }
    }

    pub(crate) fn lanes(&self) -> usize {
        self.lanes
    }

    /// The first lane with room until `end`; a new one if there is none.
    #[inline]
    pub(crate) fn find(&mut self, end: Timestamp) -> usize {
        let wanted = end.ns() + 1;
        if self.tree[1] < wanted {
            return self.add();
        }
        let leaves = self.tree.len() / 2;
        let mut at = 1;
        while at < leaves {
            at *= 2;
            if self.tree[at] < wanted {
                at += 1;
            }
        }
        at - leaves
    }

    fn add(&mut self) -> usize {
        let leaves = self.tree.len() / 2;
        let lane = self.lanes;
        self.lanes += 1;
        if lane == leaves {
            let mut tree = vec![0; 4 * leaves];
            tree[2 * leaves..3 * leaves].copy_from_slice(&self.tree[leaves..]);
            for at in (1..2 * leaves).rev() {
                tree[at] = tree[2 * at].max(tree[2 * at + 1]);
            }
            self.tree = tree;
        }
        self.free(lane);
        lane
    }

    /// All that comes has room.
    pub(crate) fn free(&mut self, lane: usize) {
        self.set(lane, FREE);
    }

    /// What ends before or at `end` has room.
    pub(crate) fn until(&mut self, lane: usize, end: Timestamp) {
        self.set(lane, end.ns() + 1);
    }

    /// Nothing has room.
    pub(crate) fn fill(&mut self, lane: usize) {
        self.set(lane, 0);
    }

    #[inline]
    fn set(&mut self, lane: usize, room: u64) {
        let mut at = self.tree.len() / 2 + lane;
        self.tree[at] = room;
        while at > 1 {
            let most = self.tree[at].max(self.tree[at ^ 1]);
            at /= 2;
            if self.tree[at] == most {
                break;
            }
            self.tree[at] = most;
        }
    }
}
