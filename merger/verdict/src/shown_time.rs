//! Formats times with as many digits as figures need.

use rpd_console::wording::grouped;

/// Formats a time with four digits: `12.34 ms`.
pub fn shown_time(ns: i64) -> String {
    let units = [(1e9, "s"), (1e6, "ms"), (1e3, "us")];
    let length = ns.unsigned_abs() as f64;
    // A time that is rounded up to 1000 is shown in the next unit.
    match units.into_iter().find(|(unit, _)| length >= unit * 0.99995) {
        None => format!("{ns} ns"),
        Some((unit, name)) => {
            let value = ns as f64 / unit;
            let whole = value.abs();
            let decimals = if whole < 9.9995 {
                3
            } else if whole < 99.995 {
                2
            } else {
                usize::from(whole < 999.95)
            };
            if whole < 9_999.5 {
                format!("{value:.decimals$} {name}")
            } else {
                let sign = if value < 0.0 { "-" } else { "" };
                format!("{sign}{} {name}", grouped(whole.round() as u64))
            }
        }
    }
}

/// Formats a ratio, with a decimal below 10 %.
pub(crate) fn percent(ratio: f64) -> String {
    if ratio.abs() < 0.095 { format!("{:.1} %", ratio * 100.0) } else { format!("{:.0} %", ratio * 100.0) }
}

/// Formats the error of a share in percentage points: `+- 3.2 points`.
pub(crate) fn points(error: f64) -> String {
    if error < 0.095 {
        format!("+- {:.1} points", error * 100.0)
    } else {
        format!("+- {:.0} points", error * 100.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_have_four_digits_and_a_unit() {
        let times = [0, 999, -1_000, 1_234, 12_345, 999_999, 123_456_789, 9_999_960_000, 412_600_000_000];
        let texts = times.map(shown_time);
        let wanted = [
            "0 ns",
            "999 ns",
            "-1.000 us",
            "1.234 us",
            "12.35 us",
            "1.000 ms",
            "123.5 ms",
            "10.00 s",
            "412.6 s",
        ];
        assert_eq!(texts, wanted);
        assert_eq!(shown_time(12_345_000_000_000), "12,345 s");
    }
}
