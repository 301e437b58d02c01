/* Situation: a daemon closes every descriptor it might have inherited (0..1023), the profiler's
 * too. It opens its own files, which get the same numbers. It allocates all the time.
 * A correct profiler never writes to a number that it no longer owns: the daemon's files hold
 * exactly the daemon's data. The profile may go on or end; it says which.
 * If it is wrong: megabytes of profile are in the middle of a database.
 *
 *   daemon_close_fds <dir> [milliseconds]     default 600 ms
 *
 * stdout is closed: the verdict is in <dir>/result (`ok files` or `FAIL files: ...`) and in the
 * exit status.
 */
#define _GNU_SOURCE
#include "frames.h"

#include <fcntl.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

enum { FILES = 16, CHUNK = 512, DESCRIPTORS = 1024 };

static const char *directory;
static int files[FILES];
static size_t written[FILES];

/* Returns the byte at `offset` of file `number`. */
static char content(int number, size_t offset)
{
    return (char)('a' + (offset / 7 + (size_t)number * 5) % 26);
}

static void open_files(void)
{
    for (int i = 0; i < FILES; i++) {
        char path[4096];
        snprintf(path, sizeof path, "%s/file-%d", directory, i);
        files[i] = open(path, O_CREAT | O_TRUNC | O_RDWR, 0600);
        if (files[i] < 0)
            _exit(2);
    }
}

static void write_chunk(int number)
{
    char chunk[CHUNK];
    for (size_t i = 0; i < CHUNK; i++)
        chunk[i] = content(number, written[number] + i);
    if (write(files[number], chunk, CHUNK) != CHUNK)
        _exit(2);
    written[number] += CHUNK;
}

OWN_FRAME static void allocates_as_daemon(void)
{
    for (size_t size = 16; size < 20000; size *= 2)
        free(escapes(malloc(size)));
    free(escapes(malloc(18001)));
}

static long elapsed_ms(const struct timespec *start)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (now.tv_sec - start->tv_sec) * 1000 + (now.tv_nsec - start->tv_nsec) / 1000000;
}

static void work_for(long ms)
{
    struct timespec start, pause = {0, 200000};
    clock_gettime(CLOCK_MONOTONIC, &start);
    while (elapsed_ms(&start) < ms) {
        for (int i = 0; i < FILES; i++) {
            write_chunk(i);
            allocates_as_daemon();
        }
        nanosleep(&pause, NULL);
    }
}

/* Returns the first file with other contents than were written, or -1. */
static int first_spoiled(void)
{
    for (int i = 0; i < FILES; i++) {
        struct stat status;
        if (fstat(files[i], &status) != 0 || (size_t)status.st_size != written[i])
            return i;
        for (size_t offset = 0; offset < written[i]; offset += CHUNK) {
            char chunk[CHUNK];
            if (pread(files[i], chunk, CHUNK, (off_t)offset) != CHUNK)
                return i;
            for (size_t j = 0; j < CHUNK; j++)
                if (chunk[j] != content(i, offset + j))
                    return i;
        }
    }
    return -1;
}

static void write_result(int spoiled)
{
    char path[4096], line[128];
    snprintf(path, sizeof path, "%s/result", directory);
    int length = spoiled < 0 ? snprintf(line, sizeof line, "ok files\n")
                             : snprintf(line, sizeof line, "FAIL files: file-%d differs (expected what was written)\n", spoiled);
    int result = open(path, O_CREAT | O_TRUNC | O_WRONLY, 0600);
    if (write(result, line, (size_t)length) != length)
        _exit(2);
    close(result);
}

int main(int argc, char **argv)
{
    if (argc < 2) {
        fprintf(stderr, "usage: daemon_close_fds <dir> [milliseconds]\n");
        return 2;
    }
    directory = argv[1];
    for (int fd = 0; fd < DESCRIPTORS; fd++)
        close(fd);
    open_files();
    work_for(argc > 2 ? atol(argv[2]) : 600);
    int spoiled = first_spoiled();
    write_result(spoiled);
    return spoiled >= 0;
}
