//! The line about what records what, if `--backend auto` found a GPU.

use crate::backend::{BackendPlan, GpuRecording};
use crate::command_line::CollectOptions;

/// Describes what records GPU work, what records the rest, and why. A warning if rocprofv3 is installed but
/// unusable. `None` if the user chose the backends, or the node has no GPU.
pub(crate) fn announced(options: &CollectOptions, plan: &BackendPlan) -> Option<String> {
    let described = options.recorded(plan).described();
    let native = if described.is_empty() { "nothing".to_owned() } else { described.clone() };
    Some(match plan.gpu.as_ref()? {
        GpuRecording::Profiler(device) => {
            let roctx = if plan.left_to_profiler.contains(&"roctx") { " and roctx" } else { "" };
            let rccl = if plan.left_to_profiler.contains(&"rccl") { " and RCCL" } else { "" };
            let rest =
                if described.is_empty() { String::new() } else { format!(", {described} with native") };
            format!("recording GPU work{roctx}{rccl} with rocprofv3 ({} is there){rest}", device.display())
        }
        GpuRecording::NotInstalled(why) => format!("recording {native} with native, and no GPU work: {why}"),
        GpuRecording::Unusable(why) => {
            format!("warning: recording {native} with native, and no GPU work: {why}")
        }
    })
}
