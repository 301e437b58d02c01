/* Situation: a library that wraps functions of libc and finds the real ones in its constructor, as
 * tools do that are linked or preloaded to watch, redirect or save (coz, libtorsocks).
 * A call before the constructor has no function to go on to. A call that the program did not make
 * is noted.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <fcntl.h>
#include <grp.h>
#include <link.h>
#include <pthread.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/auxv.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <sys/uio.h>
#include <time.h>
#include <unistd.h>

enum { MOST = 128 };

/* Names, each once; in memory that forked children share. */
static struct calls {
    int n_reached, n_strangers;
    const char *reached[MOST], *strangers[MOST];
} *calls;

static __thread int is_programs;

/* From here on, calls of this thread are the program's, or not. */
void program_calls(int now)
{
    is_programs = now;
}

/* A function that the program's call reached, and one that another caller called; NULL after the
 * last. */
const char *reached(int at)
{
    return at < calls->n_reached ? calls->reached[at] : NULL;
}

const char *stranger(int at)
{
    return at < calls->n_strangers ? calls->strangers[at] : NULL;
}

/* A system call past all wrappers of `syscall`. */
static long bare(long number, long a, long b, long c, long d, long e)
{
    long answer;
    register long r10 __asm__("r10") = d, r8 __asm__("r8") = e, r9 __asm__("r9") = 0;
    __asm__ volatile("syscall"
                     : "=a"(answer)
                     : "0"(number), "D"(a), "S"(b), "d"(c), "r"(r10), "r"(r8), "r"(r9)
                     : "rcx", "r11", "memory");
    return answer;
}

static int is_same(const char *a, const char *b)
{
    while (*a != 0 && *a == *b)
        a++, b++;
    return *a == *b;
}

static void note(const char *name, const char **names, int *count)
{
    for (int i = 0; i < *count; i++)
        if (is_same(names[i], name))
            return;
    int at = __atomic_fetch_add(count, 1, __ATOMIC_SEQ_CST);
    if (at < MOST)
        names[at] = name;
}

static void called(const char *name, const void *real)
{
    if (real == NULL) {
        static const char words[] = ": called before the constructor (expected later)\n";
        int len = 0;
        while (name[len] != 0)
            len++;
        bare(SYS_write, 1, (long)"FAIL ", 5, 0, 0);
        bare(SYS_write, 1, (long)name, len, 0, 0);
        bare(SYS_write, 1, (long)words, sizeof words - 1, 0, 0);
        bare(SYS_exit_group, 9, 0, 0, 0, 0);
    }
    if (is_programs)
        note(name, calls->reached, &calls->n_reached);
    else
        note(name, calls->strangers, &calls->n_strangers);
}

struct wrapped {
    const char *name;
    void **real;
};
extern const struct wrapped __start_wrapped[], __stop_wrapped[];

#define WRAP(result, name, parameters, ...)                                                                       \
    static result(*real_##name) parameters;                                                                       \
    static const struct wrapped wrapped_##name                                                                    \
        __attribute__((section("wrapped"), used)) = {#name, (void **)&real_##name};                               \
    result wrapper_##name parameters __asm__(#name);                                                              \
    result wrapper_##name parameters                                                                              \
    {                                                                                                             \
        called(#name, (void *)real_##name);                                                                       \
        return real_##name(__VA_ARGS__);                                                                          \
    }

/* Functions that the program calls below: the profiler may stand before them, and hands on. */
typedef long word;
WRAP(long, syscall, (long n, word a, word b, word c, word d, word e, word f), n, a, b, c, d, e, f)
WRAP(int, prctl, (int n, word a, word b, word c, word d), n, a, b, c, d)
WRAP(void, _exit, (int status), status)
WRAP(void, _Exit, (int status), status)
WRAP(int, execve, (const char *p, char *const *a, char *const *e), p, a, e)
WRAP(int, execv, (const char *p, char *const *a), p, a)
WRAP(int, execvp, (const char *p, char *const *a), p, a)
WRAP(int, execvpe, (const char *p, char *const *a, char *const *e), p, a, e)
WRAP(int, execl, (const char *p, const char *a, const char *b), p, a, b)
WRAP(int, execlp, (const char *p, const char *a, const char *b), p, a, b)
WRAP(int, execle, (const char *p, const char *a, const char *b, char *const *e), p, a, b, e)
WRAP(int, fexecve, (int fd, char *const *a, char *const *e), fd, a, e)
WRAP(int, daemon, (int stay, int keep), stay, keep)
WRAP(int, setuid, (uid_t id), id)
WRAP(int, setgid, (gid_t id), id)
WRAP(int, seteuid, (uid_t id), id)
WRAP(int, setegid, (gid_t id), id)
WRAP(int, setreuid, (uid_t a, uid_t b), a, b)
WRAP(int, setregid, (gid_t a, gid_t b), a, b)
WRAP(int, setresuid, (uid_t a, uid_t b, uid_t c), a, b, c)
WRAP(int, setresgid, (gid_t a, gid_t b, gid_t c), a, b, c)
WRAP(int, setgroups, (size_t n, const gid_t *groups), n, groups)
WRAP(int, initgroups, (const char *user, gid_t group), user, group)
WRAP(int, chroot, (const char *path), path)
WRAP(int, unshare, (int flags), flags)
WRAP(int, setns, (int fd, int kind), fd, kind)
WRAP(void *, mmap, (void *at, size_t n, int p, int f, int fd, off_t o), at, n, p, f, fd, o)
WRAP(int, munmap, (void *at, size_t n), at, n)
WRAP(void *, mremap, (void *at, size_t n, size_t m, int f, void *to), at, n, m, f, to)
WRAP(void *, sbrk, (intptr_t n), n)
WRAP(int, brk, (void *end), end)
WRAP(int, pthread_create, (pthread_t * t, const pthread_attr_t *a, void *(*f)(void *), void *x), t, a, f, x)
WRAP(void *, dlopen, (const char *path, int flags), path, flags)
WRAP(int, dlclose, (void *handle), handle)
#ifdef __GLIBC__
WRAP(void *, mmap64, (void *at, size_t n, int p, int f, int fd, off64_t o), at, n, p, f, fd, o)
WRAP(int, execveat, (int at, const char *p, char *const *a, char *const *e, int f), at, p, a, e, f)
WRAP(void *, dlmopen, (Lmid_t space, const char *path, int flags), space, path, flags)
typedef void (*handler)(void);
WRAP(int, __register_atfork, (handler a, handler b, handler c, void *owner), a, b, c, owner)
#else
WRAP(int, pthread_atfork, (void (*a)(void), void (*b)(void), void (*c)(void)), a, b, c)
#endif

/* Functions that only a profiler would call. */
WRAP(ssize_t, write, (int fd, const void *p, size_t n), fd, p, n)
WRAP(ssize_t, read, (int fd, void *p, size_t n), fd, p, n)
WRAP(ssize_t, pread64, (int fd, void *p, size_t n, off_t at), fd, p, n, at)
WRAP(ssize_t, writev, (int fd, const struct iovec *v, int n), fd, v, n)
WRAP(int, open, (const char *path, int flags, int mode), path, flags, mode)
WRAP(int, open64, (const char *path, int flags, int mode), path, flags, mode)
WRAP(int, openat, (int at, const char *path, int flags, int mode), at, path, flags, mode)
WRAP(int, close, (int fd), fd)
WRAP(off_t, lseek64, (int fd, off_t to, int how), fd, to, how)
WRAP(ssize_t, readlink, (const char *path, char *to, size_t n), path, to, n)
WRAP(char *, getcwd, (char *to, size_t n), to, n)
WRAP(char *, realpath, (const char *path, char *to), path, to)
WRAP(int, mprotect, (void *at, size_t n, int prot), at, n, prot)
WRAP(int, madvise, (void *at, size_t n, int advice), at, n, advice)
WRAP(char *, getenv, (const char *name), name)
WRAP(char *, secure_getenv, (const char *name), name)
WRAP(int, sched_yield, (void))
WRAP(int, sched_getcpu, (void))
WRAP(int, nanosleep, (const struct timespec *t, struct timespec *left), t, left)
WRAP(int, clock_gettime, (clockid_t clock, struct timespec *t), clock, t)
WRAP(int, gettimeofday, (struct timeval * t, void *zone), t, zone)
WRAP(pid_t, gettid, (void))
WRAP(pid_t, getpid, (void))
WRAP(unsigned long, getauxval, (unsigned long kind), kind)
WRAP(long, sysconf, (int name), name)
WRAP(int, sigaction, (int n, const struct sigaction *act, struct sigaction *old), n, act, old)
WRAP(int, sigfillset, (sigset_t * set), set)
WRAP(int, sigemptyset, (sigset_t * set), set)
WRAP(int, pthread_sigmask, (int how, const sigset_t *set, sigset_t *old), how, set, old)
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
WRAP(int, pthread_setname_np, (pthread_t t, const char *name), t, name)
WRAP(pthread_t, pthread_self, (void))
WRAP(int, dl_iterate_phdr, (int (*f)(struct dl_phdr_info *, size_t, void *), void *x), f, x)
WRAP(int, dladdr, (const void *at, Dl_info *info), at, info)
WRAP(int, __cxa_at_quick_exit, (void (*f)(void *), void *x), f, x)
WRAP(int *, __errno_location, (void))
WRAP(void *, memcpy, (void *to, const void *from, size_t n), to, from, n)
WRAP(void *, memmove, (void *to, const void *from, size_t n), to, from, n)
WRAP(void *, memset, (void *to, int byte, size_t n), to, byte, n)
WRAP(void *, memchr, (const void *in, int byte, size_t n), in, byte, n)
WRAP(int, memcmp, (const void *a, const void *b, size_t n), a, b, n)
WRAP(int, bcmp, (const void *a, const void *b, size_t n), a, b, n)
WRAP(size_t, strlen, (const char *text), text)
WRAP(char *, strchr, (const char *text, int byte), text, byte)
WRAP(int, strcmp, (const char *a, const char *b), a, b)
WRAP(int, strncmp, (const char *a, const char *b, size_t n), a, b, n)
WRAP(char *, strncpy, (char *to, const char *from, size_t n), to, from, n)

__attribute__((constructor)) static void find(void)
{
    calls = (void *)bare(SYS_mmap, 0, sizeof *calls, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1);
    for (const struct wrapped *each = __start_wrapped; each < __stop_wrapped; each++)
        *each->real = dlsym(RTLD_NEXT, each->name);
}
