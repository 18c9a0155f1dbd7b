//! MPI in C: every function of [`rpd_ring::mpi::MpiFunction`] is exported, recorded and passed on.
//!
//! What is recorded, beside the times:
//! * communicator: `MPI_COMM_WORLD` and `MPI_COMM_SELF` by what they are, others by handle;
//! * peer: destination or source; none for `MPI_ANY_SOURCE`, -1 for `MPI_PROC_NULL`;
//! * root: none for the special roots of intercommunicators; tag: none for `MPI_ANY_TAG`;
//! * bytes: what this rank hands over, in a receive what it has room for. Alltoall and the vector
//!   forms sum over all partners, scatter has the share of this rank, neighbour collectives the
//!   share of one neighbour, their vector forms nothing. It is counted from arguments, so the
//!   completion of a receive does not change it.

mod abi;
mod call;
mod collectives;
mod point_to_point;

/// Exports functions. Each has its arguments as MPI's C binding orders them, and after the arrow
/// what is to be recorded of them.
///
/// The ABI is `C-unwind`: an error handler of a C++ program may throw through MPI, and a cancelled
/// thread unwinds through it.
macro_rules! mpi_functions {
    ($($name:ident($($argument:ident: $kind:ty),* $(,)?) => $describe:expr;)*) => {$(
        #[doc = concat!("Records and passes on `", stringify!($name), "`.")]
        ///
        /// # Safety
        /// As MPI says.
        #[unsafe(no_mangle)]
        #[allow(non_snake_case, clippy::too_many_arguments)]
        pub(crate) unsafe extern "C-unwind" fn $name($($argument: $kind),*) -> std::ffi::c_int {
            type Real = unsafe extern "C-unwind" fn($($kind),*) -> std::ffi::c_int;
            const NAME: &std::ffi::CStr =
                match std::ffi::CStr::from_bytes_with_nul(concat!(stringify!($name), "\0").as_bytes()) {
                    Ok(name) => name,
                    Err(_) => c"",
                };
            static REAL: crate::real::RealFunction =
                crate::real::RealFunction::new(NAME, crate::real::Fallback::LoadedMpi);
            let Some(address) = REAL.address() else { return crate::mpi::NO_MPI };
            let mut inside = crate::inside::Inside::mpi();
            if inside.is_recorded() {
                inside.begin_mpi(&crate::mpi::call::Call {
                    function: rpd_ring::mpi::MpiFunction::$name,
                    ..$describe
                }.resolve());
            }
            // SAFETY: the function of this name in an MPI library has these arguments, each in a
            // register or stack slot of the size used here, and gets what the program passed.
            let result = unsafe {
                std::mem::transmute::<usize, Real>(address)($($argument),*)
            };
            inside.end(|_| ());
            result
        }
    )*};
}
pub(crate) use mpi_functions;

/// Returned where a program calls MPI without an MPI library: `MPI_ERR_OTHER` of MPICH, in Open MPI
/// another error class. No program gets here that could have started without us.
const NO_MPI: std::ffi::c_int = 15;
