//! Variables that the command gets in addition to its environment.

use crate::backend::BackendPlan;
use crate::child::preload;
use crate::command_line::{CollectOptions, EventClock};
use crate::host::{machine, tick_source};
use rpd_ring::message::{
    MEMORY_VARIABLE, RING_VARIABLE, SOCKET_VARIABLE, TICKS_VARIABLE, TRACE_VARIABLE, TRACER_VARIABLE,
};
use std::ffi::OsString;

/// Returns the variables for our own library and for the profilers of the plan.
pub(crate) fn variables(
    options: &CollectOptions,
    plan: &BackendPlan,
    socket: &str,
) -> Result<Vec<(String, OsString)>, preload::PreloadError> {
    let mut variables: Vec<(String, OsString)> = plan.variables.clone();
    let mut set = |name: &str, value: OsString| variables.push((name.to_owned(), value));
    let mut preloaded = std::env::var_os("LD_PRELOAD");
    let before = preloaded.clone();
    for library in plan.preload.iter().rev() {
        preloaded = Some(preload::with_library(preloaded.as_deref(), library));
    }
    let trace = options.recorded(plan);
    if plan.native {
        set(SOCKET_VARIABLE, socket.into());
        set(TRACE_VARIABLE, trace.library_words().into());
    }
    if plan.native && !trace.library.is_empty() {
        let library = preload::library_of_this_process()?;
        preloaded = Some(preload::with_library(preloaded.as_deref(), &library));
    }
    if preloaded != before
        && let Some(preloaded) = preloaded
    {
        set("LD_PRELOAD", preloaded);
    }
    if plan.native && !trace.library.is_empty() {
        let sanitizer = std::env::var_os("ASAN_OPTIONS");
        set("ASAN_OPTIONS", preload::address_sanitizer_options(sanitizer.as_deref()));
    }
    if let Some(folder) = &plan.python {
        let mut path = folder.clone().into_os_string();
        if let Some(before) = std::env::var_os("PYTHONPATH").filter(|before| !before.is_empty()) {
            path.push(":");
            path.push(before);
        }
        set("PYTHONPATH", path);
    }
    // An empty value counts as unset. The library must not read a value that had no effect here, for example
    // because the site has locked the option.
    let ring = options.ring_size.map(|size| rpd_ring::layout::ring_bytes(size.as_usize()).to_string());
    let memory = options.ring_memory.map(|size| size.0.to_string());
    let may_have_ticks = options.clock != Some(EventClock::Boottime) && tick_source::check().is_ok();
    let ticks = may_have_ticks.then(|| machine::clock_domain().time_namespace.to_string());
    for (name, value) in
        [(RING_VARIABLE, ring), (MEMORY_VARIABLE, memory), (TICKS_VARIABLE, ticks), (TRACER_VARIABLE, None)]
    {
        if value.is_some() || std::env::var_os(name).is_some() {
            set(name, value.unwrap_or_default().into());
        }
    }
    Ok(variables)
}
