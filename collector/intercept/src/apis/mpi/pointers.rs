//! Addresses that a program passes to MPI: arrays of numbers and handles, and places for statuses and answers.

use super::abi::{MpiAbi, MpiHandle, MpiPointer};
use crate::interpose::real::RealFunction;
use rpd_ring::record::RequestCompletion;
use std::ffi::c_int;

/// An array of numbers.
#[derive(Clone, Copy)]
pub(super) struct NumberArray {
    pub(super) address: MpiPointer,
    pub(super) is_large: bool,
}

impl NumberArray {
    /// Reads an element. MPI requires at least as many elements as the caller asks for.
    pub(super) fn at(self, at: usize) -> Option<i64> {
        if self.address.is_null() {
            return None;
        }
        // SAFETY: MPI wants one for every process of the communicator, and `at` is below their number.
        // Here as everywhere, MPI may read it whatever its alignment, and so do we.
        Some(unsafe {
            if self.is_large {
                self.address.cast::<i64>().add(at).read_unaligned()
            } else {
                i64::from(self.address.cast::<c_int>().add(at).read_unaligned())
            }
        })
    }
}

/// An array of handles.
#[derive(Clone, Copy)]
pub(super) struct HandleArray {
    pub(super) address: MpiPointer,
    /// Converts elements to C handles.
    pub(super) convert: Option<&'static RealFunction>,
}

impl HandleArray {
    pub(super) fn of_c(address: MpiPointer) -> HandleArray {
        HandleArray { address, convert: None }
    }

    /// Reads an element. MPI requires at least as many elements as the caller asks for.
    pub(super) fn at(self, at: usize) -> MpiHandle {
        if self.address.is_null() {
            return 0;
        }
        let abi = MpiAbi::get();
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

    /// Reads the only element.
    pub(super) fn one(self) -> MpiHandle {
        self.at(0)
    }
}

/// Address of statuses.
#[derive(Clone, Copy)]
pub(super) struct StatusPlaces {
    address: MpiPointer,
    is_wanted: bool,
    /// The program passes `MPI_STATUS_IGNORE` or `MPI_STATUSES_IGNORE`.
    pub(super) is_ignored: bool,
}

impl StatusPlaces {
    pub(super) fn of_c(address: MpiPointer) -> StatusPlaces {
        let is_ignored = MpiAbi::get().is_ignored(address);
        StatusPlaces { address, is_wanted: !address.is_null() && !is_ignored, is_ignored }
    }

    /// A null address is unwanted, but MPI may report it as an error.
    pub(super) fn of_fortran(address: MpiPointer, is_unwanted: bool) -> StatusPlaces {
        StatusPlaces { address, is_wanted: !is_unwanted, is_ignored: is_unwanted && !address.is_null() }
    }

    /// Statuses of ours.
    pub(super) fn own(address: MpiPointer) -> StatusPlaces {
        StatusPlaces { address, is_wanted: true, is_ignored: false }
    }

    /// Reads what a status contains about a message. Called only for statuses that MPI has written.
    pub(super) fn message(self, at: usize) -> Option<RequestCompletion> {
        // SAFETY: the function has returned without an error, so MPI has written this status.
        if self.is_wanted { unsafe { MpiAbi::get().message(self.address, at) } } else { None }
    }
}

/// Address of numbers.
#[derive(Clone, Copy)]
pub(super) struct AnswerPlaces {
    pub(super) address: MpiPointer,
    /// First index in the language of the program.
    pub(super) first: c_int,
}

impl AnswerPlaces {
    /// Reads the only number.
    pub(super) fn one(self) -> c_int {
        self.at(0)
    }

    /// Whether the only number is true.
    pub(super) fn is_true(self) -> bool {
        self.one() != 0
    }

    /// Reads a number as an index from 0; `None` for `MPI_UNDEFINED`.
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
