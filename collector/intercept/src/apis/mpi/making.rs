//! Data of a call that creates a communicator.

use super::pointers::HandleArray;
use rpd_ring::record::CommunicatorBirth;
use std::ffi::c_int;

/// A call that creates a communicator.
#[derive(Clone, Copy)]
pub(super) struct CommunicatorCreation {
    /// Address of the new communicator.
    pub(super) place: HandleArray,
    /// Address of a request. The communicator must not be used before the request is complete.
    pub(super) request: Option<HandleArray>,
    pub(super) birth: CommunicatorBirth,
    pub(super) tag: c_int,
}
