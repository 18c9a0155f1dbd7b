//! One profiler each: what it needs to record the command, as its documents say.

pub(crate) mod debug_agent;
pub(crate) mod rocprof_sys;
pub(crate) mod rocprofv3;
pub(crate) mod rpd_tracer;
pub(crate) mod torch;
