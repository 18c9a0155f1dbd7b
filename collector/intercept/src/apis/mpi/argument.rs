//! The kinds of arguments of MPI's functions, and how each is passed: in C, in the C functions for large
//! counts (`MPI_Send_c`), and in Fortran, where everything is passed by address.

use super::abi::{
    COMM_F2C, FORTRAN_IN_PLACE, FORTRAN_STATUS_IGNORE, FORTRAN_STATUSES_IGNORE, MESSAGE_F2C, MpiAbi,
    MpiHandle, MpiPointer, REQUEST_F2C, TYPE_F2C,
};
use super::narrow::{ArrayLength, NarrowedArguments};
use super::pointers::{AnswerPlaces, HandleArray, NumberArray, StatusPlaces};
use std::ffi::c_int;

/// A kind of arguments.
pub(super) trait ArgumentKind {
    /// Type in a C function.
    type C: Copy;
    /// Type in the C function for large counts.
    type LargeCount: Copy;
    /// Value that is read from an argument.
    type ReadValue;

    /// Reads an argument of a C function.
    fn c(value: Self::C) -> Self::ReadValue;

    /// Reads an argument of a C function for large counts.
    fn large(value: Self::LargeCount) -> Self::ReadValue;

    /// Reads an argument of a Fortran function.
    ///
    /// # Safety
    /// The address is valid for an argument of this kind, as MPI requires.
    unsafe fn fortran(place: MpiPointer) -> Self::ReadValue;

    /// Converts a large count for the C function without large counts. `None` if that is impossible.
    fn narrow(value: Self::LargeCount, narrowing: &mut NarrowedArguments) -> Option<Self::C>;

    /// Returns what MPI gets for an argument of a C function: the value, or in place of ignored statuses our
    /// own, unless their address is null.
    #[inline(always)]
    fn passed(value: Self::C, _own_statuses: MpiPointer) -> Self::C {
        value
    }

    /// The same for a C function for large counts.
    #[inline(always)]
    fn passed_large(value: Self::LargeCount, _own_statuses: MpiPointer) -> Self::LargeCount {
        value
    }

    /// The same for a Fortran function.
    #[inline(always)]
    fn passed_fortran(place: MpiPointer, _own_statuses: MpiPointer) -> MpiPointer {
        place
    }
}

/// Defines kinds that both C functions take in the same way.
macro_rules! same_in_c {
    ($($(#[$doc:meta])* $kind:ident($c:ty) -> $look:ty { $in_c:expr, $in_fortran:expr })*) => {$(
        $(#[$doc])*
        pub(super) struct $kind;

        impl ArgumentKind for $kind {
            type C = $c;
            type LargeCount = $c;
            type ReadValue = $look;

            #[inline(always)]
            fn c(value: $c) -> $look {
                let look: fn($c) -> $look = $in_c;
                look(value)
            }
            #[inline(always)]
            fn large(value: $c) -> $look {
                Self::c(value)
            }
            #[inline(always)]
            unsafe fn fortran(place: MpiPointer) -> $look {
                let look: fn(MpiPointer) -> $look = $in_fortran;
                look(place)
            }
            #[inline(always)]
            fn narrow(value: $c, _narrowing: &mut NarrowedArguments) -> Option<$c> {
                Some(value)
            }
        }
    )*};
}

same_in_c! {
    /// An address that is not followed.
    Address(MpiPointer) -> MpiPointer { |address| address, |address| address }
    /// A handle that is not inspected.
    Opaque(MpiHandle) -> () { |_| (), |_| () }
    /// A position in a file or window, which is not inspected: `MPI_Offset`, `MPI_Aint`.
    Offset(i64) -> () { |_| (), |_| () }
    /// A number.
    Int(c_int) -> c_int { |value| value, int }
    /// A buffer. Read as whether it is `MPI_IN_PLACE`.
    Buffer(MpiPointer) -> bool {
        |buffer| MpiAbi::get().is_in_place(buffer), |buffer| FORTRAN_IN_PLACE.is(buffer)
    }
    /// A datatype.
    Datatype(MpiHandle) -> MpiHandle {
        |handle| handle, |place| MpiAbi::get().c_handle(int(place), &TYPE_F2C)
    }
    /// An array of datatypes.
    Datatypes(MpiPointer) -> HandleArray { HandleArray::of_c, |address| HandleArray { address, convert: Some(&TYPE_F2C) } }
    /// A communicator.
    Comm(MpiHandle) -> MpiHandle {
        |handle| handle, |place| MpiAbi::get().c_handle(int(place), &COMM_F2C)
    }
    /// Address of a communicator, for input or output.
    CommPlace(MpiPointer) -> HandleArray { HandleArray::of_c, |address| HandleArray { address, convert: Some(&COMM_F2C) } }
    /// One or more requests, in an array.
    Requests(MpiPointer) -> HandleArray { HandleArray::of_c, |address| HandleArray { address, convert: Some(&REQUEST_F2C) } }
    /// Address of a message of a matched probe, for input or output.
    MessagePlace(MpiPointer) -> HandleArray { HandleArray::of_c, |address| HandleArray { address, convert: Some(&MESSAGE_F2C) } }
    /// Address of a number or a logical value.
    IntPlace(MpiPointer) -> AnswerPlaces { |address| AnswerPlaces { address, first: 0 }, |address| AnswerPlaces { address, first: 0 } }
    /// Address of the indices of requests. Fortran counts from 1.
    Indices(MpiPointer) -> AnswerPlaces { |address| AnswerPlaces { address, first: 0 }, |address| AnswerPlaces { address, first: 1 } }
}

/// Defines addresses of statuses, which may be ignored.
macro_rules! statuses {
    ($($(#[$doc:meta])* $kind:ident: $ignored:ident;)*) => {$(
        $(#[$doc])*
        pub(super) struct $kind;

        impl ArgumentKind for $kind {
            type C = MpiPointer;
            type LargeCount = MpiPointer;
            type ReadValue = StatusPlaces;

            #[inline(always)]
            fn c(address: MpiPointer) -> StatusPlaces {
                StatusPlaces::of_c(address)
            }
            #[inline(always)]
            fn large(address: MpiPointer) -> StatusPlaces {
                StatusPlaces::of_c(address)
            }
            #[inline(always)]
            unsafe fn fortran(place: MpiPointer) -> StatusPlaces {
                StatusPlaces::of_fortran(place, $ignored.is(place))
            }
            #[inline(always)]
            fn narrow(address: MpiPointer, _narrowing: &mut NarrowedArguments) -> Option<MpiPointer> {
                Some(address)
            }
            #[inline(always)]
            fn passed(address: MpiPointer, own_statuses: MpiPointer) -> MpiPointer {
                if own_statuses.is_null() { address } else { own_statuses }
            }
            #[inline(always)]
            fn passed_large(address: MpiPointer, own_statuses: MpiPointer) -> MpiPointer {
                Self::passed(address, own_statuses)
            }
            #[inline(always)]
            fn passed_fortran(place: MpiPointer, own_statuses: MpiPointer) -> MpiPointer {
                Self::passed(place, own_statuses)
            }
        }
    )*};
}

statuses! {
    /// Address of a status.
    Status: FORTRAN_STATUS_IGNORE;
    /// Address of statuses.
    StatusArray: FORTRAN_STATUSES_IGNORE;
}

/// Reads an INTEGER of Fortran.
fn int(place: MpiPointer) -> c_int {
    // SAFETY: MPI wants the address of an INTEGER, which is an `int`. It may be in a sequence of bytes.
    if place.is_null() { 0 } else { unsafe { place.cast::<c_int>().read_unaligned() } }
}

/// A number of elements.
pub(super) struct ElementCount;

impl ArgumentKind for ElementCount {
    type C = c_int;
    type LargeCount = i64;
    type ReadValue = i64;

    #[inline(always)]
    fn c(value: c_int) -> i64 {
        i64::from(value)
    }
    #[inline(always)]
    fn large(value: i64) -> i64 {
        value
    }
    unsafe fn fortran(place: MpiPointer) -> i64 {
        i64::from(int(place))
    }
    fn narrow(value: i64, narrowing: &mut NarrowedArguments) -> Option<c_int> {
        narrowing.number(value)
    }
}

/// Defines arrays with one number for each of some processes.
macro_rules! arrays {
    ($($(#[$doc:meta])* $kind:ident: $length:expr;)*) => {$(
        $(#[$doc])*
        pub(super) struct $kind;

        impl ArgumentKind for $kind {
            type C = *const c_int;
            type LargeCount = *const i64;
            type ReadValue = NumberArray;

            #[inline(always)]
            fn c(address: *const c_int) -> NumberArray {
                NumberArray { address: address.cast_mut().cast(), is_large: false }
            }
            #[inline(always)]
            fn large(address: *const i64) -> NumberArray {
                NumberArray { address: address.cast_mut().cast(), is_large: true }
            }
            unsafe fn fortran(place: MpiPointer) -> NumberArray {
                NumberArray { address: place, is_large: false }
            }
            fn narrow(address: *const i64, narrowing: &mut NarrowedArguments) -> Option<*const c_int> {
                narrowing.array(address, $length)
            }
        }
    )*};
}

arrays! {
    /// Counts or displacements of the data for each destination.
    SendNumbers: ArrayLength::Destinations;
    /// Counts or displacements of the data from each source.
    RecvNumbers: ArrayLength::Sources;
    /// Counts of the data for each process of the local group.
    OwnNumbers: ArrayLength::Group;
}
