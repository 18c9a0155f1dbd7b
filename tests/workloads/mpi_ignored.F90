! Receives from any source; Fortran ignores their statuses. Interface 1 is mpif.h, 2 `use mpi`, 3 `use mpi_f08`.
! Every message comes from the left. The argument is not used.
#if INTERFACE == 3
#define REQUEST(name) type(MPI_Request) :: name
#else
#define REQUEST(name) integer :: name
#endif
program ignored
#if INTERFACE == 1
  implicit none
  include 'mpif.h'
#elif INTERFACE == 2
  use mpi
  implicit none
#else
  use mpi_f08
  implicit none
#endif
  REQUEST(requests(3))
  double precision :: out(4), in(4)
  integer :: me, n, left, right, error, i

  call MPI_Init(error)
  call MPI_Comm_rank(MPI_COMM_WORLD, me, error)
  call MPI_Comm_size(MPI_COMM_WORLD, n, error)
  left = mod(me + n - 1, n)
  right = mod(me + 1, n)
  out = me
  call MPI_Isend(out, 1, MPI_DOUBLE_PRECISION, right, 1, MPI_COMM_WORLD, requests(1), error)
  call MPI_Recv(in, 4, MPI_DOUBLE_PRECISION, MPI_ANY_SOURCE, MPI_ANY_TAG, MPI_COMM_WORLD, MPI_STATUS_IGNORE, error)
  call MPI_Wait(requests(1), MPI_STATUS_IGNORE, error)
  call MPI_Barrier(MPI_COMM_WORLD, error)
  do i = 1, 2
    call MPI_Irecv(in(i), 1, MPI_DOUBLE_PRECISION, MPI_ANY_SOURCE, 1 + i, MPI_COMM_WORLD, requests(i), error)
  end do
  call MPI_Isend(out, 1, MPI_DOUBLE_PRECISION, right, 2, MPI_COMM_WORLD, requests(3), error)
  call MPI_Send(out, 1, MPI_DOUBLE_PRECISION, right, 3, MPI_COMM_WORLD, error)
  call MPI_Waitall(3, requests, MPI_STATUSES_IGNORE, error)
  call MPI_Sendrecv(out, 3, MPI_DOUBLE_PRECISION, right, 4, in, 4, MPI_DOUBLE_PRECISION, MPI_ANY_SOURCE, 4, &
                    MPI_COMM_WORLD, MPI_STATUS_IGNORE, error)
  call MPI_Finalize(error)
end program ignored
