/* What a program sees of messages that are too long, for each function that completes a receive, with ignored
 * statuses: error classes, flags and indices, on standard output of rank 0. */
#include <mpi.h>
#include <stdio.h>

static int handled;

static void handler(MPI_Comm *comm, int *code, ...)
{
    (void)comm;
    MPI_Error_class(*code, &handled);
}

int main(int argc, char **argv)
{
    int rank;
    MPI_Errhandler ours;

    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_create_errhandler(handler, &ours);
    for (int round = 0; round < 2 * 2 * 10; round++) {
        int function = round / 4, is_long = round / 2 % 2, out[8] = { 0 }, in[3];
        MPI_Comm_set_errhandler(MPI_COMM_WORLD, round % 2 ? ours : MPI_ERRORS_RETURN);
        MPI_Barrier(MPI_COMM_WORLD);
        if (rank == 1) {
            for (int i = 0; i < 3; i++)
                MPI_Send(out, is_long && i == 1 ? 8 : 1, MPI_INT, 0, i, MPI_COMM_WORLD);
            MPI_Barrier(MPI_COMM_WORLD);
        } else if (rank == 0) {
            MPI_Request all[3];
            int code = -1, flag = 0, index = -9, some = -9, indices[3] = { -9, -9, -9 }, class = -1;
            for (int i = 0; function < 8 && i < 3; i++)
                MPI_Irecv(in + i, 1, MPI_INT, MPI_ANY_SOURCE, i, MPI_COMM_WORLD, all + i);
            MPI_Barrier(MPI_COMM_WORLD);
            /* The messages arrive. */
            for (int i = 0; i < 1000; i++)
                MPI_Iprobe(1, 99, MPI_COMM_WORLD, &flag, MPI_STATUS_IGNORE);
            flag = 0, handled = -1;
            switch (function) {
            case 0: code = MPI_Waitall(3, all, MPI_STATUSES_IGNORE); break;
            case 1: code = MPI_Waitsome(3, all, &some, indices, MPI_STATUSES_IGNORE); break;
            case 2: code = MPI_Waitany(1, all + 1, &index, MPI_STATUS_IGNORE); break;
            case 3: code = MPI_Wait(all + 1, MPI_STATUS_IGNORE); break;
            case 4:
                while (!flag && code <= 0)
                    code = MPI_Testall(3, all, &flag, MPI_STATUSES_IGNORE);
                break;
            case 5:
                for (some = 0; some == 0;)
                    code = MPI_Testsome(3, all, &some, indices, MPI_STATUSES_IGNORE);
                break;
            case 6:
                while (!flag)
                    code = MPI_Testany(1, all + 1, &index, &flag, MPI_STATUS_IGNORE);
                break;
            case 7:
                while (!flag)
                    code = MPI_Test(all + 1, &flag, MPI_STATUS_IGNORE);
                break;
            case 8:
                for (int i = 0; i < 3; i++) {
                    int each = MPI_Recv(in + i, 1, MPI_INT, MPI_ANY_SOURCE, i, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
                    code = i == 1 ? each : code;
                }
                break;
            default:
                for (int i = 0; i < 3; i++) {
                    int each = MPI_Sendrecv(out, 1, MPI_INT, 0, 9, in, 1, MPI_INT, 0, 9, MPI_COMM_WORLD,
                                            MPI_STATUS_IGNORE);
                    each = each ? each : MPI_Sendrecv(out, 1, MPI_INT, MPI_PROC_NULL, 9, in, 1, MPI_INT,
                                                      MPI_ANY_SOURCE, i, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
                    code = i == 1 ? each : code;
                }
            }
            MPI_Error_class(code, &class);
            printf("function %d, %s: class %d, handled %d, flag %d, index %d, %d of %d %d %d, null %d %d %d\n",
                   function, is_long ? "too long" : "fits", class, handled, flag, index, some, indices[0],
                   indices[1], indices[2], function < 8 && all[0] == MPI_REQUEST_NULL,
                   function < 8 && all[1] == MPI_REQUEST_NULL, function < 8 && all[2] == MPI_REQUEST_NULL);
            for (int i = 0; function < 8 && i < 3; i++)
                if (all[i] != MPI_REQUEST_NULL)
                    MPI_Wait(all + i, MPI_STATUS_IGNORE);
        } else {
            MPI_Barrier(MPI_COMM_WORLD);
        }
    }
    MPI_Finalize();
    return 0;
}
