//! Status of a merge: a small JSON file in the folder of the run.

use crate::input::listing::find::InputListing;
use rpd_files::{HeldFolder, effective_uid, entry_stat};
use rpd_output_file::OutputShare;
use serde::{Deserialize, Serialize};
use std::io::{self, Read, Write};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

/// Maximum bytes of a status file.
const MAX_STATUS_BYTES: u64 = 64 << 10;
/// Maximum bytes of a reason.
const MAX_REASON_BYTES: usize = 4096;

/// State of a merge.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum MergeState {
    /// The merge is running, or was killed: see `until`.
    Merging,
    /// The output contains everything that was recorded.
    Done,
    /// The output is correct, but a part of the run is missing.
    Partial,
    /// There is no new output.
    Failed,
}

/// Status of a merge.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub(crate) struct MergeStatus {
    /// State of the merge.
    pub state: MergeState,
    /// Reason, in one line.
    pub why: String,
    /// The database, or the folder of traces.
    pub output: Option<PathBuf>,
    /// Summary of the inputs.
    pub inputs: InputSummary,
    /// Start of the merge, seconds since 1970.
    pub begun: u64,
    /// End of the lease, seconds since 1970. A merge that has not ended by then was killed.
    pub until: u64,
    /// End of the merge, seconds since 1970.
    pub ended: Option<u64>,
    /// Version of rpd-merge.
    pub version: String,
    /// Hash that distinguishes merges with different options.
    #[serde(default)]
    pub options: String,
    /// Users that may read the status file.
    #[serde(skip)]
    share: OutputShare,
}

/// Summary of a merge's inputs, sufficient to detect whether they changed.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub(crate) struct InputSummary {
    /// Number of files.
    pub files: u64,
    /// Total bytes.
    pub bytes: u64,
    /// Latest modification time, nanoseconds since 1970.
    pub newest: u64,
}

impl InputSummary {
    /// Summarises the inputs that were found.
    pub(super) fn of_files(found: &InputListing) -> InputSummary {
        InputSummary::of(found.files.iter().map(|listed| listed.path.as_path()))
    }

    /// Summarises files. A file that does not exist anymore counts as empty.
    fn of<'a>(files: impl Iterator<Item = &'a Path>) -> InputSummary {
        let mut inputs = InputSummary::default();
        for path in files {
            inputs.files += 1;
            let Ok(found) = entry_stat(path) else { continue };
            let written = found.modified.duration_since(UNIX_EPOCH).ok();
            inputs.bytes += found.length;
            inputs.newest = inputs.newest.max(written.map_or(0, |time| time.as_nanos() as u64));
        }
        inputs
    }
}

impl MergeStatus {
    /// Returns the status of a merge that starts.
    pub(super) fn begin(
        inputs: InputSummary,
        options: String,
        until: u64,
        share: OutputShare,
    ) -> MergeStatus {
        MergeStatus {
            state: MergeState::Merging,
            why: "it has not ended: if the time is past `until`, it was killed, and can be begun again"
                .to_owned(),
            output: None,
            inputs,
            begun: now(),
            until,
            ended: None,
            version: env!("CARGO_PKG_VERSION").to_owned(),
            options,
            share,
        }
    }

    pub(super) fn end(&mut self, state: MergeState, why: &str, output: Option<&Path>) {
        let line = why.lines().next().unwrap_or_default();
        let mut length = line.len().min(MAX_REASON_BYTES);
        while !line.is_char_boundary(length) {
            length -= 1;
        }
        (self.state, self.why, self.ended) = (state, line[..length].to_owned(), Some(now()));
        self.output = output.map(Path::to_owned);
    }

    /// Returns the output, if it was made from these inputs with these options, and still exists.
    pub(super) fn into_output(self, inputs: &InputSummary, options: &str) -> Option<PathBuf> {
        let is_made = matches!(self.state, MergeState::Done | MergeState::Partial)
            && self.inputs == *inputs
            && self.options == options;
        self.output.filter(|output| is_made && output.exists())
    }

    /// Replaces the previous status file atomically.
    pub(super) fn write(&self, place: &StatusPlace) -> io::Result<()> {
        let StatusPlace { folder, name } = place;
        let draft = format!(".{name}.{}", std::process::id());
        // A killed process with this pid may have left a draft; this removes a planted link or FIFO as well.
        let _ = folder.remove(&draft);
        let written = || {
            let mut file = folder.create(&draft, 0o600)?;
            self.share.open_file(&file, &place.path());
            file.write_all((serde_json::to_string_pretty(self)? + "\n").as_bytes())?;
            folder.rename(&draft, name)
        };
        written().inspect_err(|_| drop(folder.remove(&draft)))
    }
}

/// Returns the name of the status file; traces have a separate one.
pub(super) fn name(is_trace: bool) -> &'static str {
    if is_trace { "trace.status" } else { "merge.status" }
}

/// Location of a status file.
#[derive(Clone, Debug)]
pub(super) struct StatusPlace {
    pub(super) folder: Arc<HeldFolder>,
    pub(super) name: String,
}

impl StatusPlace {
    /// Returns the path, for messages.
    pub(super) fn path(&self) -> PathBuf {
        self.folder.path().join(&self.name)
    }

    /// Returns the last status, if it can be read.
    pub(super) fn read(&self) -> Option<MergeStatus> {
        let mut text = String::new();
        let file = self.folder.open_file(&self.name).ok()?;
        // A status of another user must not suppress the merge.
        file.metadata().ok().filter(|found| found.uid() == effective_uid())?;
        file.take(MAX_STATUS_BYTES).read_to_string(&mut text).ok()?;
        serde_json::from_str(&text).ok()
    }
}

/// Returns the current time, seconds since 1970.
pub(super) fn now() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    #[test]
    fn a_status_counts_while_its_inputs_and_its_output_are_there() {
        let folder = tempfile::tempdir().unwrap();
        let place = |name: &str| folder.path().join(name);
        let (shard, output) = (place("rank-00000.rpdshard"), place("trace.db"));
        let opened = Arc::new(HeldFolder::open(folder.path()).unwrap());
        let path = StatusPlace { folder: opened, name: name(false).to_owned() };
        fs::write(&shard, "one").unwrap();
        fs::write(&output, "").unwrap();
        let inputs = || InputSummary::of([shard.as_path()].into_iter());
        let mut status = MergeStatus::begin(inputs(), "a".to_owned(), now(), OutputShare::User);
        status.write(&path).unwrap();
        assert_eq!(path.read().unwrap().into_output(&inputs(), "a"), None, "it runs");
        status.end(
            MergeState::Partial,
            &format!("rank 1 is missing{}\nnot this", "é".repeat(4000)),
            Some(&output),
        );
        status.write(&path).unwrap();
        let back = path.read().unwrap();
        assert_eq!(back, status);
        assert!(back.why.len() <= MAX_REASON_BYTES);
        assert_eq!(back.clone().into_output(&inputs(), "a"), Some(output.clone()));
        fs::write(&shard, "more").unwrap();
        assert_eq!(back.clone().into_output(&inputs(), "a"), None, "a shard has grown");
        fs::write(&shard, "one").unwrap();
        assert_eq!(back.clone().into_output(&inputs(), "a"), None, "a shard was written again");
        let mut again = back;
        again.inputs = inputs();
        fs::remove_file(&output).unwrap();
        assert_eq!(again.into_output(&inputs(), "a"), None, "the output is gone");
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 2, "nothing is left");
    }
}
