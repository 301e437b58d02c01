//! Memory that is kept of freed blocks for the next blocks: jemalloc's caches of threads.

use heapprof_tests::Run;

/// For the start of a source: KiB of the process that are resident.
const RESIDENT: &str = r#"
    #include <stdio.h>
    #include <stdlib.h>
    static long resident(void)
    {
        long pages = 0;
        FILE *statm = fopen("/proc/self/statm", "r");
        if (fscanf(statm, "%*d %ld", &pages) != 1) exit(2);
        fclose(statm);
        return pages * 4;
    }
"#;

/// A thread gets a cache of jemalloc's once that pays, and none for destructors that run after
/// jemalloc's own: such a cache, of many KiB, would stay for ever. The comparison is the same
/// program with jemalloc without any cache. Only the fast path holds caches back: without it every
/// thread has jemalloc's from its first allocation, so the test runs with it always.
#[test]
fn caches_come_late_and_go() {
    const SOURCE: &str = r#"
        #include <errno.h>
        #include <pthread.h>
        enum { THREADS = 300, SMALL = 1000 };
        static pthread_barrier_t all_are_there, may_go;
        static pthread_key_t key;
        static int lost_errno;

        /* 64 KiB allocated, and then freed. */
        static void work(void)
        {
            void *blocks[SMALL];
            errno = 77;
            for (int i = 0; i < SMALL; i++) blocks[i] = malloc(64);
            for (int i = 0; i < SMALL; i++) free(blocks[i]);
            lost_errno |= errno != 77;
        }
        static void *waits(void *block)
        {
            free(block);
            block = malloc(64);
            pthread_barrier_wait(&all_are_there);
            pthread_barrier_wait(&may_go);
            return block;
        }
        static void *works(void *nothing) { work(); return nothing; }
        /* In the last round: there is none in which jemalloc could be called again. */
        static void destroys(void *round)
        {
            if ((long)round < 4) pthread_setspecific(key, (char *)round + 1);
            else work();
        }
        static void *leaves(void *nothing)
        {
            free(malloc(64));
            pthread_setspecific(key, (void *)1);
            return nothing;
        }
        int main(void)
        {
            pthread_t threads[THREADS];
            pthread_barrier_init(&all_are_there, NULL, THREADS + 1);
            pthread_barrier_init(&may_go, NULL, THREADS + 1);
            pthread_key_create(&key, destroys);
            for (int i = 0; i < THREADS; i++) pthread_create(&threads[i], NULL, waits, malloc(64));
            pthread_barrier_wait(&all_are_there);
            printf("waiting %ld\n", resident());
            pthread_barrier_wait(&may_go);
            for (int i = 0; i < THREADS; i++) {
                void *block;
                pthread_join(threads[i], &block);
                free(block);
            }
            for (int i = 0; i < THREADS; i++) {
                pthread_create(&threads[0], NULL, i % 2 ? works : leaves, NULL);
                pthread_join(threads[0], NULL);
            }
            printf("gone %ld\n", resident());
            return lost_errno;
        }
    "#;
    let source = [RESIDENT, SOURCE].concat();
    for interval in [0, 1 << 40] {
        let kib = |options, when: &str| {
            let run = Run::compiled(
                "caches",
                &source,
                &["-w", "-O1", "-fno-builtin", "-pthread"],
            );
            let ran = run
                .env("_RJEM_MALLOC_CONF", options)
                .env("HEAPPROF_FAST_PATH", "1")
                .interval(interval)
                .run()
                .well();
            let said = ran.stdout.lines().find_map(|line| line.strip_prefix(when));
            said.unwrap().trim().parse::<i64>().unwrap()
        };
        for when in ["waiting", "gone"] {
            let (ours, without) = (kib("", when), kib("tcache:false", when));
            assert!(
                ours < without + 2500,
                "{when}: {ours} KiB, and {without} without caches"
            );
        }
    }
}

/// A thread that has only freed has jemalloc structures that are not all ready. It still gets a
/// cache, and has it at its first allocation. Otherwise jemalloc's statistics, which ask every
/// known cache for its contents, would read the cache of an ended thread.
#[test]
fn a_thread_that_frees_first_has_a_cache_that_is_known() {
    const SOURCE: &str = r#"
        #define _GNU_SOURCE
        #include <dlfcn.h>
        #include <pthread.h>
        #include <stdlib.h>
        #include <sys/mman.h>
        /* Fewer than the 128 after which jemalloc makes all ready, and more bytes than a thread goes without a cache. */
        enum { FIRST = 60, BLOCKS = 2000, STACK = 1 << 20 };
        static void *first[FIRST], *blocks[BLOCKS];
        static void *frees_first(void *nothing)
        {
            for (int i = 0; i < FIRST; i++) free(first[i]);
            for (int i = 0; i < BLOCKS; i++) blocks[i] = malloc(64);
            for (int i = 0; i < BLOCKS; i++) free(blocks[i]);
            return nothing;
        }
        struct numbers { size_t all[10]; };
        int main(void)
        {
            struct numbers (*mallinfo)(void) = dlsym(RTLD_DEFAULT, "mallinfo2");
            if (mallinfo == NULL) return 2;
            for (int round = 0; round < 20; round++) {
                pthread_t thread;
                pthread_attr_t attributes;
                /* The thread's words are on its stack, which is gone with it. */
                void *stack = mmap(NULL, STACK, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
                pthread_attr_init(&attributes);
                pthread_attr_setstack(&attributes, stack, STACK);
                for (int i = 0; i < FIRST; i++) first[i] = malloc(1024);
                if (pthread_create(&thread, &attributes, frees_first, NULL) != 0) return 1;
                pthread_join(thread, NULL);
                munmap(stack, STACK);
                mallinfo();
            }
            return 0;
        }
    "#;
    for interval in [0, 1 << 40] {
        let run = Run::compiled("frees_first", SOURCE, &["-O1", "-fno-builtin", "-pthread"]);
        let _ = run.interval(interval).run().well();
    }
}

/// jemalloc's incremental GC of a thread's cache runs as the thread allocates and frees, though
/// small blocks do not reach jemalloc. So unused sizes soon leave the cache.
#[test]
fn a_cache_gives_back_what_is_no_longer_used() {
    const SOURCE: &str = r#"
        #include <pthread.h>
        #include <stdio.h>
        #include <stdlib.h>
        enum { KINDS = 14336 / 16, EACH = 15, BATCH = 100000 };
        static void *of_all_sizes[KINDS * EACH], *batch[BATCH];
        static pthread_barrier_t turn;
        static int is_done;
        static void fill_cache(void)
        {
            for (int i = 0; i < KINDS * EACH; i++) of_all_sizes[i] = malloc((i / EACH + 1) * 16);
            for (int i = 0; i < KINDS * EACH; i++) free(of_all_sizes[i]);
        }
        static void allocate(void)
        {
            for (int i = 0; i < BATCH; i++) { void *volatile block = malloc(64); free(block); }
        }
        static void *frees(void *nothing)
        {
            fill_cache();
            for (pthread_barrier_wait(&turn); pthread_barrier_wait(&turn), !is_done; pthread_barrier_wait(&turn))
                for (int i = 0; i < BATCH; i++) free(batch[i]);
            return nothing;
        }
        static void let_it_free(void)
        {
            for (int i = 0; i < BATCH; i++) batch[i] = malloc(64);
            pthread_barrier_wait(&turn);
            pthread_barrier_wait(&turn);
        }
        int main(int argc, char **argv)
        {
            int by_frees = argv[1][0] == 'f';
            pthread_t thread;
            pthread_barrier_init(&turn, NULL, 2);
            if (by_frees) pthread_create(&thread, NULL, frees, NULL), pthread_barrier_wait(&turn);
            else fill_cache();
            long before = in_use(), after = before;
            for (int i = 0; i < 5000 && after > before / 10; i++) {
                by_frees ? let_it_free() : allocate();
                after = in_use();
            }
            printf("%ld in use, then %ld\n", before, after);
            if (by_frees) is_done = 1, pthread_barrier_wait(&turn), pthread_join(thread, NULL);
            return before < 1000000 || after > before / 10;
        }
    "#;
    for interval in [0, 1 << 40, 512 << 10] {
        for by in ["allocates", "frees"] {
            let run = with(&[ACCOUNT, SOURCE], "looked").args([by]);
            let ran = run.interval(interval).run();
            assert_eq!(ran.code(), 0, "{by}, {interval}: {}", ran.stdout);
        }
    }
}

/// The free pages of a thread go back to the kernel when it ends, as with jemalloc's arenas when
/// their last threads leave.
#[test]
fn a_thread_that_ends_leaves_no_free_pages() {
    const SOURCE: &str = r#"
        #include <pthread.h>
        #include <string.h>
        static void *works(void *nothing)
        {
            void *block = malloc(16 << 20);
            memset(block, 1, 16 << 20);
            free(block);
            return nothing;
        }
        int main(void)
        {
            pthread_t thread;
            long before = resident();
            pthread_create(&thread, NULL, works, NULL);
            pthread_join(thread, NULL);
            printf("%ld KiB more\n", resident() - before);
            return resident() - before > 4096;
        }
    "#;
    let source = [RESIDENT, SOURCE].concat();
    let run = Run::compiled(
        "leaves",
        &source,
        &["-w", "-O1", "-fno-builtin", "-pthread"],
    );
    let ran = run.interval(0).run();
    assert_eq!(ran.code(), 0, "{}", ran.stdout);
}

/// glibc's accounting functions, which musl lacks and the library provides.
const ACCOUNT: &str = r#"
    #define _GNU_SOURCE
    #include <dlfcn.h>
    #include <stddef.h>
    /* As mallinfo(3) has it. */
    struct account { size_t of[10]; };
    static struct account account(void)
    {
        struct account (*account)(void) = dlsym(RTLD_DEFAULT, "mallinfo2");
        return account();
    }
    static long in_use(void) { return account().of[7]; }
    /* In pages that are in no block and not the kernel's. */
    static long unused(void) { return account().of[9]; }
    static void trim(void)
    {
        int (*trim)(size_t) = dlsym(RTLD_DEFAULT, "malloc_trim");
        trim(0);
    }
"#;

/// The fast path keeps the leaf of jemalloc's map for the gibibyte of the first block at hand. A
/// block elsewhere returns to its own bin, too: the next block of its class is that block.
#[test]
fn blocks_far_from_the_first_come_back() {
    const SOURCE: &str = r#"
        #include <malloc.h>
        #include <stdint.h>
        #include <stdio.h>
        #include <stdlib.h>
        enum { MOST = 100000 };
        static void *blocks[MOST];
        int main(void)
        {
            static const size_t SIZES[] = {24, 100, 1000, 20000};
            uintptr_t first = (uintptr_t)malloc(24) >> 30;
            /* Nobody touches it: what is mapped from here on lies below. */
            void *volatile between = malloc((size_t)3 << 30);
            if (between == NULL) return 2;
            int far = 0;
            for (int kind = 0; kind < 4; kind++) {
                int count = 0;
                do blocks[count] = malloc(SIZES[kind]);
                while ((uintptr_t)blocks[count] >> 30 == first && ++count < MOST);
                if (count == MOST) return 3;
                far++;
                void *volatile block = blocks[count];
                size_t usable = malloc_usable_size(block);
                if (usable < SIZES[kind]) return 4;
                free(block);
                void *volatile again = malloc(SIZES[kind]);
                if (again != block || malloc_usable_size(again) != usable) return 5;
            }
            printf("%d\n", far);
            return 0;
        }
    "#;
    for interval in [0, 1] {
        let ran = Run::compiled("far", SOURCE, &[]).interval(interval).run();
        assert_eq!((ran.code(), &*ran.stderr, &*ran.stdout), (0, "", "4\n"));
    }
}

fn with(parts: &[&str], name: &str) -> Run {
    let flags = ["-w", "-O1", "-fno-builtin", "-pthread"];
    Run::compiled(name, &parts.concat(), &flags)
}

/// Blocks that go from thread to thread, with children that go on with them, and one thread that
/// trims: each is one thread's at a time.
#[test]
fn large_blocks_from_hand_to_hand() {
    const SOURCE: &str = r#"
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
        struct block { size_t size; uint64_t with; };
        static _Atomic(struct block *) shared[32];
        static atomic_int is_done;
        static void fill(struct block *block, size_t size, uint64_t with)
        {
            *block = (struct block){size, with};
            for (size_t at = 4096; at < size; at += 4096) *(uint64_t *)((char *)block + at - at % 8) = with + at;
        }
        static void check(struct block *block)
        {
            for (size_t at = 4096; at < block->size; at += 4096)
                if (*(uint64_t *)((char *)block + at - at % 8) != block->with + at) puts("not the same"), abort();
            block->with = 0;
        }
        static void *works(void *first)
        {
            uint64_t random = (uint64_t)first * 77777 + 1;
            for (int i = 0; i < ROUNDS; i++) {
                random = random * 6364136223846793005u + 1442695040888963407u;
                size_t size = ((size_t)36 << (random >> 40) % 5) * 1024 + (random >> 50) % 3 * 4096;
                struct block *mine = malloc(size);
                fill(mine, size, random);
                struct block *theirs = atomic_exchange(&shared[(random >> 33) % 32], mine);
                if (theirs) check(theirs), free(theirs);
            }
            return NULL;
        }
        static void *trims(void *nothing)
        {
            int (*trim)(size_t) = dlsym(RTLD_DEFAULT, "malloc_trim"); /* musl has none of its own */
            while (!is_done) trim(0), usleep(1000);
            return nothing;
        }
        int main(void)
        {
            pthread_t threads[8], other;
            pthread_create(&other, NULL, trims, NULL);
            for (long i = 0; i < 8; i++) pthread_create(&threads[i], NULL, works, (void *)i);
            for (int i = 0; i < 20; i++) {
                pid_t child = fork();
                if (child == 0) alarm(60), works((void *)99), _exit(0);
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
    for (interval, rounds) in [(0, 20_000), (1 << 19, 20_000), (1, 5000)] {
        let rounds = format!("#define ROUNDS {rounds}\n");
        let ran = with(&[&rounds, SOURCE], "hands").interval(interval).run();
        assert_eq!(ran.code(), 0, "{interval}: {} {}", ran.stdout, ran.stderr);
    }
}
