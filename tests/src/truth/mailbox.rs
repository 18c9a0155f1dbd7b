use rpd_graph::ANY;
use std::collections::VecDeque;

/// A message on its way.
#[derive(Clone, Copy, Debug)]
pub(super) struct Envelope {
    pub(super) communicator: u32,
    /// Ranks of the job.
    pub(super) sender: u32,
    pub(super) destination: u32,
    /// Rank of the sender in the communicator.
    pub(super) source: i32,
    pub(super) tag: i32,
    pub(super) bytes: u64,
    /// Request of a sender that waits for the receive.
    pub(super) request: Option<usize>,
    pub(super) sent_ns: i64,
    pub(super) arrival_ns: i64,
    /// Number among the sends and receives of the sender.
    pub(super) number: u32,
}

/// A receive that is posted.
#[derive(Clone, Copy, Debug)]
pub(super) struct PostedReceive {
    pub(super) communicator: u32,
    pub(super) source: i32,
    pub(super) tag: i32,
    pub(super) request: usize,
    pub(super) at_ns: i64,
    /// Number among the sends and receives of the receiver.
    pub(super) number: u32,
}

impl PostedReceive {
    fn accepts(&self, envelope: &Envelope) -> bool {
        self.communicator == envelope.communicator
            && (self.source == ANY || self.source == envelope.source)
            && (self.tag == ANY || self.tag == envelope.tag)
    }
}

/// Messages and receives of a rank that have no other end yet, in the order in which they came.
#[derive(Clone, Debug, Default)]
pub(super) struct Mailbox {
    unexpected: VecDeque<usize>,
    posted: VecDeque<PostedReceive>,
}

impl Mailbox {
    /// Posts a receive. Returns the first message that it accepts, if one is there.
    pub(super) fn post(&mut self, receive: PostedReceive, envelopes: &[Envelope]) -> Option<usize> {
        let found = self.unexpected.iter().position(|envelope| receive.accepts(&envelopes[*envelope]));
        if found.is_none() {
            self.posted.push_back(receive);
        }
        self.unexpected.remove(found?)
    }

    /// Adds a message. Returns the first posted receive that accepts it, if one is there.
    pub(super) fn arrive(&mut self, envelope: usize, envelopes: &[Envelope]) -> Option<PostedReceive> {
        let found = self.posted.iter().position(|receive| receive.accepts(&envelopes[envelope]));
        if found.is_none() {
            self.unexpected.push_back(envelope);
        }
        self.posted.remove(found?)
    }
}
