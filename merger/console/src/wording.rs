//! Formats numbers and texts for messages.

use rpd_shard::record::Selection;
use std::fmt::Write;

/// Maximum number of rank ranges that are listed. Beyond it, only the number of ranks is added.
const MAX_RANK_RANGES: usize = 24;

/// Formats nanoseconds: `412 s`, `3.1 ms`, `2.0 us`.
pub fn duration(ns: i64) -> String {
    let (value, unit) = match ns.unsigned_abs() {
        0..1_000 => return format!("{ns} ns"),
        1_000..1_000_000 => (ns as f64 / 1e3, "us"),
        1_000_000..1_000_000_000 => (ns as f64 / 1e6, "ms"),
        _ => (ns as f64 / 1e9, "s"),
    };
    match value.abs() < 10.0 {
        true => format!("{value:.1} {unit}"),
        false => {
            let (sign, whole) = (if value < 0.0 { "-" } else { "" }, value.abs().round() as u64);
            format!("{sign}{} {unit}", grouped(whole))
        }
    }
}

/// Formats a number with thousands separators.
pub fn grouped(n: u64) -> String {
    let digits = n.to_string();
    let mut out = String::new();
    for (i, digit) in digits.chars().enumerate() {
        if i > 0 && (digits.len() - i).is_multiple_of(3) {
            out.push(',');
        }
        out.push(digit);
    }
    out
}

/// Formats a count with its noun: `1 jump`, `2,000 jumps`. The noun must be regular.
pub fn counted(n: u64, singular: &str) -> String {
    format!("{} {}", grouped(n), noun(n, singular))
}

/// Returns the form of a noun for a number: `jump`, `jumps`, `processes`.
pub fn noun(n: u64, singular: &str) -> String {
    let suffix = match n {
        1 => "",
        _ if singular.ends_with('s') => "es",
        _ => "s",
    };
    format!("{singular}{suffix}")
}

/// Converts a text to one line. Paths and names in the inputs may contain line breaks and terminal control
/// codes.
pub fn one_line(text: &str) -> String {
    let mut line = String::with_capacity(text.len());
    for character in text.chars() {
        match character {
            '\t' => line.push(' '),
            control if control.is_control() => {
                let _ = write!(line, "{}", control.escape_default());
            }
            other => line.push(other),
        }
    }
    line
}

/// Formats ranks like Slurm, as `0-2,5,7-8`. Of too many ranges, the first ones and the number of ranks.
pub fn rank_ranges(ranks: &[u32]) -> String {
    let all = Selection::of(ranks.iter().map(|rank| (*rank, *rank))).ranks;
    match all.get(..MAX_RANK_RANGES).filter(|_| all.len() > MAX_RANK_RANGES) {
        None => rank_list(&all),
        Some(first) => format!("{},... ({} ranks)", rank_list(first), grouped(ranks.len() as u64)),
    }
}

/// Formats ranges of ranks, given by their first and last rank, as `0-2,5`.
pub fn rank_list(ranges: &[(u32, u32)]) -> String {
    let part = |(first, last): &(u32, u32)| {
        if first == last { first.to_string() } else { format!("{first}-{last}") }
    };
    ranges.iter().map(part).collect::<Vec<_>>().join(",")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranks_are_listed_as_slurm_lists_them() {
        assert_eq!(rank_ranges(&[0, 1, 2, 5, 7, 8]), "0-2,5,7-8");
        let every_other: Vec<u32> = (0..2_000).step_by(2).collect();
        assert_eq!(rank_ranges(&every_other[..24]).split(',').count(), 24);
        let text = rank_ranges(&every_other);
        assert!(text.starts_with("0,2,4,") && text.ends_with(",46,... (1,000 ranks)"), "{text}");
    }

    #[test]
    fn a_line_has_no_control_characters() {
        assert_eq!(one_line("a\nb\r\x1b[1m\u{9b}c\té"), "a\\nb\\r\\u{1b}[1m\\u{9b}c é");
    }

    #[test]
    fn one_is_singular_and_all_else_is_not() {
        let words = [0, 1, 2, 1_000].map(|n| counted(n, "jump"));
        assert_eq!(words, ["0 jumps", "1 jump", "2 jumps", "1,000 jumps"]);
        assert_eq!([1, 3].map(|n| counted(n, "process")), ["1 process", "3 processes"]);
    }

    #[test]
    fn durations_have_two_digits_and_more_where_they_are_long() {
        let times = [0, -999, 1_000, -9_940, 12_600, 3_100_000, 412_000_000_000, 5_000_000_000_000];
        let texts = times.map(duration);
        assert_eq!(texts, ["0 ns", "-999 ns", "1.0 us", "-9.9 us", "13 us", "3.1 ms", "412 s", "5,000 s"]);
    }
}
