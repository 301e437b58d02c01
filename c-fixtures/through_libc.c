/* Situation: libc stands between the program and its allocations. It allocates itself (strdup), or
 * calls back a function that allocates (once, at exit, walking a tree of files, comparing, reading
 * a stream).
 * A correct profiler shows the program's functions on both sides of libc's, down to main or to the
 * thread's first.
 * If it is wrong: a libc without unwind tables and frame pointers, as musl is, ends each of these
 * walks, or leads them astray: the caller is missing, or is a function that called nothing.
 */
#define _GNU_SOURCE
#include "frames.h"

#include <dirent.h>
#include <ftw.h>
#include <pthread.h>
#include <search.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static char letters[41001], longer[50000];
void *kept[16];

OWN_FRAME static void duplicates(void) { kept[0] = escapes(strdup(letters)); NO_TAIL_CALL(); }
OWN_FRAME static void duplicates_a_part(void) { kept[1] = escapes(strndup(longer, 41001)); NO_TAIL_CALL(); }

OWN_FRAME static void happens_once(void) { kept[2] = malloc(41003); NO_TAIL_CALL(); }
OWN_FRAME static void lets_it_happen(void)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    pthread_once(&once, happens_once);
    NO_TAIL_CALL();
}

OWN_FRAME static int filters(const struct dirent *entry)
{
    (void)entry;
    if (kept[3] == NULL)
        kept[3] = malloc(41004);
    return 0;
}
OWN_FRAME static void scans(void)
{
    struct dirent **names;
    if (scandir("/", &names, filters, alphasort) == 0)
        free(names);
}

OWN_FRAME static int meets_a_file(const char *path, const struct stat *stat, int kind, struct FTW *where)
{
    (void)path, (void)stat, (void)kind, (void)where;
    kept[4] = malloc(41005);
    return 1;
}
OWN_FRAME static void walks_a_tree(void) { nftw("/", meets_a_file, 4, FTW_PHYS); NO_TAIL_CALL(); }

OWN_FRAME static int compares(const void *a, const void *b)
{
    if (kept[5] == NULL)
        kept[5] = malloc(41006);
    return strcmp(a, b);
}
OWN_FRAME static void searches_a_tree(void)
{
    static void *root;
    tsearch("one", &root, compares);
    tsearch("another", &root, compares);
    NO_TAIL_CALL();
}

OWN_FRAME static ssize_t fills(void *cookie, char *buffer, size_t size)
{
    (void)cookie;
    kept[6] = malloc(41007);
    memset(buffer, 'x', size);
    return (ssize_t)size;
}
OWN_FRAME static void reads_a_stream(void)
{
    cookie_io_functions_t functions = {.read = fills};
    FILE *stream = fopencookie(NULL, "r", functions);
    char bytes[8];
    if (stream == NULL || fread(bytes, 1, sizeof bytes, stream) != sizeof bytes)
        puts("FAIL stream");
    NO_TAIL_CALL();
}

OWN_FRAME static void *in_a_thread(void *unused)
{
    (void)unused;
    kept[7] = escapes(strndup(longer, 41007));
    return NULL;
}

OWN_FRAME static void at_the_end(void) { kept[8] = malloc(41009); NO_TAIL_CALL(); }

int main(void)
{
    memset(letters, 'a', 41000);
    memset(longer, 'b', 49999);
    duplicates();
    duplicates_a_part();
    lets_it_happen();
    scans();
    walks_a_tree();
    searches_a_tree();
    reads_a_stream();
    pthread_t thread;
    pthread_create(&thread, NULL, in_a_thread, NULL);
    pthread_join(thread, NULL);
    atexit(at_the_end);

    puts("stack 41001 ... duplicates main");
    puts("stack 41002 ... duplicates_a_part main");
    puts("stack 41003 happens_once ... lets_it_happen main");
    puts("stack 41004 filters ... scans main");
    puts("stack 41005 meets_a_file ... walks_a_tree main");
    puts("stack 41006 compares ... searches_a_tree main");
    puts("stack 41007 fills ... reads_a_stream main");
    puts("stack 41008 ... in_a_thread ...");
    puts("stack 41009 at_the_end ...");
    return 0;
}
