//! How many messages and collectives match.

use crate::analysis::WaitAnalysis;

/// At least this share of messages and collectives must match for a statement about dependencies.
pub(crate) const MIN_MATCHED: f64 = 0.95;

/// How much of the operations of a kind matches.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct MatchedShare {
    /// The kind, in words.
    pub(crate) what: &'static str,
    /// Number that matches.
    pub(crate) matched: u64,
    /// Number of all.
    pub(crate) all: u64,
}

impl MatchedShare {
    /// Returns the share; 1 if there are no such operations.
    pub(crate) fn share(self) -> f64 {
        if self.all == 0 { 1.0 } else { self.matched as f64 / self.all as f64 }
    }
}

impl WaitAnalysis<'_> {
    /// Returns the share that matches of the messages, of the collectives, or of all that calls do: the smallest of these.
    pub(crate) fn matched_share(&self) -> MatchedShare {
        let messages = self.graph.message_counts();
        let lost = messages.unmatched_sends
            + messages.unmatched_receives
            + messages.ambiguous
            + messages.unknown_sources
            + messages.contradicted;
        let collectives = self.graph.instance_counts();
        let used = collectives.matched + collectives.partial;
        let share = |what: &'static str, matched: u64, lost: u64| MatchedShare {
            what,
            matched,
            all: matched.saturating_add(lost),
        };
        let unusable = self.graph.job.unusable_operations;
        let shares = [
            // A message that does not match has up to two ends that are counted.
            share("sends and receives match", 2 * messages.matched, lost),
            share("collectives match", used, collectives.incomplete + collectives.mismatched),
            share("entries into collectives match", collectives.matched_entries, collectives.lost_entries),
            share("messages and collectives can be compared", messages.matched + used, unusable),
        ];
        let smaller =
            |one: MatchedShare, other: MatchedShare| if other.share() < one.share() { other } else { one };
        let [first, rest @ ..] = shares;
        rest.into_iter().fold(first, smaller)
    }
}
