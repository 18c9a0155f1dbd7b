use super::operation::{CollectiveKind, SendMode, Slot};

/// A call of a modelled rank.
#[derive(Clone, Debug)]
pub struct ModelCall<'a> {
    /// The rank.
    pub rank: u32,
    /// Function.
    pub function: &'static str,
    /// Time of the entry, ns.
    pub enter_ns: i64,
    /// Time of the exit, ns.
    pub exit_ns: i64,
    /// Time that it waited for others, ns.
    pub waited_ns: u64,
    /// What it began and completed, in that order.
    pub operations: &'a [CallOperation],
}

/// Source and tag of a received message.
pub type MessageStatus = (i32, i32);

/// A message of a call, in the terms of the program.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct CalledMessage {
    /// Index of the communicator.
    pub communicator: u32,
    /// Rank of the other end, or [`rpd_graph::ANY`].
    pub peer: i32,
    /// Tag, or [`rpd_graph::ANY`].
    pub tag: i32,
    /// Size, bytes.
    pub bytes: u64,
    /// Slot of the request that a later call completes.
    pub slot: Option<Slot>,
}

/// What a call does.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum CallOperation {
    /// Sends a message.
    Send(CalledMessage, SendMode),
    /// Receives a message, with the status if the call completes it and the program asks for it.
    Receive(CalledMessage, Option<MessageStatus>),
    /// Prepares a request, to send or not.
    Prepare(CalledMessage, bool),
    /// Enters a collective.
    Collective(CalledCollective),
    /// Sees the completion of the operation in a slot, with the status of a receive if the program asks for it.
    Completion(Slot, Option<MessageStatus>),
}

/// A collective of a call.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct CalledCollective {
    /// Operation.
    pub kind: CollectiveKind,
    /// Index of the communicator.
    pub communicator: u32,
    /// Number of the collective of the rank on the communicator.
    pub number: u32,
    /// Rank of the root.
    pub root: Option<u32>,
    /// Bytes.
    pub bytes: u64,
    /// Slot of the request that a later call completes.
    pub slot: Option<Slot>,
}

/// Records a run of a modelled program. All times are ns from its start.
#[allow(unused_variables)]
pub trait RunRecorder {
    /// A rank worked.
    fn worked(&mut self, rank: u32, range: Option<&'static str>, start_ns: i64, end_ns: i64) {}
    /// A rank left a call.
    fn called(&mut self, call: &ModelCall<'_>) {}
    /// A rank begins a step, which ends the one before.
    fn step_begins(&mut self, rank: u32, step: u32, at_ns: i64) {}
    /// A rank ends its last step.
    fn steps_end(&mut self, rank: u32, at_ns: i64) {}
    /// A message was received: rank and number among its sends and receives, of both ends.
    fn matched(&mut self, send: (u32, u32), receive: (u32, u32)) {}
    /// A rank ended.
    fn ended(&mut self, rank: u32, at_ns: i64) {}
}

/// Records nothing.
#[derive(Clone, Copy, Debug, Default)]
pub struct Unrecorded;

impl RunRecorder for Unrecorded {}
