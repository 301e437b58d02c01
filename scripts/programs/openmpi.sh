# shellcheck shell=bash disable=SC2034,SC2154 # variables are shared with real-programs
# Four processes that pass messages through shared memory, started by a fifth.

packages=(openmpi-bin libopenmpi-dev)

prepare() {
  cat >work.c <<'END'
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

int main(int argc, char **argv)
{
    int rank, ranks;
    long sum = 0, all = 0;
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &ranks);
    for (int i = 0; i < atoi(argv[1]); i++) {
        int bytes = 10000 + i % 200 * 500;
        char *mine = malloc(bytes), *every = malloc((size_t)bytes * ranks);
        memset(mine, rank + i, bytes);
        MPI_Allgather(mine, bytes, MPI_CHAR, every, bytes, MPI_CHAR, MPI_COMM_WORLD);
        for (int k = 0; k < ranks; k++)
            sum += every[(size_t)k * bytes];
        free(mine);
        free(every);
    }
    MPI_Reduce(&sum, &all, 1, MPI_LONG, MPI_SUM, 0, MPI_COMM_WORLD);
    if (rank == 0)
        printf("%d %ld\n", ranks, all);
    MPI_Finalize();
    return 0;
}
END
  mpicc -O1 -g work.c -o work
}

run() {
  # Without these variables it refuses to run as root, as in a container.
  export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1
  profiled mpirun --oversubscribe -n 4 ./work $((100 * scale))
}
