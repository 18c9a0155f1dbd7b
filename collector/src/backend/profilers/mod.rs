//! Prepares each profiler to record the command. One file per profiler.

pub(crate) mod debug_agent;
pub(crate) mod rocprof_sys;
pub(crate) mod rocprofv3;
pub(crate) mod rpd_tracer;
pub(crate) mod torch;
