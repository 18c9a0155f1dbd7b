//! Calendar time in UTC, for names and logs.

use std::time::{SystemTime, UNIX_EPOCH};

/// A time of day with its date, to the second.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct UtcTime {
    /// Year, month and day.
    pub date: (u64, u64, u64),
    /// Hour, minute and second.
    pub time: (u64, u64, u64),
}

impl From<SystemTime> for UtcTime {
    /// Times before 1970 become 1970.
    fn from(time: SystemTime) -> UtcTime {
        let seconds = time.duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs());
        let second = seconds % 86_400;
        UtcTime { date: civil_date(seconds / 86_400), time: (second / 3600, second / 60 % 60, second % 60) }
    }
}

/// Converts days since 1970 to year, month and day (UTC). Counts years from March, so that the leap day is
/// the last day of a year and one formula fits all months.
fn civil_date(days: u64) -> (u64, u64, u64) {
    let shifted = days + 719_468;
    let era = shifted / 146_097;
    let day_of_era = shifted % 146_097;
    let year_of_era = (day_of_era - day_of_era / 1460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let month_from_march = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * month_from_march + 2) / 5 + 1;
    let month = if month_from_march < 10 { month_from_march + 3 } else { month_from_march - 9 };
    let year = year_of_era + era * 400 + u64::from(month <= 2);
    (year, month, day)
}
