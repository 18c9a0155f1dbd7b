//! Converts GPU activities to rows: kernels, fills and copies.

use crate::SOURCE;
use crate::event::{EventPlace, TraceEvent, sizes};
use crate::known::{RowError, ZERO};
use crate::number::integer;
use crate::rows::EventRows;
use crate::text::{short, unescape};
use rpd_shard::model::LocalNs;
use rpd_shard::model::row_types::{
    ArgRow, EventKey, KernelDispatchRow, MemoryCopyRow, QueueKey, StackId, StringId,
};
use serde_json::json;

/// Copies by a part of their names: RocPD name, whether the target is on the GPU, and whether the source is on the
/// GPU.
const COPIES: [(&[&str], &str, bool, bool); 6] = [
    (&["HtoD", "HostToDevice"], "MEMORY_COPY_HOST_TO_DEVICE", true, false),
    (&["DtoH", "DeviceToHost"], "MEMORY_COPY_DEVICE_TO_HOST", false, true),
    (&["DtoD", "DeviceToDevice"], "MEMORY_COPY_DEVICE_TO_DEVICE", true, true),
    (&["PtoP", "PeerToPeer"], "MEMORY_COPY_DEVICE_TO_DEVICE", true, true),
    (&["HtoH", "HostToHost"], "MEMORY_COPY_HOST_TO_HOST", false, false),
    (&["HtoA", "AtoH", "AtoA", "AtoD", "DtoA"], "MEMORY_COPY_NONE", true, true),
];

/// Returns the extdata that marks a dispatch without sizes in the file. RocPD then has size 0, because NULL is not
/// allowed.
fn no_sizes(no_grid: bool, no_workgroup: bool) -> Option<&'static str> {
    match (no_grid, no_workgroup) {
        (false, false) => None,
        (true, false) => Some(r#"{"rpd":{"no_grid":true}}"#),
        (false, true) => Some(r#"{"rpd":{"no_workgroup":true}}"#),
        (true, true) => Some(r#"{"rpd":{"no_grid":true,"no_workgroup":true}}"#),
    }
}

impl EventRows<'_> {
    /// Returns GPU and stream of a span: from its args, or else from its process and thread.
    fn on_gpu(&self, event: &TraceEvent<'_>) -> (i64, i64) {
        let number = |place: EventPlace<'_>| match place {
            EventPlace::Number(number) => Some(number),
            EventPlace::Word(word) => {
                integer(word.rsplit(|byte| *byte == b' ').find(|part| !part.is_empty())?)
            }
            EventPlace::None => None,
        };
        let gpu = event.args.device.or(number(event.pid)).unwrap_or(0);
        (gpu, event.args.stream.or(number(event.tid)).unwrap_or(0))
    }

    pub(crate) fn dispatch(
        &mut self,
        event: &TraceEvent<'_>,
        category: StringId,
        stack: Option<StackId>,
        (start, end): (LocalNs, LocalNs),
    ) -> Result<EventKey, RowError> {
        let (gpu, stream) = self.on_gpu(event);
        let thread = self.known.threads.unknown()?;
        let agent = self.known.agent(Some(gpu))?;
        let stream = self.stream(gpu, stream)?;
        let kernel = self.kernel(event.name)?;
        let region_name = self.string(b"")?;
        let key = self.event(event, category, stack, None)?;
        self.dispatches += 1;
        let ([grid_x, grid_y, grid_z], [block_x, block_y, block_z]) =
            (sizes(event.args.grid), sizes(event.args.block));
        let extdata = no_sizes(event.args.grid.is_none(), event.args.block.is_none());
        let row = KernelDispatchRow {
            tid: Some(thread),
            agent_id: agent,
            kernel_id: kernel,
            dispatch_id: self.dispatches.into(),
            queue_id: QueueKey::new(stream.get()),
            stream_id: stream,
            start,
            end,
            private_segment_size: None,
            group_segment_size: event.args.shared_memory.filter(|bytes| *bytes >= 0).map(Into::into),
            workgroup_size_x: block_x.into(),
            workgroup_size_y: block_y.into(),
            workgroup_size_z: block_z.into(),
            grid_size_x: grid_x.into(),
            grid_size_y: grid_y.into(),
            grid_size_z: grid_z.into(),
            region_name_id: Some(region_name),
            event_id: Some(key),
            extdata: extdata.map(str::as_bytes),
        };
        self.out.row(SOURCE, &row)?;
        self.collective(event, key)?;
        Ok(key)
    }

    pub(crate) fn copy(
        &mut self,
        event: &TraceEvent<'_>,
        category: StringId,
        stack: Option<StackId>,
        (start, end): (LocalNs, LocalNs),
    ) -> Result<EventKey, RowError> {
        let (gpu, stream) = self.on_gpu(event);
        let thread = self.known.threads.unknown()?;
        let name = unescape(event.name);
        let shown = String::from_utf8_lossy(short(&name));
        let known = COPIES.iter().find(|copy| copy.0.iter().any(|part| shown.contains(part)));
        let (to_gpu, from_gpu) = known.map_or((true, true), |copy| (copy.2, copy.3));
        let to = self.known.agent(to_gpu.then_some(gpu))?;
        let from = self.known.agent(from_gpu.then_some(gpu))?;
        let stream = self.stream(gpu, stream)?;
        let copy_name = self.string(known.map_or("MEMORY_COPY_NONE", |copy| copy.1).as_bytes())?;
        let region_name = self.string(b"")?;
        let key = self.event(event, category, stack, None)?;
        let bytes = event.args.bytes.filter(|bytes| *bytes >= 0);
        if bytes.is_none() {
            self.out.ignore("copies without a size, which get a size of 0 bytes,");
        }
        let extdata = json!({ "name": shown }).to_string();
        let arg = ArgRow {
            event_id: key,
            position: ZERO,
            kind: b"string",
            name: b"name",
            value: Some(shown.as_bytes()),
            extdata: None,
        };
        self.out.row(SOURCE, &arg)?;
        let row = MemoryCopyRow {
            tid: Some(thread),
            start,
            end,
            name_id: copy_name,
            dst_agent_id: Some(to),
            dst_address: None,
            src_agent_id: Some(from),
            src_address: None,
            size: bytes.unwrap_or(0).into(),
            queue_id: Some(QueueKey::new(stream.get())),
            stream_id: Some(stream),
            region_name_id: Some(region_name),
            event_id: Some(key),
            extdata: Some(extdata.as_bytes()),
        };
        self.out.row(SOURCE, &row)?;
        Ok(key)
    }
}
