//! Subfolders of a run folder that hold the files of a range of ranks.

/// Maximum number of ranks with files in one folder. A metadata server of a parallel file system handles all
/// requests to one folder.
const RANKS: u32 = 1000;
/// Prefix of the name of a rank folder.
const NAME: &str = "ranks-";

/// Returns the subfolder of the run folder for the files of `rank`, for runs of more than 1,000 ranks.
/// `ranks-01000` holds the files of ranks 1000 to 1999.
pub fn folder_of_ranks(rank: Option<u32>, size: Option<u32>) -> Option<String> {
    let is_large = size.is_some_and(|size| size > RANKS);
    rank.filter(|_| is_large).map(|rank| format!("{NAME}{:05}", rank / RANKS * RANKS))
}

/// Returns whether `name` is the name of a rank folder.
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
