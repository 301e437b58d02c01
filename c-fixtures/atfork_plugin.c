/* Plug-in of atfork_unloaded.c: its handlers disappear with it. */
#include <pthread.h>
#include <stdlib.h>

extern int handlers_called;

static void prepares(void) { free(malloc(100)); handlers_called++; }
static void afterwards(void) { free(malloc(100)); handlers_called++; }

__attribute__((constructor)) static void registers(void) { pthread_atfork(prepares, afterwards, afterwards); }
