use crate::time::Timestamp;

/// Treatment of spans that overlap in time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Overlaps {
    /// A span within another one is drawn below it on the same lane, like nested calls of a thread. A span that
    /// begins within another one and ends after it uses the next lane.
    Nest,
    /// Each span uses a lane of its own, like kernels of a GPU queue.
    Separate,
}

/// Latest end of a span that each lane can accept. A tree of maxima over the lanes finds the first suitable lane
/// without examining each of them.
#[derive(Clone, Debug)]
pub(crate) struct FreeLanes {
    /// Leaves are in the second half; the parent of `i` is `i / 2`. The value 0 means that the lane is taken;
    /// `t + 1` means that it is free until t.
    tree: Vec<u64>,
    lanes: usize,
}

const FREE: u64 = u64::MAX;

impl FreeLanes {
    pub(crate) fn new() -> FreeLanes {
        FreeLanes { tree: vec![0; 2], lanes: 0 }
    }

    pub(crate) fn lanes(&self) -> usize {
        self.lanes
    }

    /// Returns the first lane that is free until `end`; adds a lane if there is none.
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

    /// Marks a lane as free for any span.
    pub(crate) fn free(&mut self, lane: usize) {
        self.set(lane, FREE);
    }

    /// Marks a lane as free for spans that end at or before `end`.
    pub(crate) fn until(&mut self, lane: usize, end: Timestamp) {
        self.set(lane, end.ns() + 1);
    }

    /// Marks a lane as taken.
    pub(crate) fn fill(&mut self, lane: usize) {
        self.set(lane, 0);
    }

    #[inline]
    fn set(&mut self, lane: usize, free_until: u64) {
        let mut at = self.tree.len() / 2 + lane;
        self.tree[at] = free_until;
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
