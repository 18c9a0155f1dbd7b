//! Reads the reason for missing clock probes from the log of a collector.

use rpd_files::open_input_folder;
use std::io::Read;
use std::path::{Path, PathBuf};

/// Maximum bytes of a log that are read; the line is near its beginning.
const MAX_LOG_BYTES: u64 = 64 << 10;
/// Beginning of the line, as documented in docs/COLLECTING.md.
const NO_PROBES: &str = "no clock probes";

/// Returns the log beside a shard if it contains the reason why its node did not measure clocks. A log that cannot be
/// read is ignored.
pub(crate) fn log_of_no_probes(shard: &Path) -> Option<PathBuf> {
    let log = shard.with_extension("log");
    // Opened safely: another user could place a link here, or a file without end.
    let file = open_input_folder(log.parent()?).ok()?.open_file(log.file_name()?).ok()?;
    let mut text = Vec::new();
    file.take(MAX_LOG_BYTES).read_to_end(&mut text).ok()?;
    String::from_utf8_lossy(&text).contains(NO_PROBES).then_some(log)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    #[test]
    fn a_log_is_told_if_it_has_the_line() {
        let folder = tempfile::tempdir().unwrap();
        let shard = folder.path().join("rank-00003.rpdshard");
        let log = folder.path().join("rank-00003.log");
        assert_eq!(log_of_no_probes(&shard), None);
        fs::write(&log, "2026-11-21T06:20:20Z warning: something else\n").unwrap();
        assert_eq!(log_of_no_probes(&shard), None);
        fs::write(&log, b"\xff\n2026-11-21T06:20:20Z note: no clock probes: no network interface is up\n")
            .unwrap();
        assert_eq!(log_of_no_probes(&shard), Some(log.clone()));
        let elsewhere = folder.path().join("elsewhere");
        fs::rename(&log, &elsewhere).unwrap();
        std::os::unix::fs::symlink(&elsewhere, &log).unwrap();
        assert_eq!(log_of_no_probes(&shard), None, "a link");
    }
}
