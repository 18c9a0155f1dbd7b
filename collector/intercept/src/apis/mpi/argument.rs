//! The kinds of arguments that MPI's functions have, and how each is passed: in C, in the C functions
//! for large counts (`MPI_Send_c`), and in Fortran, where everything is passed by address.

use super::abi::{
    Abi, COMM_F2C, FORTRAN_IN_PLACE, FORTRAN_STATUS_IGNORE, FORTRAN_STATUSES_IGNORE, Handle, Message, Ptr,
    REQUEST_F2C, TYPE_F2C,
};
use super::narrow::{Length, Narrowing};
use crate::interpose::real::RealFunction;
use std::ffi::c_int;

/// A kind of arguments.
pub(super) trait Kind {
    /// How a C function takes it.
    type C: Copy;
    /// How the C function for large counts takes it.
    type Large: Copy;
    /// What we see in it.
    type Look;

    /// Looks at one of a C function.
    fn c(value: Self::C) -> Self::Look;

    /// Looks at one of a C function for large counts.
    fn large(value: Self::Large) -> Self::Look;

    /// Looks at one of a Fortran function.
    ///
    /// # Safety
    /// The address is what MPI wants for an argument of this kind.
    unsafe fn fortran(place: Ptr) -> Self::Look;

    /// From a large count to what the C function without large counts takes; none if that cannot be.
    fn narrow(value: Self::Large, narrowing: &mut Narrowing) -> Option<Self::C>;
}

/// Kinds that both C functions take in the same way.
macro_rules! same_in_c {
    ($($(#[$doc:meta])* $kind:ident($c:ty) -> $look:ty { $in_c:expr, $in_fortran:expr })*) => {$(
        $(#[$doc])*
        pub(super) struct $kind;

        impl Kind for $kind {
            type C = $c;
            type Large = $c;
            type Look = $look;

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
            unsafe fn fortran(place: Ptr) -> $look {
                let look: fn(Ptr) -> $look = $in_fortran;
                look(place)
            }
            #[inline(always)]
            fn narrow(value: $c, _narrowing: &mut Narrowing) -> Option<$c> {
                Some(value)
            }
        }
    )*};
}

same_in_c! {
    /// An address that we do not look behind.
    Address(Ptr) -> Ptr { |address| address, |address| address }
    /// A handle that we do not look at.
    Opaque(Handle) -> () { |_| (), |_| () }
    /// A place in a file or window, which we do not look at: `MPI_Offset`, `MPI_Aint`.
    Offset(i64) -> () { |_| (), |_| () }
    /// A number.
    Int(c_int) -> c_int { |value| value, int }
    /// A buffer: whether it is `MPI_IN_PLACE`.
    Buffer(Ptr) -> bool {
        |buffer| Abi::get().is_in_place(buffer), |buffer| FORTRAN_IN_PLACE.is(buffer)
    }
    /// A datatype.
    Datatype(Handle) -> Handle {
        |handle| handle, |place| Abi::get().c_handle(int(place), &TYPE_F2C)
    }
    /// An array of datatypes.
    Datatypes(Ptr) -> Handles { Handles::of_c, |address| Handles { address, convert: Some(&TYPE_F2C) } }
    /// A communicator.
    Comm(Handle) -> Handle {
        |handle| handle, |place| Abi::get().c_handle(int(place), &COMM_F2C)
    }
    /// Where a communicator is, or is to be.
    CommPlace(Ptr) -> Handles { Handles::of_c, |address| Handles { address, convert: Some(&COMM_F2C) } }
    /// One or more requests, in an array.
    Requests(Ptr) -> Handles { Handles::of_c, |address| Handles { address, convert: Some(&REQUEST_F2C) } }
    /// Where a status is to be.
    Status(Ptr) -> Statuses {
        Statuses::of_c, |address| Statuses { address, wanted: !FORTRAN_STATUS_IGNORE.is(address) }
    }
    /// Where statuses are to be.
    StatusArray(Ptr) -> Statuses {
        Statuses::of_c, |address| Statuses { address, wanted: !FORTRAN_STATUSES_IGNORE.is(address) }
    }
    /// Where a number, or a logical value, is to be.
    IntPlace(Ptr) -> Answers { |address| Answers { address, first: 0 }, |address| Answers { address, first: 0 } }
    /// Where the indices of requests are to be: Fortran counts from 1.
    Indices(Ptr) -> Answers { |address| Answers { address, first: 0 }, |address| Answers { address, first: 1 } }
}

/// A number of Fortran.
fn int(place: Ptr) -> c_int {
    // SAFETY: MPI wants the address of an INTEGER, which is an `int`. It may be in a sequence of bytes.
    if place.is_null() { 0 } else { unsafe { place.cast::<c_int>().read_unaligned() } }
}

/// A number of elements.
pub(super) struct Count;

impl Kind for Count {
    type C = c_int;
    type Large = i64;
    type Look = i64;

    #[inline(always)]
    fn c(value: c_int) -> i64 {
        i64::from(value)
    }
    #[inline(always)]
    fn large(value: i64) -> i64 {
        value
    }
    unsafe fn fortran(place: Ptr) -> i64 {
        i64::from(int(place))
    }
    fn narrow(value: i64, narrowing: &mut Narrowing) -> Option<c_int> {
        narrowing.number(value)
    }
}

/// Arrays with one number for each of some processes.
macro_rules! arrays {
    ($($(#[$doc:meta])* $kind:ident: $length:expr;)*) => {$(
        $(#[$doc])*
        pub(super) struct $kind;

        impl Kind for $kind {
            type C = *const c_int;
            type Large = *const i64;
            type Look = Numbers;

            #[inline(always)]
            fn c(address: *const c_int) -> Numbers {
                Numbers { address: address.cast_mut().cast(), large: false }
            }
            #[inline(always)]
            fn large(address: *const i64) -> Numbers {
                Numbers { address: address.cast_mut().cast(), large: true }
            }
            unsafe fn fortran(place: Ptr) -> Numbers {
                Numbers { address: place, large: false }
            }
            fn narrow(address: *const i64, narrowing: &mut Narrowing) -> Option<*const c_int> {
                narrowing.array(address, $length)
            }
        }
    )*};
}

arrays! {
    /// Counts or displacements of what is sent to each process.
    SendNumbers: Length::Destinations;
    /// Counts or displacements of what is received from each process.
    RecvNumbers: Length::Sources;
    /// What each process of this side gets.
    OwnNumbers: Length::Group;
}

/// An array of numbers.
#[derive(Clone, Copy)]
pub(super) struct Numbers {
    address: Ptr,
    large: bool,
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
    address: Ptr,
    /// Makes C handles of what is there.
    convert: Option<&'static RealFunction>,
}

impl Handles {
    fn of_c(address: Ptr) -> Handles {
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
    address: Ptr,
    wanted: bool,
}

impl Statuses {
    fn of_c(address: Ptr) -> Statuses {
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
    address: Ptr,
    /// How the program's language counts.
    first: c_int,
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
