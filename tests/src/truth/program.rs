use super::operation::Operation;

/// Writes the operations of a rank in the start-up or the end of a program.
pub type RankPart = Box<dyn Fn(u32, &mut Vec<Operation>)>;
/// Writes the operations of a rank in a step.
pub type StepPart = Box<dyn Fn(u32, u32, &mut Vec<Operation>)>;

/// The processes of a modelled communicator, by their ranks in the job.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ModelCommunicator {
    /// Name on which all members agree.
    pub name: String,
    /// Function that makes it.
    pub made_by: &'static str,
    /// Members of the group, or of the two groups of an intercommunicator.
    pub groups: Vec<Vec<u32>>,
}

impl ModelCommunicator {
    /// Returns `MPI_COMM_WORLD`.
    pub fn world(ranks: u32) -> ModelCommunicator {
        let groups = vec![(0..ranks).collect()];
        ModelCommunicator { name: "MPI_COMM_WORLD".to_owned(), made_by: "MPI_Init", groups }
    }

    /// Returns a communicator of some ranks.
    pub fn of(name: &str, made_by: &'static str, ranks: impl IntoIterator<Item = u32>) -> ModelCommunicator {
        ModelCommunicator { name: name.to_owned(), made_by, groups: vec![ranks.into_iter().collect()] }
    }

    /// Returns group and rank of a rank of the job.
    pub fn place_of(&self, rank: u32) -> Option<(usize, u32)> {
        self.groups.iter().enumerate().find_map(|(group, members)| {
            let place = members.iter().position(|member| *member == rank)?;
            Some((group, place as u32))
        })
    }

    /// Returns the number of members.
    pub fn size(&self) -> usize {
        self.groups.iter().map(Vec::len).sum()
    }
}

/// A node with a slow network.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct SlowNode {
    /// The node.
    pub node: u32,
    /// Time by which messages that it sends to other nodes come later, ns.
    pub sent_ns: u64,
    /// The same of messages that it receives, ns.
    pub received_ns: u64,
}

/// A program: `MPI_Init`, start-up, steps, end, `MPI_Finalize`. Operations are written when a rank comes to them, so
/// that a long program takes no memory.
pub struct Program {
    /// Number of ranks.
    pub ranks: u32,
    /// How many of these are no processes, but the GPUs of the others in their order.
    pub gpus: u32,
    /// Ranks of a node.
    pub ranks_per_node: u32,
    /// Communicators, `MPI_COMM_WORLD` first.
    pub communicators: Vec<ModelCommunicator>,
    /// Number of steps; 0 if the program has no ranges of steps.
    pub steps: u32,
    /// A node whose messages take longer in runs with the planted excess.
    pub slow_node: Option<SlowNode>,
    /// What each rank does before the first step.
    pub start: RankPart,
    /// What each rank does in a step.
    pub step: StepPart,
    /// What each rank does after the last step.
    pub end: RankPart,
}

impl Program {
    /// Returns a program of steps on nodes of two ranks.
    pub fn of_steps(
        ranks: u32,
        steps: u32,
        step: impl Fn(u32, u32, &mut Vec<Operation>) + 'static,
    ) -> Program {
        Program {
            ranks,
            gpus: 0,
            ranks_per_node: 2,
            communicators: vec![ModelCommunicator::world(ranks)],
            steps,
            slow_node: None,
            start: Box::new(|_, _| {}),
            step: Box::new(step),
            end: Box::new(|_, _| {}),
        }
    }

    /// Returns a program without steps, of which each rank does one list of operations.
    pub fn of_lists(ranks: u32, lists: impl Fn(u32, &mut Vec<Operation>) + 'static) -> Program {
        Program { start: Box::new(lists), ..Program::of_steps(ranks, 0, |_, _, _| {}) }
    }

    /// Returns the number of processes.
    pub fn processes(&self) -> u32 {
        self.ranks - self.gpus
    }

    /// Returns the process to which a GPU belongs; `None` for a process.
    pub fn process_of_gpu(&self, rank: u32) -> Option<u32> {
        rank.checked_sub(self.processes())
    }

    /// Returns the node of a rank.
    pub fn node_of(&self, rank: u32) -> u32 {
        self.process_of_gpu(rank).unwrap_or(rank) / self.ranks_per_node.max(1)
    }

    /// Returns the number of nodes.
    pub fn nodes(&self) -> u32 {
        self.processes().div_ceil(self.ranks_per_node.max(1))
    }
}
