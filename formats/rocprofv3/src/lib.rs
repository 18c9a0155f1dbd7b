//! The JSON of rocprofv3 in ROCm 6.
