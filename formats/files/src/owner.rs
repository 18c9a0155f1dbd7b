//! User ids: the effective user, and owners of links that are followed.

use std::sync::OnceLock;

/// User id of root.
const ROOT: u32 = 0;
/// User id to which file servers map root.
const NOBODY: u32 = 65_534;

/// Returns the effective user id of this process.
pub fn effective_uid() -> u32 {
    rustix::process::geteuid().as_raw()
}

/// Formats a user for messages. Uses the number, since looking up a name may wait for a network service.
pub fn user_name(uid: u32) -> String {
    match uid {
        ROOT => "root".to_owned(),
        uid => format!("user {uid}"),
    }
}

/// Returns whether links and folders of this user are trusted like those of the user of this process.
pub(crate) fn is_trusted(uid: u32) -> bool {
    uid == effective_uid() || uid == ROOT || is_unmapped_root(uid)
}

/// Returns whether an entry with this owner belongs to the user of this process.
pub(crate) fn is_own(owner: u32) -> bool {
    belongs_to(owner, effective_uid(), is_unmapped_root(owner))
}

/// Returns whether an entry with this owner belongs to `user`. File servers may map root to `nobody`. In a
/// container, every unmapped user has that number (`is_unmapped`).
fn belongs_to(owner: u32, user: u32, is_unmapped: bool) -> bool {
    owner == user || user == ROOT && owner == NOBODY && !is_unmapped
}

/// Returns whether root's files have this owner in a container that does not map root into its user namespace. The user
/// of a container is not an administrator, so planting links there gains nothing.
pub(crate) fn is_unmapped_root(uid: u32) -> bool {
    static UNMAPPED: OnceLock<Option<u32>> = OnceLock::new();
    *UNMAPPED.get_or_init(unmapped_uid) == Some(uid)
}

/// Returns the overflow uid in a user namespace that does not map all users; `None` elsewhere.
fn unmapped_uid() -> Option<u32> {
    if maps_all_users(&std::fs::read_to_string("/proc/self/uid_map").ok()?) {
        return None;
    }
    std::fs::read_to_string("/proc/sys/kernel/overflowuid").ok()?.trim().parse().ok()
}

/// Returns whether a `uid_map` maps every user.
fn maps_all_users(map: &str) -> bool {
    map.lines().any(|line| {
        let fields: Vec<&str> = line.split_ascii_whitespace().collect();
        fields.first() == Some(&"0") && fields.get(2).and_then(|count| count.parse().ok()) >= Some(u32::MAX)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_of_unmapped_users_are_not_own_in_a_container() {
        for (owner, user, is_unmapped, is_own) in [
            (1000, 1000, false, true),
            (1001, 1000, false, false),
            (ROOT, 1000, false, false),
            // File servers may map root's files to this owner.
            (NOBODY, ROOT, false, true),
            // In a container, root sees every unmapped user as this owner.
            (NOBODY, ROOT, true, false),
            (NOBODY, 1000, false, false),
            (NOBODY, 1000, true, false),
            (1001, ROOT, false, false),
        ] {
            assert_eq!(belongs_to(owner, user, is_unmapped), is_own, "{owner} to {user}, {is_unmapped}");
        }
    }

    #[test]
    fn a_user_namespace_that_maps_some_users_is_seen() {
        assert!(maps_all_users("         0          0 4294967295\n"));
        for map in ["", "         0       1000          1\n", "0 100000 65536\n", "1 1 4294967294\n"] {
            assert!(!maps_all_users(map), "{map}");
        }
    }
}
