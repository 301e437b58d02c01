//! What threads without a cache of jemalloc's are lent, and leave to the next (`allocator/magazines.rs`).

use heapprof_tests::{Run, ranges_of};

/// Before a source: threads that end, one after the other.
const THREADS: &str = r#"
    #define _GNU_SOURCE
    #include <dlfcn.h>
    #include <pthread.h>
    #include <stdatomic.h>
    #include <stdint.h>
    #include <stdio.h>
    #include <stdlib.h>
    #include <string.h>
    #include <sys/wait.h>
    #include <unistd.h>
    static void *in_a_thread(void *(*work)(void *), void *with)
    {
        pthread_t thread;
        void *result;
        if (pthread_create(&thread, NULL, work, with)) exit(9);
        pthread_join(thread, &result);
        return result;
    }
    /* A thread's first block is jemalloc's own: from then on it is lent something. */
    static void arrive(void) { free(malloc(5000)); }
    static void trim(void)
    {
        int (*trim)(size_t) = dlsym(RTLD_DEFAULT, "malloc_trim"); /* musl has none of its own */
        trim(0);
    }
"#;

fn with(parts: &[&str], name: &str) -> Run {
    let flags = ["-w", "-O1", "-fno-builtin", "-pthread"];
    Run::compiled(name, &parts.concat(), &flags)
}

/// The last that was freed comes first, in whatever order that was: jemalloc itself would have the lowest address first. Up to so many, and as large, as a
/// magazine has room for; not after malloc_trim, nor in a thread that is given a cache, whose magazine goes to the next.
#[test]
fn a_thread_takes_up_what_the_one_before_it_left() {
    const SOURCE: &str = r#"
        #include <errno.h>
        static const struct { size_t size; int room; } CLASSES[] = {{16, 64}, {64, 64}, {80, 51}, {256, 16}, {1024, 4}, {1280, 0}};
        enum { AT_ONCE = 6 };
        static char *left[AT_ONCE];
        static int at, not_kept; /* the last ones, for which there was no room */
        static void *leaves(void *nothing)
        {
            char *blocks[AT_ONCE];
            arrive();
            errno = 77;
            for (int i = 0; i < AT_ONCE; i++) blocks[i] = malloc(CLASSES[at].size);
            for (int i = 0; i < AT_ONCE; i++) free(left[AT_ONCE - 1 - i] = blocks[i * 5 % AT_ONCE]);
            return (void *)(long)(errno != 77);
        }
        /* How many of them it has again, in their order. */
        static void *takes(void *nothing)
        {
            char *blocks[AT_ONCE];
            long same = 0;
            arrive();
            for (int i = 0; i < AT_ONCE; i++) {
                blocks[i] = malloc(CLASSES[at].size);
                same += i + not_kept < AT_ONCE && blocks[i] == left[i + not_kept];
            }
            for (int i = 0; i < AT_ONCE; i++) free(blocks[i]);
            return (void *)same;
        }
        static void *comes_to_a_cache(void *nothing)
        {
            char *blocks[1000];
            for (int i = 0; i < 1000; i++) blocks[i] = malloc(64);
            for (int i = 0; i < 1000; i++) free(blocks[i]);
            return leaves(nothing);
        }
        int main(void)
        {
            in_a_thread(leaves, NULL); /* the dynamic linker may have something to allocate */
            for (at = 0; at < sizeof CLASSES / sizeof CLASSES[0]; at++) {
                trim();
                if (in_a_thread(leaves, NULL)) return 7;
                int room = CLASSES[at].room, most = room < AT_ONCE ? room : AT_ONCE;
                not_kept = most ? AT_ONCE - most : 0;
                long same = (long)in_a_thread(takes, NULL);
                printf("%zu: %ld of %d\n", CLASSES[at].size, same, most);
                if (most ? same != most : same == AT_ONCE) return 1;
            }
            at = 1, not_kept = 0;
            in_a_thread(leaves, NULL), trim();
            if ((long)in_a_thread(takes, NULL) == AT_ONCE) return 2;
            in_a_thread(leaves, NULL);
            if ((long)in_a_thread(takes, NULL) != AT_ONCE) return 3;
            /* It leaves what its magazine had when it was full, and not what its cache had. */
            if (in_a_thread(comes_to_a_cache, NULL)) return 7;
            if ((long)in_a_thread(takes, NULL) == AT_ONCE) return 4;
            puts("done");
        }
    "#;
    for interval in [0, 1 << 30, 1] {
        let ran = with(&[THREADS, SOURCE], "takes").interval(interval).run();
        assert_eq!(ran.code(), 0, "{interval}: {}", ran.stdout);
        assert!(ran.stdout.ends_with("done\n"), "{}", ran.stdout);
    }
}

/// What threads left is nobody's, and no leak: it is not counted as in use, which it would be with 200,000 bytes, and does not grow.
#[test]
fn what_is_left_is_not_in_use() {
    const SOURCE: &str = r#"
        /* As mallinfo(3) has it; musl has none. The eighth is what is in use. */
        struct account { size_t of[10]; };
        static pthread_barrier_t all_are_there;
        static struct account account(void)
        {
            struct account (*account)(void) = dlsym(RTLD_DEFAULT, "mallinfo2");
            return account();
        }
        static void *works(void *waits)
        {
            void *blocks[60];
            for (int i = 0; i < 60; i++) blocks[i] = malloc(16 + i * 3);
            for (int i = 0; i < 60; i++) free(blocks[i]);
            if (waits) pthread_barrier_wait(&all_are_there);
            return NULL;
        }
        static long in_use(void) { return account().of[7]; }
        /* More threads at a time than there are magazines. */
        static void many(void)
        {
            pthread_t threads[40];
            pthread_barrier_init(&all_are_there, NULL, 40);
            for (int i = 0; i < 40; i++) pthread_create(&threads[i], NULL, works, works);
            for (int i = 0; i < 40; i++) pthread_join(threads[i], NULL);
        }
        int main(void)
        {
            account(), many();
            for (int i = 0; i < 100; i++) in_a_thread(works, NULL);
            trim();
            long before = in_use();
            many();
            long with = in_use();
            for (int i = 0; i < 100; i++) many();
            long after = in_use();
            trim();
            long at_last = in_use();
            printf("%ld, %ld, %ld, %ld bytes\n", before, with, after, at_last);
            /* Our own cache has some. */
            return labs(with - before) > 16384 || labs(after - before) > 16384 || labs(at_last - before) > 16384;
        }
    "#;
    let run = with(&[THREADS, SOURCE], "left").interval(0);
    let ran = run.run();
    assert_eq!(ran.code(), 0, "{}", ran.stdout);
}

/// Small blocks that go from thread to thread, of which each ends after some of them, with children that go on with what there is, and one thread that empties all
/// magazines: each block is one's at a time.
#[test]
fn small_blocks_from_hand_to_hand() {
    const SOURCE: &str = r#"
        struct block { uint64_t size, with, end[]; };
        static _Atomic(struct block *) shared[256];
        static atomic_int is_done;
        static void fill(struct block *block, size_t size, uint64_t with)
        {
            block->size = size, block->with = with;
            for (size_t at = 0; at < size / 8 - 2; at++) block->end[at] = with + at;
        }
        static void check(struct block *block)
        {
            for (size_t at = 0; at < block->size / 8 - 2; at++)
                if (block->end[at] != block->with + at) puts("not the same"), abort();
            block->with = 0;
        }
        static void *works(void *first)
        {
            uint64_t random = (uint64_t)first * 77777 + 1;
            for (int i = 0; i < 20 + (uint64_t)first % 200; i++) {
                random = random * 6364136223846793005u + 1442695040888963407u;
                size_t size = 16 + (random >> 40) % (random >> 60 ? 16 : 140) * 8;
                struct block *mine = malloc(size);
                fill(mine, size, random);
                struct block *theirs = atomic_exchange(&shared[(random >> 33) % 256], mine);
                if (theirs) check(theirs), free(theirs);
            }
            return NULL;
        }
        static void *begins(void *first)
        {
            for (long i = 0; i < ROUNDS; i++) in_a_thread(works, (void *)((long)first * 1000003 + i));
            return NULL;
        }
        static void *trims(void *nothing)
        {
            while (!is_done) trim(), usleep(1000);
            return nothing;
        }
        int main(void)
        {
            pthread_t threads[8], other;
            pthread_create(&other, NULL, trims, NULL);
            for (long i = 0; i < 8; i++) pthread_create(&threads[i], NULL, begins, (void *)i);
            for (int i = 0; i < 20; i++) {
                pid_t child = fork();
                if (child == 0) {
                    alarm(60);
                    for (long j = 0; j < 50; j++) in_a_thread(works, (void *)(99 + j));
                    _exit(0);
                }
                int status = 0;
                waitpid(child, &status, 0);
                if (status) return 3;
            }
            for (int i = 0; i < 8; i++) pthread_join(threads[i], NULL);
            is_done = 1;
            pthread_join(other, NULL);
            puts("done");
        }
    "#;
    for (interval, rounds) in [(0, 3000), (1 << 19, 3000), (1, 500)] {
        let rounds = format!("#define ROUNDS {rounds}\n");
        let run = with(&[THREADS, &rounds, SOURCE], "hands");
        let ran = run.interval(interval).run();
        assert_eq!(ran.code(), 0, "{interval}: {} {}", ran.stdout, ran.stderr);
    }
}

/// A handler that allocates and frees, at every instruction at which a magazine comes to a thread or is taken from it, at the thread's end and for a cache: what it has is
/// its own, and so is what the thread has.
#[test]
fn a_handler_comes_at_every_instruction() {
    const SOURCE: &str = r#"
        #include <signal.h>
        #include <ucontext.h>
        enum { MOST = 4000 };
        static unsigned long bounds[8];
        static int count;
        static long hits, is_net;
        static void *live[MOST], *held[MOST];
        static int lives, holds;
        static char *block_of(size_t size)
        {
            char *block = malloc(size);
            for (int i = 0; i < lives; i++) if (live[i] == block) puts("a block of the thread's"), abort();
            for (int i = 0; i < holds; i++) if (held[i] == block) puts("a block of the handler's"), abort();
            memset(block, 7, size);
            return block;
        }
        static void handler(int signal, siginfo_t *info, void *context)
        {
            unsigned long pc = ((ucontext_t *)context)->uc_mcontext.gregs[REG_RIP];
            int comes = pc >= bounds[0] && pc < bounds[1], goes = pc >= bounds[2] && pc < bounds[3];
            if (!comes && !goes) return;
            hits++;
            /* Little: with 20 KiB in all the thread would be given a cache, and no magazine. */
            size_t size = hits % 16 ? 16 + hits * 5 % 8 * 16 : 256 + hits / 16 % 4 * 256;
            char *one = block_of(size), *other = block_of(size);
            free(other), free(one);
            /* And more of one than of the other: first it takes, then it gives. */
            if (hits % (comes ? 16 : 2)) return;
            if (is_net > 0 && holds < MOST) held[holds] = block_of(16 + hits % 5 * 16), holds++;
            if (is_net < 0 && holds > 0) holds--, free(held[holds]);
        }
        static void step(int on)
        {
            if (on) asm volatile("pushfq; orq $0x100, (%%rsp); popfq" ::: "memory", "cc");
            else asm volatile("pushfq; andq $~0x100, (%%rsp); popfq" ::: "memory", "cc");
        }
        static pthread_key_t key; /* made after jemalloc's: its destructor is called after that */
        static void ends(void *nothing) { step(0); }
        static void *works(void *blocks)
        {
            pthread_setspecific(key, &key);
            step(1);
            arrive();
            step(0);
            int first = lives;
            for (long i = 0; i < (long)blocks; i++) {
                if ((long)blocks < 100 || i > 100 && i < 220) step(1);
                live[lives++] = malloc(16 + i % 20 * 16);
                step(0);
            }
            for (int i = first; i < lives; i++)
                for (int j = 0; j < i; j++) if (live[i] == live[j]) puts("two of the thread's"), abort();
            for (int i = first; i < lives; i++)
                for (int j = 0; j < holds; j++) if (live[i] == held[j]) puts("the handler's is the thread's"), abort();
            while (lives > first) free(live[--lives]);
            step(1);
            return NULL;
        }
        int main(int argc, char **argv)
        {
            Dl_info library;
            if (!dladdr(dlsym(RTLD_DEFAULT, "malloc"), &library)) return 2;
            for (; count + 1 < argc; count++)
                bounds[count] = (unsigned long)library.dli_fbase + strtoul(argv[count + 1], NULL, 16);
            pthread_key_create(&key, ends);
            sigaction(SIGTRAP, &(struct sigaction){.sa_sigaction = handler, .sa_flags = SA_SIGINFO}, NULL);
            for (int i = 0; i < 12; i++) {
                is_net = i % 4 == 1 ? 1 : i % 4 == 3 ? -1 : 0;
                in_a_thread(works, (void *)(i % 3 == 2 ? 1000L : 60L));
            }
            printf("hits %ld\n", hits);
        }
    "#;
    let functions = ["je_threads13arrives_first", "je_magazines9give_back"];
    let bounds = functions.map(|function| ranges_of(&[function])).concat();
    assert_eq!(bounds.len(), 4, "{bounds:?}");
    let ran = with(&[THREADS, SOURCE], "steps")
        .args(&bounds)
        .interval(0)
        .run();
    assert_eq!(ran.code(), 0, "{} {}", ran.stdout, ran.stderr);
    let hits = ran.stdout.trim().strip_prefix("hits ");
    let hits = hits.and_then(|hits| hits.parse::<u64>().ok());
    assert!(hits > Some(10_000), "{}", ran.stdout);
}
