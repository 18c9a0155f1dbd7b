//! Where in the folder of a run a rank's files are.

/// Maximum number of ranks whose files are in one folder: metadata servers of parallel file systems serve one
/// folder at a time.
const RANKS: u32 = 1000;
/// Begins the name of a folder of ranks.
const NAME: &str = "ranks-";

/// The folder below that of the run, for runs of more than 1,000 ranks: `ranks-01000` has those from 1000 to 1999.
pub fn folder_of_ranks(rank: Option<u32>, size: Option<u32>) -> Option<String> {
    let is_large = size.is_some_and(|size| size > RANKS);
    rank.filter(|_| is_large).map(|rank| format!("{NAME}{:05}", rank / RANKS * RANKS))
}

/// Whether a folder has the name of one of ranks.
pub fn is_folder_of_ranks(name: &str) -> bool {
    let number = name.strip_prefix(NAME).unwrap_or_default();
    number.len() >= 5 && number.bytes().all(|byte| byte.is_ascii_digit())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_thousand_ranks_share_a_folder() {
        for (rank, size, folder) in [
            (Some(7), Some(1000), None),
            (Some(7), None, None),
            (None, Some(2000), None),
            (Some(7), Some(1001), Some("ranks-00000")),
            (Some(1999), Some(5000), Some("ranks-01000")),
            (Some(123_456), Some(200_000), Some("ranks-123000")),
        ] {
            let found = folder_of_ranks(rank, size);
            assert_eq!(found.as_deref(), folder, "{rank:?} {size:?}");
            assert!(found.is_none_or(|name| is_folder_of_ranks(&name)));
        }
        assert!(
            !is_folder_of_ranks("ranks-")
                && !is_folder_of_ranks("ranks-0x000")
                && !is_folder_of_ranks("rank-00000")
        );
    }
}
