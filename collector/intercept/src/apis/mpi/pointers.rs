//! Addresses that a program passes to MPI: arrays of numbers and handles, and places for statuses and answers.

use super::abi::{Abi, Handle, Message, Ptr};
use crate::interpose::real::RealFunction;
use std::ffi::c_int;

/// An array of numbers.
#[derive(Clone, Copy)]
pub(super) struct Numbers {
    pub(super) address: Ptr,
    pub(super) large: bool,
}

impl Numbers {
    /// One of them. MPI wants at least as many as the caller asks for.
    pub(super) fn at(self, at: usize) -> Option<i64> {
        if self.address.is_null() {
            return None;
        }
        // SAFETY: MPI wants one for every process of the communicator, and `at` is below their number.
        // Here as everywhere, MPI may read it whatever its alignment, and so do we.
        Some(unsafe {
            if self.large {
                self.address.cast::<i64>().add(at).read_unaligned()
            } else {
                i64::from(self.address.cast::<c_int>().add(at).read_unaligned())
            }
        })
    }
}

/// An array of handles.
#[derive(Clone, Copy)]
pub(super) struct Handles {
    pub(super) address: Ptr,
    /// Makes C handles of what is there.
    pub(super) convert: Option<&'static RealFunction>,
}

impl Handles {
    pub(super) fn of_c(address: Ptr) -> Handles {
        Handles { address, convert: None }
    }

    /// One of them. MPI wants at least as many as the caller asks for.
    pub(super) fn at(self, at: usize) -> Handle {
        if self.address.is_null() {
            return 0;
        }
        let abi = Abi::get();
        match self.convert {
            // SAFETY: the array has that many elements, or is the place of a handle that MPI has written.
            None => unsafe { abi.handle_at(self.address, at) },
            Some(convert) => {
                // SAFETY: the same, of Fortran's INTEGERs.
                let handle = unsafe { self.address.cast::<c_int>().add(at).read_unaligned() };
                abi.c_handle(handle, convert)
            }
        }
    }

    /// The only one.
    pub(super) fn one(self) -> Handle {
        self.at(0)
    }
}

/// Where statuses are to be.
#[derive(Clone, Copy)]
pub(super) struct Statuses {
    pub(super) address: Ptr,
    pub(super) wanted: bool,
}

impl Statuses {
    pub(super) fn of_c(address: Ptr) -> Statuses {
        Statuses { address, wanted: !address.is_null() && !Abi::get().is_ignored(address) }
    }

    /// What one of them says of a message. Asked only for those that MPI has written.
    pub(super) fn message(self, at: usize) -> Option<Message> {
        // SAFETY: the function has returned without an error, so MPI has written this status.
        if self.wanted { unsafe { Abi::get().message(self.address, at) } } else { None }
    }
}

/// Where numbers are to be.
#[derive(Clone, Copy)]
pub(super) struct Answers {
    pub(super) address: Ptr,
    /// How the program's language counts.
    pub(super) first: c_int,
}

impl Answers {
    /// The only one.
    pub(super) fn one(self) -> c_int {
        self.at(0)
    }

    /// Whether the only one is true.
    pub(super) fn is_true(self) -> bool {
        self.one() != 0
    }

    /// One of them as an index from 0; none for `MPI_UNDEFINED`.
    pub(super) fn index(self, at: usize) -> Option<usize> {
        usize::try_from(self.at(at).checked_sub(self.first)?).ok()
    }

    fn at(self, at: usize) -> c_int {
        if self.address.is_null() {
            return 0;
        }
        // SAFETY: the function has returned without an error, so MPI has written this many.
        unsafe { self.address.cast::<c_int>().add(at).read_unaligned() }
    }
}
