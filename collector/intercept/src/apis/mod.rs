//! The intercepted libraries: one file or folder each.

pub(crate) mod exits;
pub(crate) mod mpi;
pub(crate) mod rccl;
pub(crate) mod roctx;
