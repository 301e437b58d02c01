// Situation: as own_malloc, in C++: the program exports its own malloc and no operators. So that
// malloc serves operator new, which is the C++ library's.
//
// A correct profiler records at the entries of the program's functions, and leaves operator new
// unchanged.
//
// If it is wrong: operator new is the profiler's, past the program's allocator. Then its accounts
// are wrong, and its blocks meet the other's free.
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <new>
#include <string>

#include "frames.h"

namespace {

constexpr std::size_t piece_bytes = 4 << 20;
alignas(64) char piece[piece_bytes];
std::size_t used;
int failures;

void check(bool holds, const char *name)
{
    std::printf(holds ? "ok %s\n" : "FAIL %s: no (expected yes)\n", name);
    failures += !holds;
}

bool is_mine(void *block) { return block >= piece && block < piece + piece_bytes; }

void *cut(std::size_t alignment, std::size_t size)
{
    std::size_t begin = (used + alignment - 1) / alignment * alignment;
    if (size > piece_bytes || begin + size > piece_bytes) {
        errno = ENOMEM;
        return nullptr;
    }
    used = begin + size;
    return piece + begin;
}

} // namespace

extern "C" {
void *malloc(std::size_t size) { return cut(16, size); }
void *calloc(std::size_t count, std::size_t size) { return cut(16, count * size); }
void *aligned_alloc(std::size_t alignment, std::size_t size) { return cut(alignment, size); }
// The function that operator new with an alignment calls in later libraries.
int posix_memalign(void **block, std::size_t alignment, std::size_t size)
{
    *block = cut(alignment, size);
    return *block != nullptr ? 0 : ENOMEM;
}
void *realloc(void *, std::size_t) { return nullptr; }
void free(void *block)
{
    if (block != nullptr && !is_mine(block))
        std::abort();
}
}

int main()
{
    void *one = escapes(::operator new(100));
    void *array = escapes(::operator new[](100, std::nothrow));
    void *aligned = escapes(::operator new(100, std::align_val_t{64}));
    check(is_mine(one) && is_mine(array) && is_mine(aligned), "new");
    ::operator delete(one, std::size_t{100});
    ::operator delete[](array);
    ::operator delete(aligned, std::align_val_t{64});
    // A block of one is a block of the other, as without a profiler.
    ::operator delete(escapes(std::malloc(100)));
    std::free(escapes(::operator new(100)));
    check(true, "delete");
    std::string text(1000, 'x');
    check(is_mine(&text[0]), "string");
    bool threw = false;
    try {
        escapes(::operator new(2 * piece_bytes));
    } catch (const std::bad_alloc &) {
        threw = true;
    }
    check(threw, "bad_alloc");
    return failures != 0;
}
