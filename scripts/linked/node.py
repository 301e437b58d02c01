"""Node: a native module that brings an allocator of its own, opened by a running node."""

import os
import subprocess

MODULE = r"""
#include <node_api.h>
#include <stdlib.h>
void *PREFIX_malloc(size_t); void *PREFIX_calloc(size_t, size_t);
void *PREFIX_realloc(void *, size_t); void PREFIX_free(void *);
static void *kept[100000];
static int count;
static size_t bytes;
/* keep(n): takes n blocks, resizes every third, frees every second. Returns the bytes in use. */
static napi_value keep(napi_env env, napi_callback_info info) {
    napi_value arguments[1], result;
    size_t given = 1;
    int n = 0;
    napi_get_cb_info(env, info, &given, arguments, NULL, NULL);
    napi_get_value_int32(env, arguments[0], &n);
    for (int i = 0; i < n && count < 100000; i++) {
        size_t size = 100 + (size_t)i % 5000;
        void *block = i % 5 ? PREFIX_malloc(size) : PREFIX_calloc(1, size);
        if (i % 3 == 0) block = PREFIX_realloc(block, size *= 2);
        if (i % 2) { PREFIX_free(block); continue; }
        kept[count++] = block;
        bytes += size;
    }
    napi_create_string_utf8(env, "", 0, &result);
    napi_create_int64(env, (int64_t)bytes, &result);
    return result;
}
static napi_value blocks(napi_env env, napi_callback_info info) {
    napi_value result;
    (void)info;
    napi_create_int32(env, count, &result);
    return result;
}
NAPI_MODULE_INIT() {
    napi_value function;
    napi_create_function(env, "keep", NAPI_AUTO_LENGTH, keep, NULL, &function);
    napi_set_named_property(env, exports, "keep", function);
    napi_create_function(env, "blocks", NAPI_AUTO_LENGTH, blocks, NULL, &function);
    napi_set_named_property(env, exports, "blocks", function);
    return exports;
}
"""

SCRIPT = """
const module_ = require(process.argv[2]);
const texts = [];
for (let i = 0; i < 20; i++) { module_.keep(1000); texts.push(Buffer.alloc(10000, i).toString('hex')); }
console.log(module_.blocks(), module_.keep(0));
process.reallyExit(0);
"""


def built(folder, prefix, archive):
    """Builds the module over an allocator. Returns the command of node with it."""
    path = lambda name: os.path.join(folder, name)
    with open(path("module.c"), "w") as file:
        file.write(MODULE.replace("PREFIX_", prefix))
    with open(path("work.js"), "w") as file:
        file.write(SCRIPT)
    headers = next(it for it in ("/usr/include/node", "/usr/include/nodejs/src") if os.path.exists(it))
    subprocess.run(["gcc", "-O1", "-g", "-shared", "-fPIC", "-fno-builtin", "-I", headers, path("module.c"), archive, "-lm", "-lpthread", "-o", path("own.node")], check=True)
    return ["node", path("work.js"), path("own.node")]
