// Situation: a C++ program replaces operator new and operator delete, as the standard allows, but
// only the two plain forms: the others are defined to call these. Its blocks come from malloc and
// begin with a mark, so their addresses are not malloc's.
//
// A correct profiler leaves all forms of the operators alone, and records the malloc behind them:
// the `count` lines have the marked sizes.
//
// If it is wrong: a form that the program does not define (sized delete, new[]) is the profiler's:
// it frees the middle of a block, and the program crashes.
/* Only some of the operators, on purpose. */
#pragma GCC diagnostic ignored "-Wsized-deallocation"

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <new>
#include <string>

#include "frames.h"

namespace {

constexpr std::size_t mark_bytes = 16;
constexpr char mark[mark_bytes] = "marked by main";
int failures;
long made, ended;

void check(bool holds, const char *name)
{
    std::printf(holds ? "ok %s\n" : "FAIL %s: no (expected yes)\n", name);
    failures += !holds;
}

bool is_marked(void *block) { return std::memcmp(static_cast<char *>(block) - mark_bytes, mark, mark_bytes) == 0; }

} // namespace

OWN_FRAME void *operator new(std::size_t size)
{
    void *block = std::malloc(size + mark_bytes);
    if (block == nullptr)
        throw std::bad_alloc();
    std::memcpy(block, mark, mark_bytes);
    made++;
    return static_cast<char *>(block) + mark_bytes;
}

OWN_FRAME void operator delete(void *block) noexcept
{
    if (block == nullptr)
        return;
    if (!is_marked(block))
        std::abort();
    ended++;
    std::free(static_cast<char *>(block) - mark_bytes);
}

// Calls of the library's forms, unknown to the compiler.
extern "C" {
void _ZdlPvm(void *, std::size_t);
void _ZdaPv(void *);
void _ZdaPvm(void *, std::size_t);
}

extern "C" OWN_FRAME void *by_new_array()
{
    void *block = escapes(::operator new[](28000));
    NO_TAIL_CALL();
    return block;
}

int main()
{
    check(is_marked(escapes(::operator new(100))), "new");
    void *array = by_new_array();
    check(is_marked(array), "new_array");
    void *nothrow = escapes(::operator new(100, std::nothrow));
    check(is_marked(nothrow), "new_nothrow");
    void *nothrow_array = escapes(::operator new[](100, std::nothrow));
    check(is_marked(nothrow_array), "new_array_nothrow");
    _ZdaPv(array);
    _ZdlPvm(nothrow, 100);
    _ZdaPvm(nothrow_array, 100);
    check(made == 4 && ended == 3, "deletes");
    std::string text(1000, 'x');
    check(is_marked(&text[0]), "string"); // allocated by the library's own code
    std::puts("count 28016 1 0");
    std::puts("stack 28016 ... by_new_array main");
    return failures != 0;
}
