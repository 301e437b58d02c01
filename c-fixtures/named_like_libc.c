/* Situation: the program exports functions under the names of libc's and of the unwinders', as
 * programs do that log, count or forbid calls. Each allocates, then calls the real one. None of
 * them expects to be called before main, by a thread that the program did not start, or in the
 * middle of an allocation.
 * A correct profiler never calls them: not at start, not in its own thread, not in a hook.
 * If it is wrong: recursion into malloc from inside the allocator, wrong counts, state that is used
 * before it is made, or a foreign thread in a program that asserts that there is none.
 */
#define _GNU_SOURCE
#include "frames.h"

#include <dirent.h>
#include <dlfcn.h>
#include <fcntl.h>
#include <link.h>
#include <pthread.h>
#include <signal.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/auxv.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <time.h>
#include <unistd.h>

static __thread volatile int is_ours, is_allocating, is_noting;

/* Names of this program's functions that other code called. */
static const char *strangers[256];
static int n_strangers;

static void called(const char *name)
{
    if (is_noting)
        return;
    is_noting = 1;
    if (!is_ours || is_allocating) {
        int at = __atomic_fetch_add(&n_strangers, 1, __ATOMIC_SEQ_CST);
        if (at < 256)
            strangers[at] = name;
    } else {
        free(escapes(malloc(27)));
    }
    is_noting = 0;
}

/* Defines `name` as a function that notes its call and calls the next definition of that name. */
#define WRAP(result, name, parameters, ...)                                                                       \
    __attribute__((visibility("default"))) result name parameters                                                 \
    {                                                                                                             \
        static result(*real) parameters;                                                                          \
        called(#name);                                                                                            \
        if (real == NULL)                                                                                         \
            *(void **)&real = dlsym(RTLD_NEXT, #name);                                                            \
        return real(__VA_ARGS__);                                                                                 \
    }

#pragma GCC diagnostic ignored "-Wnonnull-compare"
#pragma GCC diagnostic ignored "-Wmissing-prototypes"

WRAP(ssize_t, write, (int fd, const void *p, size_t n), fd, p, n)
WRAP(ssize_t, read, (int fd, void *p, size_t n), fd, p, n)
WRAP(ssize_t, pread64, (int fd, void *p, size_t n, off64_t at), fd, p, n, at)
WRAP(ssize_t, writev, (int fd, const struct iovec *v, int n), fd, v, n)
WRAP(int, open, (const char *path, int flags, ...), path, flags, 0600)
WRAP(int, open64, (const char *path, int flags, ...), path, flags, 0600)
WRAP(int, openat, (int at, const char *path, int flags, ...), at, path, flags, 0600)
WRAP(int, close, (int fd), fd)
WRAP(int, fstat, (int fd, struct stat *s), fd, s)
WRAP(int, fstat64, (int fd, struct stat64 *s), fd, s)
WRAP(int, stat64, (const char *path, struct stat64 *s), path, s)
WRAP(off64_t, lseek64, (int fd, off64_t to, int how), fd, to, how)
WRAP(ssize_t, readlink, (const char *path, char *to, size_t n), path, to, n)
WRAP(char *, getcwd, (char *to, size_t n), to, n)
WRAP(char *, realpath, (const char *path, char *to), path, to)
WRAP(int, unlink, (const char *path), path)
WRAP(int, ftruncate64, (int fd, off64_t n), fd, n)
WRAP(void *, mmap, (void *at, size_t n, int prot, int flags, int fd, off_t from), at, n, prot, flags, fd, from)
WRAP(void *, mmap64, (void *at, size_t n, int prot, int flags, int fd, off_t from), at, n, prot, flags, fd, from)
WRAP(int, munmap, (void *at, size_t n), at, n)
WRAP(int, mprotect, (void *at, size_t n, int prot), at, n, prot)
WRAP(int, madvise, (void *at, size_t n, int advice), at, n, advice)
WRAP(void *, sbrk, (intptr_t n), n)
WRAP(char *, getenv, (const char *name), name)
WRAP(char *, secure_getenv, (const char *name), name)
WRAP(long, syscall, (long n, ...), n)
WRAP(int, sched_yield, (void))
WRAP(int, sched_getcpu, (void))
WRAP(int, nanosleep, (const struct timespec *t, struct timespec *left), t, left)
WRAP(int, clock_gettime, (clockid_t clock, struct timespec *t), clock, t)
WRAP(pid_t, gettid, (void))
WRAP(pid_t, getpid, (void))
WRAP(unsigned long, getauxval, (unsigned long kind), kind)
WRAP(long, sysconf, (int name), name)
WRAP(int, sigaction, (int n, const struct sigaction *act, struct sigaction *old), n, act, old)
WRAP(int, sigprocmask, (int how, const sigset_t *set, sigset_t *old), how, set, old)
WRAP(int, pthread_sigmask, (int how, const sigset_t *set, sigset_t *old), how, set, old)
WRAP(int, pthread_create, (pthread_t * t, const pthread_attr_t *a, void *(*f)(void *), void *x), t, a, f, x)
WRAP(int, pthread_attr_init, (pthread_attr_t * a), a)
WRAP(int, pthread_attr_destroy, (pthread_attr_t * a), a)
WRAP(int, pthread_attr_setstacksize, (pthread_attr_t * a, size_t n), a, n)
WRAP(int, pthread_attr_setdetachstate, (pthread_attr_t * a, int how), a, how)
WRAP(int, pthread_setcanceltype, (int type, int *old), type, old)
WRAP(int, pthread_mutex_init, (pthread_mutex_t * m, const pthread_mutexattr_t *a), m, a)
WRAP(int, pthread_mutex_lock, (pthread_mutex_t * m), m)
WRAP(int, pthread_mutex_trylock, (pthread_mutex_t * m), m)
WRAP(int, pthread_mutex_unlock, (pthread_mutex_t * m), m)
WRAP(int, pthread_cond_wait, (pthread_cond_t * c, pthread_mutex_t *m), c, m)
WRAP(int, pthread_cond_signal, (pthread_cond_t * c), c)
WRAP(int, pthread_key_create, (pthread_key_t * k, void (*f)(void *)), k, f)
WRAP(int, pthread_setspecific, (pthread_key_t k, const void *v), k, v)
WRAP(void *, pthread_getspecific, (pthread_key_t k), k)
WRAP(int, pthread_setname_np, (pthread_t t, const char *name), t, name)
WRAP(int, pthread_atfork, (void (*a)(void), void (*b)(void), void (*c)(void)), a, b, c)
WRAP(int, dl_iterate_phdr, (int (*f)(struct dl_phdr_info *, size_t, void *), void *x), f, x)
WRAP(int, dladdr, (const void *at, Dl_info *info), at, info)
WRAP(int, backtrace, (void **to, int n), to, n)
WRAP(int, _Unwind_Backtrace, (int (*f)(void *, void *), void *x), f, x)
WRAP(const void *, _Unwind_Find_FDE, (void *pc, void *bases), pc, bases)
struct dl_find_object; /* glibc before 2.35 has none */
WRAP(int, _dl_find_object, (void *pc, struct dl_find_object *result), pc, result)
WRAP(int, unw_backtrace, (void **to, int n), to, n)
WRAP(int, fputs, (const char *text, FILE *to), text, to)
WRAP(int, at_quick_exit, (void (*f)(void)), f)
WRAP(DIR *, opendir, (const char *path), path)

void *kept[2];

OWN_FRAME static void allocates(void)
{
    is_allocating = 1;
    kept[0] = malloc(27001);
    for (int i = 0; i < 2000; i++)
        free(escapes(malloc((size_t)(i * 31))));
    free(escapes(malloc(64 << 20)));
    kept[0] = realloc(kept[0], 27002);
    is_allocating = 0;
}

OWN_FRAME static void *thread_main(void *nothing)
{
    is_ours = 1;
    is_allocating = 1;
    kept[1] = malloc(27003);
    is_allocating = 0;
    is_noting = 1; /* libc's own work at the thread's end */
    return nothing;
}

int main(void)
{
    is_ours = 1;
    allocates();
    pthread_t thread;
    if (pthread_create(&thread, NULL, thread_main, NULL) != 0)
        return 2;
    pthread_join(thread, NULL);
    struct timespec pause = {.tv_nsec = 150000000}; /* time for all other threads */
    nanosleep(&pause, NULL);
    int all = n_strangers;
    for (int i = 0; i < all && i < 256; i++)
        printf("FAIL %s: called by somebody else (expected by the program only)\n", strangers[i]);
    if (all == 0)
        printf("ok no_strangers\n");
    printf("stack 27002 allocates main\n");
    printf("stack 27003 thread_main ...\n");
    fflush(stdout);
    is_noting = 1;
    return all != 0;
}
