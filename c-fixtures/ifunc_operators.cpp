/* Situation: an IFUNC resolver in C++. The loader calls it while it relocates the program, before
 * any constructor. It allocates by operator new, in several forms, and gives some blocks back.
 * A correct profiler (which may export the operators) serves it, and the blocks can be used and
 * deleted later.
 * If it is wrong: SIGSEGV before main, in code that is not ready, or later, in the delete.
 */
#include "frames.h"

#include <cstdio>
#include <cstring>
#include <new>

static char *plain, *array, *quiet, *aligned;

static int implementation() { return 37; }

extern "C" int (*resolve())()
{
    plain = static_cast<char *>(::operator new(37001));
    array = new char[300];
    quiet = new (std::nothrow) char[400];
    aligned = static_cast<char *>(::operator new(500, std::align_val_t(256)));
    memset(plain, 'p', 37001);
    memset(array, 'a', 300);
    memset(quiet, 'q', 400);
    memset(aligned, 'l', 500);
    delete[] new char[50];
    ::operator delete(::operator new(60), 60);
    return implementation;
}

int resolved() __attribute__((ifunc("resolve")));

static bool is_filled(const char *block, size_t size, char with)
{
    for (size_t i = 0; i < size; i++)
        if (block[i] != with)
            return false;
    return true;
}

int main()
{
    bool filled = resolved() == 37 && is_filled(plain, 37001, 'p') && is_filled(array, 300, 'a') &&
                  is_filled(quiet, 400, 'q') && is_filled(aligned, 500, 'l');
    bool lies_well = reinterpret_cast<unsigned long>(aligned) % 256 == 0;
    ::operator delete(plain);
    delete[] array;
    delete[] quiet;
    ::operator delete(aligned, std::align_val_t(256));
    char *after = new char[37003];
    std::printf(filled ? "ok contents\n" : "FAIL contents: 0 (expected 1)\n");
    std::printf(lies_well ? "ok aligned\n" : "FAIL aligned: 0 (expected 1)\n");
    std::printf("count 37003 1 1\n");
    escapes(after);
    return !(filled && lies_well);
}
