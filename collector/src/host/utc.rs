use jiff::civil::DateTime;
use jiff::{Timestamp, tz::Offset};
use std::time::SystemTime;

/// Converts a time to date and time of day in UTC. Times before 1970 become 1970.
pub(crate) fn utc_date_time(time: SystemTime) -> DateTime {
    let timestamp = Timestamp::try_from(time).unwrap_or(Timestamp::UNIX_EPOCH);
    Offset::UTC.to_datetime(timestamp.max(Timestamp::UNIX_EPOCH))
}
