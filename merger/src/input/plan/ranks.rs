//! Ranks of the job: which are present, which are missing, and which were excluded on purpose.

use rpd_console::wording::rank_list;
use rpd_shard::record::Selection;
use serde::{Deserialize, Serialize};
use std::collections::BTreeSet;

/// Maximum number of rank ranges that a warning names per selection.
const MAX_NAMED_RANGES: usize = 4;

/// Ranks of the job, as far as known.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct JobRanks {
    /// Ranks that some shard contains.
    pub seen: Vec<u32>,
    /// Ranks that should have been recorded, but that no shard contains.
    pub missing: Vec<u32>,
    /// Ranks that `--ranks` excluded.
    pub left_out: Vec<u32>,
    /// Number of ranks of the job; 0 if unknown.
    pub size: u32,
    /// Rank selections, if shards disagree. A rank in any selection should have been recorded.
    pub choices: Vec<String>,
}

impl JobRanks {
    /// Derives the ranks from those in shards, the size of the job, and the rank selection that each shard records. A
    /// shard without a selection belongs to a job that records all ranks.
    pub fn new<'a>(
        seen: BTreeSet<u32>,
        size: u32,
        selections: impl Iterator<Item = Option<&'a Selection>>,
    ) -> JobRanks {
        let choices: BTreeSet<Option<&[(u32, u32)]>> =
            selections.map(|selection| selection.map(|s| s.ranks.as_slice())).collect();
        let all: Option<Vec<_>> = choices.iter().copied().collect();
        let chosen = all.map(|all| Selection::of(all.into_iter().flatten().copied()));
        let is_chosen = |rank: &u32| chosen.as_ref().is_none_or(|chosen| chosen.contains(*rank));
        let unseen = (0..size).filter(|rank| !seen.contains(rank));
        let (missing, left_out) = unseen.partition(is_chosen);
        let choices = if choices.len() > 1 { named(&choices) } else { Vec::new() };
        JobRanks { seen: seen.into_iter().collect(), missing, left_out, size, choices }
    }

    /// Returns a line about differing selections of the shards.
    pub fn disagreement(&self) -> Option<String> {
        let choices = self.choices.join(", ");
        (!choices.is_empty()).then(|| {
            format!("the shards disagree on --ranks ({choices}): what any of them chose counts as chosen")
        })
    }
}

fn named(choices: &BTreeSet<Option<&[(u32, u32)]>>) -> Vec<String> {
    let name = |choice: &Option<&[(u32, u32)]>| match choice {
        Some(ranks) => {
            rank_list(&ranks[..ranks.len().min(MAX_NAMED_RANGES)])
                + if ranks.len() > MAX_NAMED_RANGES { ",..." } else { "" }
        }
        None => "all".to_owned(),
    };
    let mut named: Vec<String> = choices.iter().take(MAX_NAMED_RANGES).map(name).collect();
    if choices.len() > MAX_NAMED_RANGES {
        named.push(format!("{} more", choices.len() - MAX_NAMED_RANGES));
    }
    named
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ranks(seen: &[u32], selections: &[Option<&[(u32, u32)]>]) -> JobRanks {
        let selections: Vec<_> =
            selections.iter().map(|s| s.map(|ranges| Selection { ranks: ranges.to_vec() })).collect();
        JobRanks::new(seen.iter().copied().collect(), 8, selections.iter().map(Option::as_ref))
    }

    #[test]
    fn only_ranks_that_were_chosen_can_be_missing() {
        let found = ranks(&[4, 6], &[Some(&[(4, 6)]), Some(&[(4, 6)])]);
        assert_eq!((found.missing, found.left_out), (vec![5], vec![0, 1, 2, 3, 7]));
        let found = ranks(&[4, 6], &[None, None]);
        assert_eq!((found.missing, found.left_out), (vec![0, 1, 2, 3, 5, 7], vec![]));
    }

    #[test]
    fn of_choices_that_differ_all_count_and_are_told() {
        let found = ranks(&[1, 4], &[Some(&[(0, 1)]), Some(&[(4, 4), (6, 6)])]);
        assert_eq!((&found.missing[..], &found.left_out[..]), (&[0, 6][..], &[2, 3, 5, 7][..]));
        assert!(found.disagreement().is_some_and(|text| text.contains("(0-1, 4,6)")), "{found:?}");
        let found = ranks(&[1, 4], &[Some(&[(0, 1)]), None]);
        assert_eq!((found.missing.len(), found.left_out.len()), (6, 0));
        assert!(found.disagreement().is_some_and(|text| text.contains("(all, 0-1)")), "{found:?}");
        assert_eq!(ranks(&[1], &[Some(&[(0, 1)])]).disagreement(), None);
    }
}
