//! Imports the dump of the ROCm Debug Agent, which describes a kernel that faulted.

use super::profiler_harvest::{MAX_TEXT_BYTES, ProfilerHarvest};
use crate::backend::profiler_files::files_in;
use crate::backend::profilers::debug_agent::{self, DUMP, KernelFault};
use crate::host::bounded_read::read_at_most;
use crate::log::warn;
use rpd_shard::ShardWriter;
use rpd_shard::file::WriteError;
use rpd_shard::model::{LocalNs, row_types};
use rpd_shard::record::Process;
use std::io::{self, BufWriter, Write};
use std::path::Path;

impl ProfilerHarvest<'_> {
    /// Imports the dump if a kernel faulted: as a file beside the shards, with its code objects, and as a
    /// mark at the end of the rank's time.
    pub(super) fn import_fault(&mut self, folder: &Path) {
        let path = folder.join(DUMP);
        let text = read_at_most(&path, MAX_TEXT_BYTES);
        if !text.is_empty() {
            self.keep_as("debug-agent", "txt", &path);
        }
        let Some(fault) = debug_agent::fault_in(&text) else { return };
        let (objects, more) = files_in(&folder.join(debug_agent::CODE_OBJECTS));
        self.lost |= more;
        for (number, object) in objects.iter().enumerate() {
            self.keep_as(&format!("code-object-{}", number + 1), "co", object);
        }
        let from = fault.code_object.as_deref().map_or(String::new(), |uri| format!(", code object {uri}"));
        let reason = fault.reason.as_deref().map_or(String::new(), |reason| format!(" ({reason})"));
        warn(format_args!(
            "warning: kernel {} faulted{from}{reason}; see rank-*.debug-agent.txt",
            fault.kernel
        ));
        if let Err(error) = self.record_fault(&fault) {
            warn(format_args!("warning: the fault is not in a shard: {error}"));
        }
    }

    /// Writes a mark at the end of the rank's time.
    fn record_fault(&self, fault: &KernelFault) -> Result<(), WriteError> {
        let (file, _) =
            self.target.place.create_beside("debug-agent", "rpdshard").map_err(io::Error::other)?;
        let mut shard = ShardWriter::of_owner(BufWriter::new(file), &self.owner())?;
        let process = Process { source: 1, ..self.rank_process.clone() };
        shard.process(&process)?;
        let row = row_types::ThreadRow {
            ppid: Some(i64::from(process.ppid).into()),
            tid: i64::from(process.pid).into(),
            name: Some(b"ROCm Debug Agent"),
            start: None,
            end: None,
            extdata: None,
        };
        let thread = shard.push_row(1, &row)?;
        let code_object = fault.code_object.as_deref().unwrap_or("unknown code object");
        let text =
            shard.string(format!("GPU fault in kernel {} of {code_object}", fault.kernel).as_bytes())?;
        let mark = row_types::MarkRow {
            tid: thread,
            timestamp: LocalNs(process.last_seen.unwrap_or(process.first_seen)),
            name_id: row_types::StringId(text),
            stack_id: Some(row_types::StackId::NONE),
            parent_stack_id: None,
        };
        shard.push_row(1, &mark)?;
        shard.finish()?.flush()?;
        Ok(())
    }
}
