//! Sets of ranks on the command line.

use crate::record::Selection;
use serde::{Deserialize, Serialize};
use std::str::FromStr;

/// Maximum number of ranges in one set; more do not fit into a typed command line.
const MAX_RANGES: usize = 1000;

/// A set of ranks such as `--ranks 0,8-15`: the ranks to record or draw.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct RankSet {
    /// The chosen ranks; `None` stands for all ranks.
    chosen: Option<Selection>,
}

/// Error of parsing a set of ranks.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum RankSetError {
    /// The text is not a number or range.
    #[error("invalid ranks {0:?}; expected numbers and ranges such as 0,8-15")]
    NoRange(String),
    /// The last rank of a range is below the first.
    #[error("{first}-{last} ends before it begins; write {last}-{first}")]
    Backwards {
        /// First rank.
        first: u32,
        /// Last rank.
        last: u32,
    },
    /// The set has too many ranges.
    #[error("more than {MAX_RANGES} ranges of ranks")]
    TooMany,
}

impl RankSet {
    /// Returns whether the set contains a rank. Every set contains a process without a rank.
    pub fn contains(&self, rank: Option<u32>) -> bool {
        let (Some(chosen), Some(rank)) = (&self.chosen, rank) else { return true };
        chosen.contains(rank)
    }

    /// Returns the ranks for the record in a shard; `None` for all ranks.
    pub fn selection(&self) -> Option<&Selection> {
        self.chosen.as_ref()
    }
}

impl FromStr for RankSet {
    type Err = RankSetError;

    fn from_str(text: &str) -> Result<RankSet, RankSetError> {
        if text.trim() == "all" {
            return Ok(RankSet::default());
        }
        let ranges: Vec<(u32, u32)> = text.split(',').map(range).collect::<Result<_, _>>()?;
        if ranges.len() > MAX_RANGES {
            return Err(RankSetError::TooMany);
        }
        Ok(RankSet { chosen: Some(Selection::of(ranges)) })
    }
}

impl std::fmt::Display for RankSet {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Some(chosen) = &self.chosen else { return f.write_str("all") };
        for (at, (first, last)) in chosen.ranks.iter().enumerate() {
            let comma = if at > 0 { "," } else { "" };
            write!(f, "{comma}{first}")?;
            if last > first {
                write!(f, "-{last}")?;
            }
        }
        Ok(())
    }
}

fn range(text: &str) -> Result<(u32, u32), RankSetError> {
    let text = text.trim();
    let number = |digits: &str| {
        let digits = digits.trim();
        let plain = !digits.is_empty() && digits.bytes().all(|byte| byte.is_ascii_digit());
        plain.then(|| digits.parse().ok()).flatten()
    };
    let (first, last) = text.split_once('-').unwrap_or((text, text));
    match (number(first), number(last)) {
        (Some(first), Some(last)) if first <= last => Ok((first, last)),
        (Some(first), Some(last)) => Err(RankSetError::Backwards { first, last }),
        _ => Err(RankSetError::NoRange(text.to_owned())),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn ranks_and_ranges_are_understood() {
        for (given, shown) in [
            ("0", "0"),
            ("0,8-15", "0,8-15"),
            (" 3 , 1 - 2 ", "1-3"),
            ("5,5,4-6,1", "1,4-6"),
            ("4294967295,0", "0,4294967295"),
        ] {
            assert_eq!(given.parse::<RankSet>().unwrap().to_string(), shown, "{given}");
        }
        assert_eq!("7-3".parse::<RankSet>(), Err(RankSetError::Backwards { first: 7, last: 3 }));
        for nonsense in ["", "a", "1,,2", "-1", "1-", "1-2-3", "+1", "4294967296", "0x1", "1;2"] {
            assert!(matches!(nonsense.parse::<RankSet>(), Err(RankSetError::NoRange(_))), "{nonsense}");
        }
        assert_eq!(vec!["1"; MAX_RANGES + 1].join(",").parse::<RankSet>(), Err(RankSetError::TooMany));
    }

    #[test]
    fn without_ranks_everything_is_recorded() {
        assert!(RankSet::default().contains(Some(7)) && RankSet::default().contains(None));
        assert!("1".parse::<RankSet>().unwrap().contains(None));
    }

    proptest! {
        #[test]
        fn a_set_holds_what_its_ranges_hold(ranges in prop::collection::vec((0u32..60, 0u32..9), 1..12)) {
            let text: Vec<String> = ranges.iter().map(|(first, more)| format!("{first}-{}", first + more)).collect();
            let set: RankSet = text.join(",").parse().unwrap();
            for rank in 0..80 {
                let inside = ranges.iter().any(|(first, more)| (*first..=first + more).contains(&rank));
                prop_assert_eq!(set.contains(Some(rank)), inside);
            }
            prop_assert_eq!(set.to_string().parse::<RankSet>().unwrap(), set);
        }
    }
}
