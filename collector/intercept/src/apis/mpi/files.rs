//! MPI files: the calls that block. In collective ones a process may wait for others.

use super::abi::MpiHandle;
use super::argument::{Address, ArgumentKind, Datatype, ElementCount, Int, Offset, Opaque};
use super::call::{CallArguments, DataVolume, plain};
use super::{c_function, fortran_functions, mpi_functions};

/// Elements that are transferred between a file and a buffer.
fn transfer(count: i64, datatype: MpiHandle) -> CallArguments {
    CallArguments { volume: DataVolume::Elements(count, datatype), ..plain() }
}

/// `MPI_File_open`: in Fortran the length of the name follows the error code.
mod mpi_file_open {
    use super::*;
    c_function! {
        MPI_File_open(comm: Opaque, filename: Address, amode: Int, info: Opaque, file: Address) => plain()
    }
    fortran_functions! {
        MPI_File_open ("mpi_file_open") (comm: Opaque, filename: Address, amode: Int, info: Opaque, file: Address),
            length: usize => plain()
    }
}

/// `MPI_File_set_view`: in Fortran the length of the data representation follows the error code.
mod mpi_file_set_view {
    use super::*;
    c_function! {
        MPI_File_set_view(
            file: Opaque, displacement: Offset, etype: Opaque, filetype: Opaque, datarep: Address, info: Opaque
        ) => plain()
    }
    fortran_functions! {
        MPI_File_set_view ("mpi_file_set_view") (
            file: Opaque, displacement: Offset, etype: Opaque, filetype: Opaque, datarep: Address, info: Opaque
        ), length: usize => plain()
    }
}

mpi_functions! { plain:
    MPI_File_close mpi_file_close(file: Address) => plain();
    MPI_File_sync mpi_file_sync(file: Opaque) => plain();
    MPI_File_set_size mpi_file_set_size(file: Opaque, size: Offset) => plain();
    MPI_File_preallocate mpi_file_preallocate(file: Opaque, size: Offset) => plain();
    MPI_File_read_all_end mpi_file_read_all_end(file: Opaque, buf: Address, status: Address) => plain();
    MPI_File_write_all_end mpi_file_write_all_end(file: Opaque, buf: Address, status: Address) => plain();
    MPI_File_read_at_all_end mpi_file_read_at_all_end(file: Opaque, buf: Address, status: Address) => plain();
    MPI_File_write_at_all_end mpi_file_write_at_all_end(file: Opaque, buf: Address, status: Address)
        => plain();
    MPI_File_read_ordered_end mpi_file_read_ordered_end(file: Opaque, buf: Address, status: Address)
        => plain();
    MPI_File_write_ordered_end mpi_file_write_ordered_end(file: Opaque, buf: Address, status: Address)
        => plain();
}

/// Functions with the arguments of `MPI_File_read`.
macro_rules! at_the_pointer {
    ($($name:ident $lower:ident;)*) => {
        mpi_functions! { counted: $(
            $name $lower(file: Opaque, buf: Address, count: ElementCount, datatype: Datatype, status: Address)
                => transfer(count, datatype);
        )* }
    };
}

at_the_pointer! {
    MPI_File_read mpi_file_read;
    MPI_File_read_all mpi_file_read_all;
    MPI_File_read_shared mpi_file_read_shared;
    MPI_File_read_ordered mpi_file_read_ordered;
    MPI_File_write mpi_file_write;
    MPI_File_write_all mpi_file_write_all;
    MPI_File_write_shared mpi_file_write_shared;
    MPI_File_write_ordered mpi_file_write_ordered;
}

/// Functions with the arguments of `MPI_File_read_at`.
macro_rules! at_an_offset {
    ($($name:ident $lower:ident;)*) => {
        mpi_functions! { counted: $(
            $name $lower(
                file: Opaque, offset: Offset, buf: Address, count: ElementCount, datatype: Datatype, status: Address,
            ) => transfer(count, datatype);
        )* }
    };
}

at_an_offset! {
    MPI_File_read_at mpi_file_read_at;
    MPI_File_read_at_all mpi_file_read_at_all;
    MPI_File_write_at mpi_file_write_at;
    MPI_File_write_at_all mpi_file_write_at_all;
}

/// Starts of split collectives: like the whole ones, without a status.
macro_rules! beginnings {
    ($($name:ident $lower:ident($($offset:ident: $kind:ident)?);)*) => {
        mpi_functions! { counted: $(
            $name $lower(file: Opaque, $($offset: $kind,)? buf: Address, count: ElementCount, datatype: Datatype)
                => transfer(count, datatype);
        )* }
    };
}

beginnings! {
    MPI_File_read_all_begin mpi_file_read_all_begin();
    MPI_File_write_all_begin mpi_file_write_all_begin();
    MPI_File_read_ordered_begin mpi_file_read_ordered_begin();
    MPI_File_write_ordered_begin mpi_file_write_ordered_begin();
    MPI_File_read_at_all_begin mpi_file_read_at_all_begin(offset: Offset);
    MPI_File_write_at_all_begin mpi_file_write_at_all_begin(offset: Offset);
}
