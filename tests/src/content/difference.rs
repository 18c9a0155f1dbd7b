use super::canonical::DatabaseContent;
use std::collections::BTreeMap;
use std::fmt::Write as _;

/// Most lines per table.
const MOST_LINES: usize = 6;

/// What only one of two contents has, as text for a failed test; empty where they are the same.
pub fn differences(expected: &DatabaseContent, actual: &DatabaseContent) -> String {
    let mut out = String::new();
    let none = Vec::new();
    let tables: std::collections::BTreeSet<_> = expected.keys().chain(actual.keys()).collect();
    for table in tables {
        let (wanted, found) = (expected.get(table).unwrap_or(&none), actual.get(table).unwrap_or(&none));
        if wanted == found {
            continue;
        }
        let _ = writeln!(out, "{table}: {} rows expected, {} found", wanted.len(), found.len());
        let mut balance: BTreeMap<&str, i64> = BTreeMap::new();
        wanted.iter().for_each(|row| *balance.entry(row).or_default() += 1);
        found.iter().for_each(|row| *balance.entry(row).or_default() -= 1);
        for (sign, word) in [(1, "missing"), (-1, "too much")] {
            let lines = balance.iter().filter(|(_, count)| count.signum() == sign);
            let of_these = lines.clone().count();
            for (row, count) in lines.take(MOST_LINES) {
                let _ = writeln!(out, "  {word} ({}x): {row}", count.abs());
            }
            if of_these > MOST_LINES {
                let _ = writeln!(out, "  {word}: {} more", of_these - MOST_LINES);
            }
        }
    }
    out
}
