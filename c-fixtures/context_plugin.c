/* Plug-in of opened_contexts.c: the thread-local variable of OpenTelemetry's thread contexts. It is
 * built twice. One has its variables at one distance from the thread pointer in every thread, the
 * other in a block that each thread makes at its first use. */
#include "frames.h"

__thread void *otel_thread_ctx_v1;

void publish(void *context);

OWN_FRAME void publish(void *context) { otel_thread_ctx_v1 = context; }
