//! A call that makes a communicator.

use super::pointers::HandleArray;
use rpd_ring::record::CommunicatorBirth;
use std::ffi::c_int;

/// A call that makes a communicator.
#[derive(Clone, Copy)]
pub(super) struct CommunicatorCreation {
    /// Where it is to be.
    pub(super) place: HandleArray,
    /// Where a request is to be: until that is complete the communicator must not be looked at.
    pub(super) request: Option<HandleArray>,
    pub(super) birth: CommunicatorBirth,
    pub(super) tag: c_int,
}
