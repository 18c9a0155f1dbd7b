//! Logs of the ranks of `tests/workloads/truth`, moved to the clock of the machine.

use serde::Deserialize;
use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

/// The log of one rank. Times are ns of one clock that all logs share.
#[derive(Clone, Debug)]
pub struct RankLog {
    /// Rank in `MPI_COMM_WORLD`.
    pub rank: u32,
    /// Host name.
    pub host: String,
    /// Begin of `main`.
    pub start_ns: i64,
    /// After MPI_Finalize.
    pub end_ns: i64,
    /// In order.
    pub calls: Vec<LoggedCall>,
    /// In the order of their ends.
    pub ranges: Vec<LoggedRange>,
}

/// An MPI call, as the program saw it.
#[derive(Clone, Debug, Deserialize)]
pub struct LoggedCall {
    /// Its name.
    pub call: String,
    /// Time before the call.
    pub enter_ns: i64,
    /// Time after it.
    pub exit_ns: i64,
    /// Destinations of the messages that it sends.
    #[serde(default)]
    pub sends: Vec<u32>,
    /// Sources of the receives that it posts.
    #[serde(default)]
    pub posts: Vec<u32>,
    /// Sources of the messages that it completes.
    #[serde(default)]
    pub receives: Vec<u32>,
    /// Whether its send waits for the receive.
    #[serde(default)]
    pub synchronous: bool,
    /// Name of its communicator, if it is a collective.
    pub circle: Option<String>,
    /// Number of the collective on the communicator.
    #[serde(default)]
    pub number: u32,
    /// Ranks that it may wait for in the collective.
    #[serde(default)]
    pub waits_for: Vec<u32>,
}

/// A range of the program.
#[derive(Clone, Debug, Deserialize)]
pub struct LoggedRange {
    /// Its text.
    pub range: String,
    /// Number of the step; -1 outside of steps.
    pub step: i64,
    /// Time before its begin.
    pub begin_ns: i64,
    /// Time before its end.
    pub end_ns: i64,
    /// Measured length of the planted delay, with which the range ends.
    #[serde(default)]
    pub planted_ns: i64,
}

#[derive(Deserialize)]
struct Header {
    rank: u32,
    host: String,
    start_ns: i64,
    end_ns: i64,
}

/// Sums that the program itself made.
#[derive(Deserialize)]
struct LabelSum {
    label: String,
    count: u64,
    ns: i64,
    planted_ns: i64,
}

#[derive(Deserialize)]
#[serde(untagged)]
enum Line {
    Call(LoggedCall),
    Range(LoggedRange),
    Sum(LabelSum),
    Header(Header),
}

impl RankLog {
    /// Reads the logs of `ranks` ranks in a folder. `ahead_ns` has for each host name by how much its clock is ahead.
    ///
    /// # Errors
    /// If a log is missing, incomplete, or contradicts its own sums.
    pub fn read_all(
        folder: &Path,
        ranks: u32,
        ahead_ns: &BTreeMap<String, i64>,
    ) -> Result<Vec<RankLog>, String> {
        (0..ranks).map(|rank| RankLog::read(&folder.join(format!("log-{rank:05}.jsonl")), ahead_ns)).collect()
    }

    fn read(path: &Path, ahead_ns: &BTreeMap<String, i64>) -> Result<RankLog, String> {
        let text = fs::read_to_string(path).map_err(|error| format!("{}: {error}", path.display()))?;
        RankLog::parse(&text, ahead_ns).map_err(|error| format!("{}: {error}", path.display()))
    }

    fn parse(text: &str, ahead_ns: &BTreeMap<String, i64>) -> Result<RankLog, String> {
        let (mut header, mut calls, mut ranges, mut sums) = (None, Vec::new(), Vec::new(), Vec::new());
        for line in text.lines() {
            match serde_json::from_str(line).map_err(|error| format!("{error} in {line}"))? {
                Line::Call(call) => calls.push(call),
                Line::Range(range) => ranges.push(range),
                Line::Sum(sum) => sums.push(sum),
                Line::Header(line) => header = Some(line),
            }
        }
        let Header { rank, host, start_ns, end_ns } = header.ok_or("no line with the rank")?;
        let ahead = *ahead_ns.get(&host).ok_or(format!("no node is called '{host}'"))?;
        let mut log =
            RankLog { rank, host, start_ns: start_ns - ahead, end_ns: end_ns - ahead, calls, ranges };
        if sums.is_empty() || sums.iter().any(|sum| !log.has_sum(sum)) {
            return Err("the ranges are not those of its sums".to_owned());
        }
        for call in &mut log.calls {
            (call.enter_ns, call.exit_ns) = (call.enter_ns - ahead, call.exit_ns - ahead);
        }
        for range in &mut log.ranges {
            (range.begin_ns, range.end_ns) = (range.begin_ns - ahead, range.end_ns - ahead);
        }
        Ok(log)
    }

    fn has_sum(&self, sum: &LabelSum) -> bool {
        let ranges = || self.ranges.iter().filter(|range| range.range == sum.label);
        ranges().count() as u64 == sum.count
            && ranges().map(LoggedRange::length_ns).sum::<i64>() == sum.ns
            && ranges().map(|range| range.planted_ns).sum::<i64>() == sum.planted_ns
    }

    /// Time in ranges with this text, ns.
    pub fn label_ns(&self, label: &str) -> i64 {
        self.ranges.iter().filter(|range| range.range == label).map(LoggedRange::length_ns).sum()
    }

    /// All planted delays, ns.
    pub fn planted_ns(&self) -> i64 {
        self.ranges.iter().map(|range| range.planted_ns).sum()
    }
}

impl LoggedRange {
    /// Length, ns.
    pub fn length_ns(&self) -> i64 {
        self.end_ns - self.begin_ns
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LOG: &str = r#"{"rank":2,"ranks":4,"host":"n1","program":"chain","start_ns":1000,"end_ns":2000}
{"range":"setup","step":0,"begin_ns":1100,"end_ns":1300,"planted_ns":50}
{"call":"MPI_Recv","step":0,"enter_ns":1310,"exit_ns":1400,"posts":[1],"receives":[1]}
{"label":"setup","count":1,"ns":200,"planted_ns":50}
"#;

    fn parse(text: &str) -> Result<RankLog, String> {
        RankLog::parse(text, &BTreeMap::from([("n1".to_owned(), 700)]))
    }

    #[test]
    fn times_are_moved_to_the_clock_of_the_machine() {
        let log = parse(LOG).unwrap();
        assert_eq!((log.rank, log.start_ns, log.end_ns), (2, 300, 1300));
        assert_eq!((log.calls[0].enter_ns, log.ranges[0].begin_ns), (610, 400));
        assert_eq!((log.label_ns("setup"), log.planted_ns()), (200, 50));
    }

    #[test]
    fn a_log_that_was_cut_is_refused() {
        let lines: Vec<&str> = LOG.lines().collect();
        for missing in [0, 1, 3] {
            let mut rest = lines.clone();
            rest.remove(missing);
            assert!(parse(&rest.join("\n")).is_err(), "without line {missing}");
        }
        assert!(parse(&LOG[..LOG.len() - 10]).is_err());
    }
}
