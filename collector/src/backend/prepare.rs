//! Prepares the chosen profilers.

use super::choice::{BackendKind, ResolvedBackends};
use super::profilers::{debug_agent, rocprof_sys, rocprofv3, rpd_tracer, torch};
use super::request::{BackendPlan, BackendRequest, GpuRecording, HarvestRequest, UnavailableBackend};
use super::rocm_tools;
use super::scratch::ScratchFolder;

/// Finds and prepares the profilers. Notes what is missing; the command then runs without it. `rank` names
/// the folder on the node. A rank that is not recorded gets no profiler.
pub(crate) fn plan(request: &BackendRequest<'_>, rank: &str, is_recorded: bool) -> BackendPlan {
    let ResolvedBackends { backends: chosen, reason, gpu } = request.choice.resolve(request.library);
    let mut plan = BackendPlan { nothing: chosen.is_empty() && request.named, ..BackendPlan::default() };
    plan.native = chosen.contains(&BackendKind::Native);
    plan.gpu = gpu.map(|device| match chosen.contains(&BackendKind::Rocprofv3) {
        true => GpuRecording::Profiler(device),
        false => GpuRecording::NotInstalled(format!(
            "{} is there, and no rocprofv3 in {}",
            device.display(),
            rocm_tools::PLACES
        )),
    });
    // Without `--backend`, only unusual things are reported.
    plan.notes.extend(reason.filter(|_| request.named && plan.gpu.is_none()));
    let others: Vec<BackendKind> =
        chosen.iter().copied().filter(|backend| *backend != BackendKind::Native).collect();
    if request.library && !plan.native {
        plan.note(
            "warning: --trace selects what native records, which was not chosen; add native to --backend",
        );
    }
    if !request.arguments.is_empty() && others.is_empty() {
        plan.note(
            "warning: --backend-arg is for rocprofv3, rocprof-sys, rpd-tracer and torch: it has no effect",
        );
    }
    if request.config.is_some() && !others.iter().any(|backend| backend.starts_command()) {
        plan.note("warning: --backend-config is for rocprofv3 and rocprof-sys: it has no effect");
    }
    if others.is_empty() && !request.debug_agent || !is_recorded {
        return plan;
    }
    let scratch = match ScratchFolder::make(request.scratch, rank) {
        Ok(scratch) => scratch,
        Err(error) => {
            plan.refuse(UnavailableBackend(format!(
                "no folder for the files of a profiler in {}: {error}; the command runs without one; choose another \
                 with --scratch",
                request.scratch.display()
            )));
            return plan;
        }
    };
    let mut used = Vec::new();
    for backend in others {
        let prepared = scratch
            .folder(backend.name())
            .map_err(|error| UnavailableBackend(error.to_string()))
            .and_then(|folder| match backend {
                BackendKind::Native => Ok(()),
                BackendKind::Rocprofv3 => rocprofv3::prepare(request, &folder, &mut plan),
                BackendKind::RocprofSys => rocprof_sys::prepare(request, &folder, &mut plan),
                BackendKind::RpdTracer => rpd_tracer::prepare(request, &folder, &mut plan),
                BackendKind::Torch => torch::prepare(request, &folder, &mut plan),
            });
        match prepared {
            Ok(()) => {
                plan.ends_early |= backend.starts_command();
                used.push(backend);
            }
            Err(why) => plan.refuse(why),
        }
    }
    let mut agent = false;
    if request.debug_agent {
        match debug_agent::prepare(scratch.path(), &mut plan) {
            Ok(()) => agent = true,
            Err(why) => plan.note(format!("warning: {}", why.0)),
        }
    }
    if used.is_empty() && !agent {
        scratch.remove();
        return plan;
    }
    plan.harvest = Some(HarvestRequest {
        scratch: scratch.path().to_owned().into(),
        backends: used,
        debug_agent: agent,
        keep: request.keep,
        wait_seconds: request.wait.as_secs(),
    });
    plan.scratch = Some(scratch);
    plan
}
