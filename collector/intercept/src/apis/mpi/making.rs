//! A call that makes a communicator.

use super::pointers::Handles;
use rpd_ring::record::CommunicatorBirth;
use std::ffi::c_int;

/// A call that makes a communicator.
#[derive(Clone, Copy)]
pub(super) struct Making {
    /// Where it is to be.
    pub(super) place: Handles,
    /// Where a request is to be: until that is complete the communicator must not be looked at.
    pub(super) request: Option<Handles>,
    pub(super) birth: CommunicatorBirth,
    pub(super) tag: c_int,
}
