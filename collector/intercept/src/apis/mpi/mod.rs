//! MPI in C and Fortran: exports, records and passes on every function of [`rpd_ring::mpi::MpiFunction`].
//!
//! # What is recorded, besides the times
//!
//! * communicator: `MPI_COMM_WORLD` and `MPI_COMM_SELF` as such, others by handle; none for a call on a
//!   request or on a matched message;
//! * peer: destination or source; none for `MPI_ANY_SOURCE`, -1 for `MPI_PROC_NULL`;
//! * root: none for the special roots of intercommunicators; tag: none for `MPI_ANY_TAG`;
//! * source, receive tag and room of what `MPI_Sendrecv` receives, beside the peer, tag and bytes that it sends;
//! * bytes: the data that this rank sends, or the size of its receive buffer. Alltoall and the vector forms
//!   sum over all partners, scatter has the share of this rank, neighbour collectives the share of one
//!   neighbour, their vector forms nothing. The number comes from the arguments, so the completion of a
//!   receive does not change it;
//! * seq: ordinal of the call on its communicator, see [`crate::interpose::sequence`]: calls that fail count
//!   as well. Calls that all ranks of the communicator make are counted separately from the others;
//! * requests: their start and their completion, and the creation of persistent ones. Source, tag and bytes of a message are recorded if the
//!   program requested a status, or may receive from any source or with any tag ([`own_statuses`]). Nothing
//!   is recorded of a call that fails, although it may have completed some requests;
//! * communicators: their creation, and how they were created, so that their ranks agree on a name; their
//!   neighbours, their names and their end.
//!
//! # The forms of a function
//!
//! A description lists the function's arguments with their kinds ([`argument`]). The macros make from it
//! * `MPI_Send`, for C;
//! * `MPI_Send_c`, with large counts. If the MPI library lacks it, the form uses `MPI_Send` ([`narrow`]);
//! * `mpi_send_`, for Fortran's `mpif.h` and `use mpi`; and `mpi_send_f08_`, for `use mpi_f08`. For functions
//!   with a buffer MPICH uses `mpi_send_f08ts_` there, which calls the C function.
//!
//! MPI libraries call their own functions: Fortran functions call C ones, collectives send messages. Only the
//! outermost call is recorded, which is the program's.

mod abi;
mod argument;
mod call;
mod collectives;
mod communicators;
mod files;
mod narrow;
mod new_communicator;
mod one_sided;
mod own_statuses;
mod point_to_point;
mod pointers;
mod requests;
mod run;
mod topology;

/// Exports functions. Each entry has the name, the name of the Fortran form, and the arguments in the order
/// of MPI's bindings; after the arrow follows the call to record. Entries in `counted` have a form for large
/// counts.
macro_rules! mpi_functions {
    (counted: $($name:ident $lower:ident($($argument:ident: $kind:ident),* $(,)?) => $describe:expr;)*) => {$(
        mod $lower {
            use super::*;
            c_function! { $name($($argument: $kind),*) => $describe }
            crate::apis::mpi::large_function! { $name($($argument: $kind),*) => $describe }
            fortran_functions! { $name (stringify!($lower)) ($($argument: $kind),*) => $describe }
        }
    )*};
    (plain: $($name:ident $lower:ident($($argument:ident: $kind:ident),* $(,)?) => $describe:expr;)*) => {$(
        mod $lower {
            use super::*;
            c_function! { $name($($argument: $kind),*) => $describe }
            fortran_functions! { $name (stringify!($lower)) ($($argument: $kind),*) => $describe }
        }
    )*};
}
pub(crate) use mpi_functions;

/// Exports the C form of a function.
///
/// The ABI is `C-unwind`: an error handler of a C++ program may throw through MPI, and a cancelled thread
/// unwinds through it.
macro_rules! c_function {
    ($name:ident($($argument:ident: $kind:ident),*) => $describe:expr) => {
        #[doc = concat!("Records and passes on `", stringify!($name), "`.")]
        ///
        /// # Safety
        /// As MPI says.
        #[unsafe(export_name = stringify!($name))]
        #[allow(clippy::too_many_arguments, unused_variables)]
        pub(super) unsafe extern "C-unwind" fn in_c($($argument: <$kind as ArgumentKind>::C),*) -> std::ffi::c_int {
            type Real = unsafe extern "C-unwind" fn($(<$kind as ArgumentKind>::C),*) -> std::ffi::c_int;
            static REAL: crate::interpose::real::RealFunction = crate::interpose::real::RealFunction::new(
                crate::interpose::real::c_name(concat!(stringify!($name), "\0")),
                Some(&crate::interpose::real::MPI),
            );
            let Some(address) = REAL.address() else { return crate::apis::mpi::NO_MPI };
            crate::apis::mpi::run::run(
                || {
                    $(let $argument = <$kind as ArgumentKind>::c($argument);)*
                    CallArguments { function: rpd_ring::mpi::MpiFunction::$name, ..$describe }
                },
                // SAFETY: the function of this name in an MPI library has these arguments and is not
                // variadic; each is in a register or stack slot of the size used here, see `MpiHandle`, and
                // it gets what the program passed, or statuses of ours in place of ignored ones.
                |own_statuses| unsafe {
                    std::mem::transmute::<usize, Real>(address)(
                        $(<$kind as ArgumentKind>::passed($argument, own_statuses)),*
                    )
                },
            )
        }
    };
}
pub(crate) use c_function;

/// Exports the C form of a function for large counts.
macro_rules! large_function {
    ($name:ident($($argument:ident: $kind:ident),*) => $describe:expr) => {
        #[doc = concat!("Records and passes on `", stringify!($name), "_c`.")]
        ///
        /// # Safety
        /// As MPI says.
        #[unsafe(export_name = concat!(stringify!($name), "_c"))]
        #[allow(clippy::too_many_arguments, unused_variables)]
        unsafe extern "C-unwind" fn large($($argument: <$kind as ArgumentKind>::LargeCount),*) -> std::ffi::c_int {
            type Real = unsafe extern "C-unwind" fn($(<$kind as ArgumentKind>::LargeCount),*) -> std::ffi::c_int;
            static REAL: crate::interpose::real::RealFunction = crate::interpose::real::RealFunction::new(
                crate::interpose::real::c_name(concat!(stringify!($name), "_c\0")),
                Some(&crate::interpose::real::MPI),
            );
            let look = || {
                $(let $argument = <$kind as ArgumentKind>::large($argument);)*
                CallArguments { function: rpd_ring::mpi::MpiFunction::$name, ..$describe }
            };
            match REAL.address() {
                // SAFETY: as in the form without large counts.
                Some(address) => crate::apis::mpi::run::run(look, |own_statuses| unsafe {
                    std::mem::transmute::<usize, Real>(address)(
                        $(<$kind as ArgumentKind>::passed_large($argument, own_statuses)),*
                    )
                }),
                None if !crate::apis::mpi::abi::is_known() => crate::apis::mpi::NO_MPI,
                None => {
                    let mut narrowing = crate::apis::mpi::narrow::NarrowedArguments::of(&look());
                    let mut call = || {
                        $(let $argument = <$kind as ArgumentKind>::narrow($argument, &mut narrowing)?;)*
                        // SAFETY: our own form of the same call, with arrays that live until it is complete.
                        Some(unsafe { in_c($($argument),*) })
                    };
                    let result = call();
                    narrowing.finish(result)
                }
            }
        }
    };
}
pub(crate) use large_function;

/// Exports the Fortran forms of a function. Everything is passed by address, except for what a compiler adds
/// after the error code.
macro_rules! fortran_functions {
    ($name:ident ($lower:expr) ($($argument:ident: $kind:ident),*) $(, $more:ident: $type:ty)* => $describe:expr) => {
        crate::apis::mpi::fortran_function! {
            in_fortran, concat!($lower, "_"), MPI_FORTRAN,
            $name($($argument: $kind),*) ($($more: $type),*) => $describe
        }
        crate::apis::mpi::fortran_function! {
            in_fortran_2008, concat!($lower, "_f08_"), MPI_FORTRAN_2008,
            $name($($argument: $kind),*) ($($more: $type),*) => $describe
        }
    };
}
pub(crate) use fortran_functions;

/// Exports one Fortran form of a function.
macro_rules! fortran_function {
    (
        $form:ident, $exported:expr, $library:ident,
        $name:ident($($argument:ident: $kind:ident),*) ($($more:ident: $type:ty),*) => $describe:expr
    ) => {
        #[doc = concat!("Records and passes on `", stringify!($name), "` of Fortran.")]
        ///
        /// # Safety
        /// As MPI says.
        #[unsafe(export_name = $exported)]
        #[allow(clippy::too_many_arguments, unused_variables)]
        unsafe extern "C-unwind" fn $form(
            $($argument: crate::apis::mpi::abi::MpiPointer,)* error: *mut std::ffi::c_int $(, $more: $type)*
        ) {
            // The address of every argument, the error code, and what follows it.
            type Real = unsafe extern "C-unwind" fn(
                $(crate::apis::mpi::address_of!($argument),)* *mut std::ffi::c_int $(, $type)*
            );
            static REAL: crate::interpose::real::RealFunction = crate::interpose::real::RealFunction::new(
                crate::interpose::real::c_name(concat!($exported, "\0")),
                Some(&crate::interpose::real::$library),
            );
            // The error code is optional in Fortran 2008.
            let mut unasked = 0;
            let error = if error.is_null() { &raw mut unasked } else { error };
            let Some(address) = REAL.address() else {
                // SAFETY: the address of an INTEGER.
                return unsafe { error.write_unaligned(crate::apis::mpi::NO_MPI) };
            };
            crate::apis::mpi::run::run(
                || {
                    // SAFETY: the arguments are what MPI wants.
                    $(let $argument = unsafe { <$kind as ArgumentKind>::fortran($argument) };)*
                    CallArguments { function: rpd_ring::mpi::MpiFunction::$name, ..$describe }
                },
                // SAFETY: the function of this name in an MPI library has these arguments and gets what
                // the program passed, or statuses of ours in place of ignored ones, and it writes the error
                // code.
                |own_statuses| unsafe {
                    std::mem::transmute::<usize, Real>(address)(
                        $(<$kind as ArgumentKind>::passed_fortran($argument, own_statuses),)* error $(, $more)*
                    );
                    error.read_unaligned()
                },
            );
        }
    };
}
pub(crate) use fortran_function;

/// Type of an argument in Fortran.
macro_rules! address_of {
    ($argument:ident) => {
        crate::apis::mpi::abi::MpiPointer
    };
}
pub(crate) use address_of;

/// Returned if a program calls MPI without an MPI library: `MPI_ERR_OTHER` in MPICH, another error class in
/// Open MPI. A program that gets here could not have started without this library.
const NO_MPI: std::ffi::c_int = 15;
