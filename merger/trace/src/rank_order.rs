//! Addresses at which Perfetto's UI shows the ranks in order.
//!
//! UIs before v57 sort processes by their number of slices. Commands in the address copy the ranks to a workspace
//! instead, one after the other; v52 runs these without asking.

use super::file_note::NOTE_TRACK;
use serde_json::{Value, json};
use std::collections::BTreeSet;
use std::fmt::Write as _;

/// Address of the UI.
pub(super) const UI: &str = "https://ui.perfetto.dev";
/// Name of the workspace.
const WORKSPACE: &str = "ranks";
/// Maximum number of ranks in an address. Each takes about 100 characters, and browsers accept a million.
const MAX_RANKS: u32 = 4_096;

/// Returns the address at which the UI shows the ranks of these lists, such as `0-3,8`, in order, whichever file is opened
/// there; `None` if the ranks are unknown, too many or a single one.
pub(super) fn page_in_order<'a>(lists: impl IntoIterator<Item = &'a str>) -> Option<String> {
    startup_commands(lists).map(|commands| format!("{UI}/#!/?startupCommands={commands}"))
}

/// Returns the commands for the ranks of these lists as a part of an address, with escapes; `None` as above.
pub(super) fn startup_commands<'a>(lists: impl IntoIterator<Item = &'a str>) -> Option<String> {
    let mut ranks = BTreeSet::new();
    for list in lists.into_iter().filter(|list| !list.is_empty()) {
        ranks.extend(listed_ranks(list)?);
    }
    if !(2..=MAX_RANKS as usize).contains(&ranks.len()) {
        return None;
    }
    let copy = |pattern: String| command("dev.perfetto.CopyTracksToWorkspaceByRegex", &[&pattern, WORKSPACE]);
    let mut commands = vec![copy(format!("^{NOTE_TRACK}$"))];
    commands.extend(ranks.iter().map(|rank| copy(format!("^rank {rank} (worker )?\\("))));
    // Processes without a rank, and those with the counters of nodes, follow. The number keeps threads called node apart.
    commands.extend(["^process \\d", "^node \\S+ \\d"].map(|pattern| copy(pattern.to_owned())));
    commands.push(command("dev.perfetto.SwitchWorkspace", &[WORKSPACE]));
    Some(escape(&Value::Array(commands).to_string()))
}

fn command(id: &str, args: &[&str]) -> Value {
    json!({ "id": id, "args": args })
}

/// Returns the ranks of a list; `None` if it is not one, or lists too many.
fn listed_ranks(list: &str) -> Option<Vec<u32>> {
    let mut ranks = Vec::new();
    for range in list.split(',') {
        let (first, last) = range.trim().split_once('-').unwrap_or((range.trim(), range.trim()));
        let (first, last): (u32, u32) = (first.parse().ok()?, last.parse().ok()?);
        if last < first || last - first >= MAX_RANKS || ranks.len() > MAX_RANKS as usize {
            return None;
        }
        ranks.extend(first..=last);
    }
    (ranks.len() <= MAX_RANKS as usize).then_some(ranks)
}

/// Escapes all but letters and digits, byte by byte.
fn escape(text: &str) -> String {
    let mut escaped = String::with_capacity(2 * text.len());
    for byte in text.bytes() {
        if byte.is_ascii_alphanumeric() || matches!(byte, b'.' | b'-' | b'_') {
            escaped.push(char::from(byte));
        } else {
            let _ = write!(escaped, "%{byte:02X}");
        }
    }
    escaped
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn ranks_are_listed_in_order() {
        assert_eq!(listed_ranks("0-2, 8"), Some(vec![0, 1, 2, 8]));
        for list in ["", "3-1", "x", "0-4096", "0-4000,5000-9000", "1-"] {
            assert_eq!(listed_ranks(list), None, "{list}");
        }
        assert_eq!(listed_ranks("0-4095").map(|ranks| ranks.len()), Some(4096));
    }

    #[test]
    fn an_address_has_a_command_for_each_rank() {
        for lists in [&["3"][..], &["", ""], &["3", "3"], &["0-4000", "4000-5000"]] {
            assert_eq!(startup_commands(lists.iter().copied()), None, "{lists:?}");
        }
        let text = startup_commands(["10", "", "3"]).unwrap();
        assert_eq!(startup_commands(["10,3"]), Some(text.clone()));
        assert!(text.starts_with("%5B%7B%22"), "{text}");
        assert!(text.contains("%22%5Erank%2010%20%28worker%20%29%3F%5C%5C%28%22%2C%22ranks%22"), "{text}");
        assert!(text.find("rank%203%20").unwrap() < text.find("rank%2010%20").unwrap());
        assert!(text.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"%.-_".contains(&byte)), "{text}");
    }
}
