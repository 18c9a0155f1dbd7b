//! Files of AMD's profilers that cannot be merged: they are not timelines, or contain less than another file of the
//! same run. They are recognised by their headers, so that the error can name the file to use instead.

use rpd_files::{open_input, read_head};
use std::io::{self, Read};
use std::path::Path;

/// Maximum bytes of a header that are examined.
const HEAD_BYTES: usize = 4096;
/// First bytes of a SQLite database, and file name extensions of databases that lack their first bytes.
pub(crate) const SQLITE: &[u8] = b"SQLite format 3\0";
const DATABASES: [&str; 4] = ["db", "rpd", "sqlite", "sqlite3"];
/// UTF-8 byte order mark, which some writers put in front of the text.
pub(crate) const BYTE_ORDER: &[u8] = b"\xef\xbb\xbf";
/// Bytes that are read per step of a search.
const SEARCH_BYTES: usize = 1 << 20;
/// JSON members that contain the environment of a process.
const ENVIRONMENTS: [&[u8]; 4] = [b"\"environment\"", b"\"environ\"", b"\"env\"", b"\"env_vars\""];
/// First bytes of files that are not examined further: gzip, zstd, xz, bzip2, zip and UTF-16 text.
const OPAQUE_MAGICS: [&[u8]; 7] =
    [b"\x1f\x8b", b"\x28\xb5\x2f\xfd", b"\xfd7zXZ", b"BZh", b"PK\x03\x04", b"\xff\xfe", b"\xfe\xff"];

/// Tables of total durations of calls and kernels.
const SUMS: &str = "is a CSV table of sums, without times; name the database of the same run, or record one with \
                    rocprofv3 -f rocpd";
const V3: &str = "is CSV of rocprofv3, which has not all that was recorded; name the database of the same run \
                  (*_results.db), or record one with rocprofv3 -f rocpd";
const OLD: &str = "is CSV of rocprof or rocprofv2, which cannot be merged; record with rocprofv3 -f rocpd";

/// Output of `rocprof-compute analyze` for the databases of its passes.
pub(crate) const ANALYSIS: &str = "is an analysis database of rocprof-compute (tables compute_*), which holds metrics and no \
                                   events; merge the databases of its passes (pmc_perf_*.db) instead";

/// Columns that identify such a file: all of them are in its first line.
const HEADERS: [(&[&str], &str); 8] = [
    (&["Name", "Calls", "TotalDurationNs"], SUMS),
    // results.csv of rocprof: kernels and counters.
    (&["Index", "KernelName"], OLD),
    // rocprofv2: kernels, counters and calls.
    (&["Dispatch_ID", "GPU_ID", "Queue_ID"], OLD),
    (&["Domain", "Function", "Start_Timestamp", "End_Timestamp", "Correlation_ID"], OLD),
    (&["Kind", "Start_Timestamp", "End_Timestamp"], V3),
    (&["Domain", "Function", "Process_Id", "Correlation_Id"], V3),
    (&["Correlation_Id", "Dispatch_Id", "Counter_Name"], V3),
    (&["Node_Id", "Logical_Node_Id", "Agent_Type"], V3),
];

/// Files that rocprof-sys writes beside its traces (metadata, functions, sums). They are JSON, and the only member is
/// named after the tool, one of its former names, or the library that writes it.
const SYS: &str = "is JSON of rocprof-sys about a run or its sums, without times; name the database of the same run \
                   (ROCPROFSYS_USE_ROCPD=ON) or perfetto-trace-*.proto";
const SYS_MEMBERS: [&str; 6] =
    ["rocprofiler-systems", "rocprofiler_systems", "rocprofsys", "rocprof-sys", "omnitrace", "timemory"];

/// Returns whether JSON starts with a member of rocprof-sys.
pub(crate) fn is_of_sys(head: &[u8]) -> bool {
    let name = head.trim_ascii_start().strip_prefix(b"{").map(<[u8]>::trim_ascii_start);
    let name = name.and_then(|rest| rest.strip_prefix(b"\"")).unwrap_or_default();
    SYS_MEMBERS
        .iter()
        .any(|known| name.strip_prefix(known.as_bytes()).is_some_and(|rest| rest.first() == Some(&b'"')))
}

/// Returns whether a file may contain the environment of a program, and thus secrets.
///
/// This is the case for a database, a file that rocprof-sys wrote about the run, JSON with such a member, and a
/// compressed file. A file that cannot be read contains nothing.
pub fn contains_environment(path: &Path) -> bool {
    let is_extension =
        |extension: &&str| path.extension().is_some_and(|found| found.eq_ignore_ascii_case(extension));
    DATABASES.iter().any(is_extension) || find_environment(path).unwrap_or(false)
}

fn find_environment(path: &Path) -> io::Result<bool> {
    let mut file = open_input(path)?;
    let mut bytes = Vec::new();
    let mut is_first = true;
    loop {
        let before = bytes.len();
        (&mut file).take(SEARCH_BYTES as u64).read_to_end(&mut bytes)?;
        if bytes.len() == before {
            return Ok(false);
        }
        let new = bytes.get(before..).unwrap_or_default();
        let may_hold = |head: &[u8]| {
            head.starts_with(SQLITE)
                || OPAQUE_MAGICS.iter().any(|begin| head.starts_with(begin))
                || is_of_sys(head.strip_prefix(BYTE_ORDER).unwrap_or(head))
        };
        if is_first && may_hold(new) {
            return Ok(true);
        }
        is_first = false;
        bytes.make_ascii_lowercase();
        if ENVIRONMENTS.iter().any(|name| bytes.windows(name.len()).any(|found| found == *name)) {
            return Ok(true);
        }
        // A name may extend across the boundary of two steps.
        let longest = ENVIRONMENTS.iter().map(|name| name.len()).max().unwrap_or(0);
        bytes.drain(..bytes.len().saturating_sub(longest));
    }
}

/// Returns whether a file of a profiler contains only sums, descriptions, or less than another file of the same
/// run. If that other file is merged, nothing is lost without this one.
pub fn holds_less(path: &Path) -> bool {
    why_refused(path).is_some()
}

/// Returns why a file cannot be merged if its first bytes identify it.
pub(crate) fn why_refused(path: &Path) -> Option<&'static str> {
    let head = read_head(path, HEAD_BYTES as u64).ok()?;
    why_refused_head(head.strip_prefix(BYTE_ORDER).unwrap_or(&head))
}

/// Returns why a file cannot be merged, by its first bytes without a byte order mark.
pub(crate) fn why_refused_head(head: &[u8]) -> Option<&'static str> {
    let head = head.get(..HEAD_BYTES).unwrap_or(head);
    if is_of_sys(head) {
        return Some(SYS);
    }
    let line = head.split(|byte| *byte == b'\n').next().unwrap_or_default();
    let line = String::from_utf8_lossy(line);
    let columns: Vec<&str> = line.split(',').map(|cell| cell.trim().trim_matches('"')).collect();
    HEADERS.iter().find(|(wanted, _)| wanted.iter().all(|name| columns.contains(name))).map(|(_, why)| *why)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Format, format_of};

    #[test]
    fn a_file_that_tells_the_environment_is_known_by_what_is_in_it() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("mine.json");
        let tells = |bytes: &[u8]| {
            std::fs::write(&path, bytes).unwrap();
            contains_environment(&path)
        };
        assert!(tells(b"{\"timemory\": {\"settings\": {}}}"));
        assert!(tells(b"\xef\xbb\xbf {\n\"rocprofiler-systems\": {}}"));
        assert!(tells(b"[{\"Environment\" : [\"A=1\"]}]"));
        assert!(!tells(b"{\"timemories\": {\"kinds\": [\"environments\", \"environment of\"]}}"));
        assert!(!tells(b"") && tells(b"SQLite format 3\0and pages"));
        assert!(tells(b"\x1f\x8b packed") && tells(b"PK\x03\x04") && tells(b"\xff\xfe{\0"));
        for place in SEARCH_BYTES - 14..SEARCH_BYTES + 2 {
            let mut bytes = vec![b' '; place];
            bytes.extend(b"\"environment\": {}");
            assert!(tells(&bytes), "{place}");
        }
        assert!(!contains_environment(&folder.path().join("not there")));
        assert!(contains_environment(Path::new("1_results.db")), "whatever is left of it");
    }

    #[test]
    fn tables_of_profilers_are_refused_with_what_to_name_instead() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("table.csv");
        let format = |text: &str| {
            std::fs::write(&path, text).unwrap();
            format_of(&path)
        };
        let v3 = "\"Kind\",\"Agent_Id\",\"Queue_Id\",\"Kernel_Name\",\"Start_Timestamp\",\"End_Timestamp\"\n";
        for (header, why) in [
            ("\"Name\",\"Calls\",\"TotalDurationNs\",\"AverageNs\",\"Percentage\"\r\n", SUMS),
            ("Index,KernelName,gpu-id,queue-id,pid,tid,grd,wgp\n0,\"k\"\n", OLD),
            ("\"Domain\",\"Function\",\"Start_Timestamp\",\"End_Timestamp\",\"Correlation_ID\"\n", OLD),
            (v3, V3),
            (
                "\"Domain\",\"Function\",\"Process_Id\",\"Thread_Id\",\"Correlation_Id\",\"Start_Timestamp\"\n",
                V3,
            ),
        ] {
            assert_eq!(format(header), Err(why), "{header}");
        }
        assert_eq!(format("metric,a\ninstance,n\ntimestamp,\n"), Ok(Format::OmnistatCsv));
        for tool in ["rocprofiler-systems", "omnitrace"] {
            for what in ["metadata", "functions"] {
                let json = format!("{{\n    \"{tool}\": {{\n \"{what}\": {{}} }} }}\n");
                assert_eq!(format(&json), Err(SYS), "{json}");
            }
        }
        assert_ne!(format("{\"omnitraces\": {}}"), Err(SYS));
        let other = format("a,b\n1,2\n").unwrap_err();
        assert!(other.starts_with("is not a shard"), "{other}");
    }
}
