! Calls functions of MPI from Fortran and counts what it does itself, as mpi_calls.c does:
!
!     mpi_calls PREFIX
!
! Compiled with -DINTERFACE=1 for mpif.h, 2 for "use mpi", 3 for "use mpi_f08"; with -DNO_INDICES without the
! functions that return indices of requests: in mpi_f08 of MPICH 4.0 they are those of C, one too low; with -DNO_WINDOWS
! without windows: Open MPI has none for memory of the program's own where several threads may call MPI.
program mpi_calls
#if INTERFACE == 3
  use mpi_f08
  implicit none
#define COMM type(MPI_Comm)
#define REQUEST type(MPI_Request)
#define DATATYPE type(MPI_Datatype)
#define WINDOW type(MPI_Win)
#define FILE_HANDLE type(MPI_File)
#define STATUS(name) type(MPI_Status) :: name
#define STATUSES(name, n) type(MPI_Status) :: name(n)
#define SOURCE(name) name%MPI_SOURCE
#define ERROR
#elif INTERFACE == 2
  use mpi
  implicit none
#else
  implicit none
  include 'mpif.h'
#endif
#if INTERFACE != 3
#define COMM integer
#define REQUEST integer
#define DATATYPE integer
#define WINDOW integer
#define FILE_HANDLE integer
#define STATUS(name) integer :: name(MPI_STATUS_SIZE)
#define STATUSES(name, n) integer :: name(MPI_STATUS_SIZE, n)
#define SOURCE(name) name(MPI_SOURCE)
#define ERROR , error
#endif

  character(len=64) :: names(100)
  integer(kind=8) :: calls(100), bytes(100), done(100), received(100)
  integer :: used = 0
  integer :: error = 0, me, n, left, right, provided, i, some, index, indices(4), members
  integer :: counts(64), places(64)
  double precision :: out(64), in(64), sum
  logical :: flag
  COMM :: half, twin, ring
  WINDOW :: win
  FILE_HANDLE :: handle
  integer(kind=MPI_ADDRESS_KIND) :: extent
  integer(kind=MPI_OFFSET_KIND) :: place
  REQUEST :: one, requests(4)
  DATATYPE :: types(64)
  STATUS(status)
  STATUSES(statuses, 4)
  character(len=1000) :: prefix

  calls = 0; bytes = 0; done = 0; received = 0; out = 1; in = 0
  call get_command_argument(1, prefix)

#if INTERFACE == 2
  call note('MPI_Init', -1)
  call MPI_Init(error)
#else
  call note('MPI_Init_thread', -1)
  call MPI_Init_thread(MPI_THREAD_MULTIPLE, provided, error)
#endif
  call MPI_Comm_rank(MPI_COMM_WORLD, me, error)
  call MPI_Comm_size(MPI_COMM_WORLD, n, error)
  left = mod(me + n - 1, n)
  right = mod(me + 1, n)

  ! Messages. In one the code of an error is left out, where it may be.
  call note('MPI_Isend', 16)
  call MPI_Isend(out, 2, MPI_DOUBLE_PRECISION, right, 1, MPI_COMM_WORLD, one ERROR)
  call note('MPI_Recv', 80)
  call MPI_Recv(in, 10, MPI_DOUBLE_PRECISION, MPI_ANY_SOURCE, 1, MPI_COMM_WORLD, status ERROR)
  call expect(SOURCE(status) == left, 'source of a receive from any')
  call note('MPI_Wait', -1)
  call MPI_Wait(one, MPI_STATUS_IGNORE, error)
  call complete('MPI_Isend', 0)
  call note('MPI_Sendrecv', 24)
  call MPI_Sendrecv(out, 3, MPI_DOUBLE_PRECISION, right, 2, in, 3, MPI_DOUBLE_PRECISION, left, 2, &
                    MPI_COMM_WORLD, MPI_STATUS_IGNORE, error)
  call note('MPI_Send', 8)
  call MPI_Send(out, 1, MPI_DOUBLE_PRECISION, MPI_PROC_NULL, 0, MPI_COMM_WORLD, error)

  ! Requests.
  do i = 1, 2
    call note('MPI_Irecv', 64)
    call MPI_Irecv(in(8 * i), 8, MPI_DOUBLE_PRECISION, left, 10 + i, MPI_COMM_WORLD, requests(i), error)
    call note('MPI_Isend', 8 * i)
    call MPI_Isend(out, i, MPI_DOUBLE_PRECISION, right, 10 + i, MPI_COMM_WORLD, requests(2 + i), error)
  end do
  call note('MPI_Waitall', -1)
  call MPI_Waitall(4, requests, statuses, error)
  do i = 1, 2
    call complete('MPI_Irecv', 8 * i)
    call complete('MPI_Isend', 0)
  end do
  do i = 1, 2
    call note('MPI_Irecv', 8)
    call MPI_Irecv(in(i), 1, MPI_DOUBLE_PRECISION, left, 20 + i, MPI_COMM_WORLD, requests(i), error)
    call note('MPI_Isend', 8)
    call MPI_Isend(out, 1, MPI_DOUBLE_PRECISION, right, 20 + i, MPI_COMM_WORLD, requests(2 + i), error)
  end do
#ifdef NO_INDICES
  call note('MPI_Waitall', -1)
  call MPI_Waitall(4, requests, MPI_STATUSES_IGNORE, error)
  do i = 1, 2
    call complete('MPI_Irecv', 0)
    call complete('MPI_Isend', 0)
  end do
#else
  call note('MPI_Waitany', -1)
  call MPI_Waitany(2, requests, index, status, error)
  call complete('MPI_Irecv', 8)
  call expect(SOURCE(status) == left, 'source of a request')
  do
    call note('MPI_Testany', -1)
    call MPI_Testany(2, requests, index, flag, status, error)
    if (flag) exit
    call sleep_a_bit()
  end do
  call complete('MPI_Irecv', 8)
  members = 2
  do while (members > 0)
    call note('MPI_Waitsome', -1)
    call MPI_Waitsome(2, requests(3:4), some, indices, MPI_STATUSES_IGNORE, error)
    do i = 1, some
      call complete('MPI_Isend', 0)
    end do
    members = members - some
  end do
#endif

  ! Persistent ones.
  call note('MPI_Recv_init', 8)
  call MPI_Recv_init(in, 1, MPI_DOUBLE_PRECISION, left, 30, MPI_COMM_WORLD, requests(1), error)
  call note('MPI_Send_init', 8)
  call MPI_Send_init(out, 1, MPI_DOUBLE_PRECISION, right, 30, MPI_COMM_WORLD, requests(2), error)
  do i = 1, 2
    call note('MPI_Startall', -1)
    call MPI_Startall(2, requests, error)
    call note('MPI_Waitall', -1)
    call MPI_Waitall(2, requests, statuses, error)
    call complete('MPI_Startall', 8)
    call complete('MPI_Startall', 0)
  end do
  do i = 1, 2
    call note('MPI_Request_free', -1)
    call MPI_Request_free(requests(i), error)
  end do

  ! Collectives.
  do i = 1, n
    counts(i) = i
    places(i) = i * (i - 1) / 2
    types(i) = MPI_DOUBLE_PRECISION
  end do
  call note('MPI_Barrier', -1)
  call MPI_Barrier(MPI_COMM_WORLD ERROR)
  call note('MPI_Bcast', 24)
  call MPI_Bcast(in, 3, MPI_DOUBLE_PRECISION, 1, MPI_COMM_WORLD, error)
  call note('MPI_Allreduce', 16)
  call MPI_Allreduce(out, in, 2, MPI_DOUBLE_PRECISION, MPI_SUM, MPI_COMM_WORLD, error)
  call note('MPI_Allreduce', 8)
  call MPI_Allreduce(MPI_IN_PLACE, sum, 1, MPI_DOUBLE_PRECISION, MPI_SUM, MPI_COMM_WORLD, error)
  ! Beside MPI_IN_PLACE the count and type are not looked at.
  call note('MPI_Allgather', 8)
  call MPI_Allgather(MPI_IN_PLACE, 17, MPI_DOUBLE_PRECISION, in, 1, MPI_DOUBLE_PRECISION, MPI_COMM_WORLD, error)
  call note('MPI_Allgatherv', 8 * (me + 1))
  call MPI_Allgatherv(out, me + 1, MPI_DOUBLE_PRECISION, in, counts, places, MPI_DOUBLE_PRECISION, &
                      MPI_COMM_WORLD, error)
  counts(1:n) = 1
  do i = 1, n
    places(i) = 8 * (i - 1)
  end do
  call note('MPI_Alltoallw', 8 * n)
  call MPI_Alltoallw(out, counts, places, types, in, counts, places, types, MPI_COMM_WORLD, error)
  call note('MPI_Iallreduce', 8)
  call MPI_Iallreduce(out, sum, 1, MPI_DOUBLE_PRECISION, MPI_SUM, MPI_COMM_WORLD, one, error)
  do
    call note('MPI_Test', -1)
    call MPI_Test(one, flag, MPI_STATUS_IGNORE, error)
    if (flag) exit
    call sleep_a_bit()
  end do
  call complete('MPI_Iallreduce', 0)
  call expect(sum == n, 'sum of all ranks')

  ! Communicators.
  call note('MPI_Comm_dup', -1)
  call MPI_Comm_dup(MPI_COMM_WORLD, twin, error)
  call note('MPI_Comm_split', -1)
  call MPI_Comm_split(twin, mod(me, 2), -me, half, error)
  call note('MPI_Comm_set_name', -1)
  if (mod(me, 2) == 0) then
    call MPI_Comm_set_name(half, 'even  ', error)
  else
    call MPI_Comm_set_name(half, 'odd' ERROR)
  end if
  call note('MPI_Allreduce', 8)
  call MPI_Allreduce(out, sum, 1, MPI_DOUBLE_PRECISION, MPI_SUM, half, error)
  call note('MPI_Cart_create', -1)
  call MPI_Cart_create(MPI_COMM_WORLD, 1, (/ n /), (/ .true. /), .false., ring, error)
  call note('MPI_Comm_set_name', -1)
  call MPI_Comm_set_name(ring, 'ring', error)
  call note('MPI_Neighbor_allgather', 8)
  call MPI_Neighbor_allgather(out, 1, MPI_DOUBLE_PRECISION, in, 1, MPI_DOUBLE_PRECISION, ring, error)
  call note('MPI_Comm_free', -1)
  call MPI_Comm_free(ring, error)
  call note('MPI_Comm_free', -1)
  call MPI_Comm_free(half, error)
  call note('MPI_Comm_free', -1)
  call MPI_Comm_free(twin, error)

  ! Windows and files.
#ifndef NO_WINDOWS
  extent = 64 * 8
  call note('MPI_Win_create', -1)
  call MPI_Win_create(in, extent, 8, MPI_INFO_NULL, MPI_COMM_WORLD, win, error)
  call note('MPI_Win_fence', -1)
  call MPI_Win_fence(0, win, error)
  call note('MPI_Win_lock', -1)
  call MPI_Win_lock(MPI_LOCK_SHARED, right, 0, win, error)
  call note('MPI_Win_unlock', -1)
  call MPI_Win_unlock(right, win, error)
  call note('MPI_Win_free', -1)
  call MPI_Win_free(win, error)
#endif
  call note('MPI_File_open', -1)
  call MPI_File_open(MPI_COMM_WORLD, trim(prefix) // '.file', MPI_MODE_CREATE + MPI_MODE_RDWR, MPI_INFO_NULL, &
                     handle, error)
  place = 0
  call note('MPI_File_set_view', -1)
  call MPI_File_set_view(handle, place, MPI_DOUBLE_PRECISION, MPI_DOUBLE_PRECISION, 'native', MPI_INFO_NULL, error)
  out(1) = me
  place = me
  call note('MPI_File_write_at_all', 8)
  call MPI_File_write_at_all(handle, place, out, 1, MPI_DOUBLE_PRECISION, status, error)
  call note('MPI_File_sync', -1)
  call MPI_File_sync(handle, error)
  call note('MPI_File_read_at', 8)
  call MPI_File_read_at(handle, place, in, 1, MPI_DOUBLE_PRECISION, status, error)
  call expect(in(1) == me, 'what was written to a file')
  call note('MPI_File_close', -1)
  call MPI_File_close(handle, error)
  call note('MPI_Finalize', -1)
  call MPI_Finalize(error)
  call report()

contains

  integer function entry_of(name)
    character(len=*), intent(in) :: name
    do entry_of = 1, used
      if (names(entry_of) == name) return
    end do
    used = used + 1
    entry_of = used
    names(used) = name
  end function

  subroutine note(name, more)
    character(len=*), intent(in) :: name
    integer, intent(in) :: more
    integer :: at
    at = entry_of(name)
    calls(at) = calls(at) + 1
    bytes(at) = bytes(at) + max(more, 0)
  end subroutine

  subroutine complete(name, more)
    character(len=*), intent(in) :: name
    integer, intent(in) :: more
    integer :: at
    at = entry_of(name)
    done(at) = done(at) + 1
    received(at) = received(at) + more
  end subroutine

  subroutine expect(fact, what)
    logical, intent(in) :: fact
    character(len=*), intent(in) :: what
    if (fact) return
    write (0, *) 'wrong: ', what
    error stop 1
  end subroutine

  ! Between two looks at something, so that a slow rank does not look a million times.
  subroutine sleep_a_bit()
    use iso_c_binding
    interface
      integer(c_int) function usleep(microseconds) bind(c)
        import c_int
        integer(c_int), value :: microseconds
      end function
    end interface
    if (usleep(1000) /= 0) return
  end subroutine

  subroutine report()
    integer :: at
    character(len=12) :: rank
    write (rank, '(i0)') me
    open (10, file=trim(prefix)//'.'//trim(rank))
    do at = 1, used
      write (10, '(a, 1x, a, 2(1x, i0))') 'call', trim(names(at)), calls(at), bytes(at)
      if (done(at) > 0) write (10, '(a, 1x, a, 2(1x, i0))') 'done', trim(names(at)), done(at), received(at)
    end do
    close (10)
  end subroutine

end program
