// Situation: a C++ program is linked with another allocator, which defines operator new and
// operator delete itself. (The Makefile links it with jemalloc, if that is installed; the program
// names none of its functions.)
//
// A correct profiler serves both ends of every block or none, and records the operators'
// allocations: the `count` lines hold, and the `stack` lines end in the function that allocated.
//
// If it is wrong: the other allocator's operator new meets the profiler's free, or the reverse, and
// the program crashes. Or all C++ allocations are missing from the profile.
#include <unistd.h>

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <new>
#include <string>
#include <thread>
#include <vector>

#include "frames.h"

namespace {

int failures;

void check(bool holds, const char *name)
{
    std::printf(holds ? "ok %s\n" : "FAIL %s: no (expected yes)\n", name);
    failures += !holds;
}

constexpr std::align_val_t align_256{256};
const volatile std::size_t impossible = PTRDIFF_MAX;

struct Wide {
    alignas(64) char bytes[27200];
};

} // namespace

// One form of operator new each; the sizes are the `count` lines' below.

extern "C" OWN_FRAME void *by_new()
{
    void *block = escapes(::operator new(27001));
    NO_TAIL_CALL();
    return block;
}

extern "C" OWN_FRAME void *by_new_array()
{
    void *block = escapes(new char[27002]);
    NO_TAIL_CALL();
    return block;
}

extern "C" OWN_FRAME void *by_new_nothrow()
{
    void *block = escapes(::operator new(27003, std::nothrow));
    NO_TAIL_CALL();
    return block;
}

extern "C" OWN_FRAME void *by_new_array_nothrow()
{
    void *block = escapes(::operator new[](27004, std::nothrow));
    NO_TAIL_CALL();
    return block;
}

extern "C" OWN_FRAME void *by_new_aligned()
{
    void *block = escapes(::operator new(27136, align_256));
    NO_TAIL_CALL();
    return block;
}

extern "C" OWN_FRAME void *by_new_array_aligned()
{
    void *block = escapes(::operator new[](27392, align_256));
    NO_TAIL_CALL();
    return block;
}

extern "C" OWN_FRAME void *by_new_aligned_nothrow()
{
    void *block = escapes(::operator new(27648, align_256, std::nothrow));
    NO_TAIL_CALL();
    return block;
}

extern "C" OWN_FRAME void *by_new_array_aligned_nothrow()
{
    void *block = escapes(::operator new[](27904, align_256, std::nothrow));
    NO_TAIL_CALL();
    return block;
}

extern "C" OWN_FRAME void *by_new_wide()
{
    void *block = escapes(new Wide);
    NO_TAIL_CALL();
    return block;
}

extern "C" OWN_FRAME void *by_malloc()
{
    void *block = escapes(std::malloc(27013));
    NO_TAIL_CALL();
    return block;
}

namespace {

// Four blocks of each form; two are freed, by two forms of operator delete.
template <class Allocates, class Frees, class FreesToo>
void four(Allocates allocates, Frees frees, FreesToo frees_too)
{
    void *blocks[4];
    for (void *&block : blocks) {
        block = allocates();
        std::memset(block, 1, 27001);
    }
    frees(blocks[1]);
    frees_too(blocks[2]);
}

void forms()
{
    four(by_new, [](void *p) { ::operator delete(p); }, [](void *p) { ::operator delete(p, std::size_t{27001}); });
    four(by_new_array, [](void *p) { delete[] static_cast<char *>(p); },
         [](void *p) { ::operator delete[](p, std::size_t{27002}); });
    four(by_new_nothrow, [](void *p) { ::operator delete(p, std::nothrow); }, [](void *p) { ::operator delete(p); });
    four(by_new_array_nothrow, [](void *p) { ::operator delete[](p, std::nothrow); },
         [](void *p) { ::operator delete[](p); });
    four(by_new_aligned, [](void *p) { ::operator delete(p, align_256); },
         [](void *p) { ::operator delete(p, std::size_t{27136}, align_256); });
    four(by_new_array_aligned, [](void *p) { ::operator delete[](p, align_256); },
         [](void *p) { ::operator delete[](p, std::size_t{27392}, align_256); });
    four(by_new_aligned_nothrow, [](void *p) { ::operator delete(p, align_256, std::nothrow); },
         [](void *p) { ::operator delete(p, align_256); });
    four(by_new_array_aligned_nothrow, [](void *p) { ::operator delete[](p, align_256, std::nothrow); },
         [](void *p) { ::operator delete[](p, align_256); });
    four(by_new_wide, [](void *p) { delete static_cast<Wide *>(p); }, [](void *p) { delete static_cast<Wide *>(p); });
    four(by_malloc, [](void *p) { std::free(p); }, [](void *p) { std::free(p); });
    check(true, "forms");

    void *aligned = by_new_aligned();
    check(reinterpret_cast<std::uintptr_t>(aligned) % 256 == 0, "aligned");
    ::operator delete(aligned, align_256);
}

// Blocks that the standard library allocates and frees, in its own code and inlined here, and in
// two threads.
void containers()
{
    std::vector<std::string> strings;
    std::thread thread([&strings] {
        for (int i = 0; i < 1000; i++)
            strings.push_back(std::string(static_cast<std::size_t>(i), 'x') + std::to_string(i));
    });
    thread.join();
    std::size_t bytes = 0;
    for (auto &string : strings)
        bytes += string.size();
    auto shared = std::make_shared<std::vector<std::string>>(std::move(strings));
    check(bytes == 499500 + 2890 && shared->size() == 1000, "containers");
}

// ---- failure ----

template <class Allocates>
bool throws_bad_alloc(Allocates allocates)
{
    try {
        escapes(allocates());
    } catch (const std::bad_alloc &) {
        return true;
    }
    return false;
}

struct FromHandler {};
int handler_calls;

void gives_up_at_third_call()
{
    if (++handler_calls == 3)
        std::set_new_handler(nullptr);
}

void throws_its_own()
{
    handler_calls++;
    throw FromHandler();
}

void throws_bad_alloc_itself()
{
    handler_calls++;
    throw std::bad_alloc();
}

template <class Allocates>
int calls_of_handler(Allocates allocates)
{
    handler_calls = 0;
    std::set_new_handler(gives_up_at_third_call);
    allocates();
    std::set_new_handler(nullptr);
    return handler_calls;
}

void failures_of_new()
{
    check(throws_bad_alloc([] { return ::operator new(impossible); }), "new_throws");
    check(throws_bad_alloc([] { return ::operator new[](impossible); }), "new_array_throws");
    check(throws_bad_alloc([] { return ::operator new(impossible, align_256); }), "new_aligned_throws");
    check(throws_bad_alloc([] { return ::operator new[](impossible, align_256); }), "new_array_aligned_throws");
    check(!::operator new(impossible, std::nothrow), "new_nothrow_null");
    check(!::operator new[](impossible, std::nothrow), "new_array_nothrow_null");
    check(!::operator new(impossible, align_256, std::nothrow), "new_aligned_nothrow_null");
    check(!::operator new[](impossible, align_256, std::nothrow), "new_array_aligned_nothrow_null");

    check(calls_of_handler([] { throws_bad_alloc([] { return ::operator new[](impossible); }); }) == 3, "handler");
    check(calls_of_handler([] { escapes(::operator new[](impossible, std::nothrow)); }) == 3, "handler_nothrow");
    check(calls_of_handler([] { throws_bad_alloc([] { return ::operator new(impossible, align_256); }); }) == 3,
          "handler_aligned");

    // An exception of a handler reaches the caller; a form that must not throw returns null.
    std::set_new_handler(throws_its_own);
    handler_calls = 0;
    bool caught = false;
    try {
        escapes(::operator new(impossible));
    } catch (const FromHandler &) {
        caught = true;
    }
    check(caught && handler_calls == 1, "handler_throws");
    std::set_new_handler(throws_bad_alloc_itself);
    handler_calls = 0;
    check(!::operator new(impossible, std::nothrow) && handler_calls == 1, "handler_throws_nothrow");
    std::set_new_handler(nullptr);
}

} // namespace

int main()
{
    /* A library that looks for the operators too early may begin libc before libc has its
     * arguments. */
    check(environ != nullptr && environ[0] != nullptr, "environment");
    forms();
    containers();
    failures_of_new();
    // size, allocated, in use
    for (int size : {27001, 27002, 27003, 27004, 27392, 27648, 27904, 27013, int{sizeof(Wide)}})
        std::printf("count %d 4 2\n", size);
    std::puts("count 27136 5 2");
    std::puts("stack 27001 by_new ... main");
    std::puts("stack 27002 by_new_array ... main");
    std::puts("stack 27003 by_new_nothrow ... main");
    std::puts("stack 27004 by_new_array_nothrow ... main");
    std::puts("stack 27136 by_new_aligned ... main");
    std::puts("stack 27392 by_new_array_aligned ... main");
    std::puts("stack 27648 by_new_aligned_nothrow ... main");
    std::puts("stack 27904 by_new_array_aligned_nothrow ... main");
    std::printf("stack %zu by_new_wide ... main\n", sizeof(Wide));
    std::puts("stack 27013 by_malloc ... main");
    return failures != 0;
}
