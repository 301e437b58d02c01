/* A server for `heapprof attach`: threads that allocate all the time, threads that wait in system
 * calls, and bursts of blocks on demand.
 *
 *   attached_server [THREADS [refuses|kills]]   8 busy threads, if no number is named
 *
 * Under a seccomp filter that refuses keyctl, or that kills the process for memfd_create.
 *
 * A line on standard input is a command, which is answered by a line:
 *   burst COUNT   each busy thread allocates COUNT blocks of 23100 + NUMBER bytes and frees them
 *   keep COUNT    the main thread allocates COUNT blocks of 23200 bytes, and keeps them
 *   drop          the main thread frees the blocks that it keeps
 *   resize COUNT  the main thread allocates COUNT blocks of 23300 bytes, and resizes them to 23400
 *   make COUNT    the main thread makes COUNT blocks of 64 bytes by a realloc of nothing, another
 *                 COUNT by posix_memalign, and frees them
 *   fork          a child allocates and ends
 *   branch        a child allocates blocks of 23600 bytes until this process ends; its id
 *   open PATH     opens a library, and calls its function `get` ten times for 23700 bytes
 *   close         gives these blocks to its function `put`, and closes the library
 *   cycles COUNT  the library that was opened last is opened and closed so many times
 *   stale BYTES   the main thread keeps an address in memory of that size that it has unmapped, as
 *                 that of a large block that a stack still has; the next mapping is at its place
 *   map COUNT     the main thread maps COUNT ranges of 1 MiB and keeps them, maps COUNT more and
 *                 unmaps them, and lets another one grow to 3 MiB. It keeps a block of 2 MiB, for
 *                 which libc maps memory
 *   storm COUNT   as cycles, in a thread beside the commands; `calm` waits for it
 *   errors        how many waits ended otherwise than they should
 *   interrupts    how many waits for events were interrupted, which the kernel does after a stop
 *   quit          ends
 *
 * The waits have no deadline of their own, or a deadline that is checked.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <poll.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/select.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define MOST 64
#define KEPT 100000

static atomic_int errors, interrupts, wanted, done, generation, ending, begun;
static int never[2];
static void *kept[KEPT];
static int kept_count;

/* A library that is opened, and the blocks that it has given. */
#define GIVEN 10
struct library {
    char path[300];
    void *handle, *blocks[GIVEN];
    int cycles;
};

static double now(void) {
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return time.tv_sec + time.tv_nsec * 1e-9;
}

static void fail(const char *what, double since, int error) {
    fprintf(stderr, "attached_server: %s ended after %.4f s, error %d\n", what, now() - since, error);
    errors++;
}

/* A wait of `seconds` that has ended: neither early, nor by an error. */
static void check(const char *what, double since, double seconds, int is_wrong) {
    double took = now() - since;
    if (!ending && (is_wrong || took < seconds - 0.001 || took > seconds + 5))
        fail(what, since, errno);
}

__attribute__((noinline)) static void *site_burst(int number) {
    void *block = malloc(23100 + number);
    memset(block, number, 64);
    return block;
}

/* Volatile, because a compiler may leave out a block that nothing uses. */
static void site_once(size_t size) {
    void *volatile block = malloc(size);
    free(block);
}

__attribute__((noinline)) static void site_from_nothing(void) {
    void *volatile nothing = NULL;
    void *volatile block = realloc(nothing, 64);
    free(block);
}

__attribute__((noinline)) static void site_aligned(void) {
    void *volatile block = NULL;
    if (posix_memalign((void **)&block, 16, 64))
        abort();
    free(block);
}

enum { MIB = 1 << 20 };

/* A range of which one page is touched. */
static char *mapped(void *range) {
    if (range == MAP_FAILED)
        abort();
    *(volatile char *)range = 1;
    return range;
}

static char *map_one(void) {
    return mapped(mmap(NULL, MIB, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
}

__attribute__((noinline)) static void site_maps(void) {
    map_one();
}

__attribute__((noinline)) static void site_unmaps(void) {
    munmap(map_one(), MIB);
}

__attribute__((noinline)) static void site_grows(void) {
    mapped(mremap(map_one(), MIB, 3 * MIB, MREMAP_MAYMOVE));
}

__attribute__((noinline)) static void site_large(void) {
    void *volatile block = malloc(2 * MIB);
    mapped(block);
}

static void *busy(void *argument) {
    int number = (int)(long)argument, seen = 0;
    unsigned random = number + 1;
    begun++;
    while (!ending) {
        int current = generation;
        if (current != seen) {
            seen = current;
            for (int left = wanted; left > 0; left--)
                free(site_burst(number));
            done++;
        }
        void *blocks[16];
        for (int i = 0; i < 16; i++) {
            random = random * 1103515245 + 12345;
            size_t size = 1 + (random >> 16) % 2000;
            blocks[i] = random & 1 ? malloc(size) : calloc(1, size);
            if (!blocks[i])
                abort();
            memset(blocks[i], number, size);
        }
        for (int i = 0; i < 16; i++) {
            if (*(unsigned char *)blocks[i] != number)
                abort();
            if (i % 4 == 0)
                blocks[i] = realloc(blocks[i], 3000);
            free(blocks[i]);
        }
    }
    return NULL;
}

static void *sleeper(void *unused) {
    (void)unused;
    begun++;
    while (!ending) {
        struct timespec time = {0, 150000000}, rest = {0, 0};
        double since = now();
        check("nanosleep", since, 0.15, nanosleep(&time, &rest) != 0);
    }
    return NULL;
}

static void *poller(void *unused) {
    (void)unused;
    begun++;
    while (!ending) {
        struct pollfd one = {.fd = never[0], .events = POLLIN};
        double since = now();
        check("poll", since, 0.13, poll(&one, 1, 130) != 0);
        struct timeval time = {0, 70000};
        fd_set set;
        FD_ZERO(&set);
        FD_SET(never[0], &set);
        since = now();
        check("select", since, 0.07, select(never[0] + 1, &set, NULL, NULL, &time) != 0);
    }
    return NULL;
}

static void *waiter(void *unused) {
    (void)unused;
    pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
    pthread_cond_t condition = PTHREAD_COND_INITIALIZER;
    begun++;
    while (!ending) {
        struct timespec until;
        clock_gettime(CLOCK_REALTIME, &until);
        until.tv_nsec += 110000000;
        until.tv_sec += until.tv_nsec / 1000000000;
        until.tv_nsec %= 1000000000;
        pthread_mutex_lock(&mutex);
        double since = now();
        int answer = pthread_cond_timedwait(&condition, &mutex, &until);
        pthread_mutex_unlock(&mutex);
        check("pthread_cond_timedwait", since, 0.109, answer != ETIMEDOUT);
    }
    return NULL;
}

static void *epoller(void *unused) {
    (void)unused;
    int epoll = epoll_create1(EPOLL_CLOEXEC);
    begun++;
    while (!ending) {
        struct epoll_event event;
        double since = now();
        int answer = epoll_wait(epoll, &event, 1, 90);
        if (answer < 0 && errno == EINTR)
            interrupts++;
        else
            check("epoll_wait", since, 0.09, answer != 0);
    }
    close(epoll);
    return NULL;
}

static void *reader(void *unused) {
    (void)unused;
    char byte;
    double since = now();
    begun++;
    /* Ends when the other end is closed. */
    if (read(never[0], &byte, 1) != 0 || !ending)
        fail("read", since, errno);
    return NULL;
}

/* Installs a filter with that answer for one system call. */
static void filter(unsigned number, unsigned answer) {
    struct sock_filter code[] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, 0),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, number, 0, 1),
        BPF_STMT(BPF_RET | BPF_K, answer),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
    };
    struct sock_fprog program = {sizeof code / sizeof *code, code};
    if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) || prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program))
        abort();
}

/* Returns the number of blocks that the library has given. */
static int open_library(struct library *library) {
    library->handle = dlopen(library->path, RTLD_NOW);
    if (!library->handle)
        return 0;
    void *(*get)(size_t) = (void *(*)(size_t))dlsym(library->handle, "get");
    int count = 0;
    while (get && count < GIVEN && (library->blocks[count] = get(23700)))
        count++;
    return count;
}

static void close_library(struct library *library) {
    void (*put)(void *) = (void (*)(void *))dlsym(library->handle, "put");
    for (int i = 0; put && i < GIVEN; i++)
        put(library->blocks[i]);
    dlclose(library->handle);
}

static void *cycle(void *argument) {
    struct library *library = argument;
    for (; library->cycles > 0; library->cycles--) {
        if (open_library(library) != GIVEN)
            fail("opening a library", now(), 0);
        close_library(library);
        /* The loader's lock is not fair: other threads get it in this moment. */
        usleep(100);
    }
    return NULL;
}

int main(int argc, char **argv) {
    int threads = argc > 1 ? atoi(argv[1]) : 8;
    if (argc > 2 && strcmp(argv[2], "kills") == 0)
        filter(SYS_memfd_create, SECCOMP_RET_KILL_PROCESS);
    else if (argc > 2)
        filter(SYS_keyctl, SECCOMP_RET_ERRNO | EPERM);
    pthread_t ids[MOST + 5], stormy;
    static struct library library;
    void *(*waits[])(void *) = {sleeper, poller, waiter, epoller, reader};
    if (threads > MOST || pipe(never) != 0)
        return 1;
    for (int i = 0; i < threads; i++)
        pthread_create(&ids[i], NULL, busy, (void *)(long)i);
    for (int i = 0; i < 5; i++)
        pthread_create(&ids[threads + i], NULL, waits[i], NULL);
    while (begun < threads + 5)
        usleep(1000);
    puts("ready");
    fflush(stdout);
    char line[300];
    char *volatile stale = NULL;
    while (fgets(line, sizeof line, stdin)) {
        int count = 0;
        if (sscanf(line, "burst %d", &count) == 1) {
            wanted = count;
            done = 0;
            generation++;
            while (done < threads)
                usleep(1000);
        } else if (sscanf(line, "keep %d", &count) == 1) {
            while (count-- > 0 && kept_count < KEPT)
                kept[kept_count++] = malloc(23200);
        } else if (strncmp(line, "drop", 4) == 0) {
            while (kept_count > 0)
                free(kept[--kept_count]);
        } else if (sscanf(line, "resize %d", &count) == 1) {
            while (count-- > 0)
                free(realloc(malloc(23300), 23400));
        } else if (sscanf(line, "make %d", &count) == 1) {
            while (count-- > 0) {
                site_from_nothing();
                site_aligned();
            }
        } else if (strncmp(line, "fork", 4) == 0) {
            pid_t child = fork();
            if (child == 0) {
                for (int i = 0; i < 1000; i++)
                    site_once(23500);
                _exit(7);
            }
            int status = 0;
            waitpid(child, &status, 0);
            count = WEXITSTATUS(status);
        } else if (strncmp(line, "branch", 6) == 0) {
            pid_t parent = getpid();
            count = fork();
            if (count == 0)
                close(never[1]); /* the reader waits until nobody can write there */
            while (count == 0 && getppid() == parent) {
                struct timespec moment = {0, 1000000};
                site_once(23600);
                nanosleep(&moment, NULL);
            }
            if (count == 0)
                _exit(0);
        } else if (strncmp(line, "open ", 5) == 0) {
            line[strcspn(line, "\n")] = 0;
            strcpy(library.path, line + 5);
            count = open_library(&library);
        } else if (strncmp(line, "close", 5) == 0) {
            close_library(&library);
        } else if (sscanf(line, "cycles %d", &library.cycles) == 1) {
            cycle(&library);
        } else if (sscanf(line, "stale %d", &count) == 1) {
            char *gone = mmap(NULL, count, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
            stale = gone + 16; /* where malloc's large blocks begin */
            munmap(gone, count);
            (void)stale;
        } else if (sscanf(line, "map %d", &count) == 1) {
            site_grows();
            site_large();
            while (count-- > 0) {
                site_maps();
                site_unmaps();
            }
        } else if (sscanf(line, "storm %d", &library.cycles) == 1) {
            pthread_create(&stormy, NULL, cycle, &library);
        } else if (strncmp(line, "calm", 4) == 0) {
            pthread_join(stormy, NULL);
        } else if (strncmp(line, "errors", 6) == 0) {
            count = errors;
        } else if (strncmp(line, "interrupts", 10) == 0) {
            count = interrupts;
        } else {
            break;
        }
        printf("done %d\n", count);
        fflush(stdout);
    }
    ending = 1;
    close(never[1]);
    for (int i = 0; i < threads + 5; i++)
        pthread_join(ids[i], NULL);
    printf("ended %d\n", (int)errors);
    return errors != 0;
}
