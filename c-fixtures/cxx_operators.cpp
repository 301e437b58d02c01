// Situation: a C++ program uses every form of operator new and operator delete, lets them fail, and
// throws through frames that hold allocations.
// A correct profiler changes nothing: bad_alloc arrives, the new_handler is called and may help,
// nothrow returns null, and blocks made by one form are freed by its partner.
// If it is wrong: an exception meets a hook that cannot be unwound and ends in std::terminate; the
// new_handler is not called; or an aligned block goes to the wrong free.
//
// Output is as in api_conformance.c: `ok <name>` or `FAIL <name>: <got> (expected ...)`, exit
// status 0 or 1.
#include <unistd.h>
#include "frames.h"

#include <cstdint>
#include <cstdio>
#include <cstring>
#include <memory>
#include <new>
#include <string>
#include <vector>

#include <sys/resource.h>

namespace {

int failures;

void check(bool good, const char *name, const char *got_and_expected)
{
    if (good)
        std::printf("ok %s\n", name);
    else
        std::printf("FAIL %s: %s\n", name, got_and_expected);
    failures += !good;
}

bool is_usable(void *block, std::size_t size, std::size_t alignment)
{
    if (block == nullptr || reinterpret_cast<std::uintptr_t>(block) % alignment != 0)
        return false;
    std::memset(block, 0x5a, size);
    return true;
}

const volatile std::size_t size_100 = 100;
const volatile std::size_t impossible = SIZE_MAX / 2 + 1;
constexpr std::align_val_t align_64{64};
constexpr std::align_val_t align_4096{4096};

// ---- every form once: 8 of new, 12 of delete, called as the functions they are ----

void plain_forms()
{
    void *block = ::operator new(size_100);
    check(is_usable(block, 100, 16), "new", "unusable (expected 100 bytes, aligned 16)");
    ::operator delete(block);
    block = ::operator new(size_100);
    ::operator delete(block, size_100);
    check(true, "delete_sized", "");
    block = ::operator new(size_100, std::nothrow);
    check(is_usable(block, 100, 16), "new_nothrow", "unusable (expected 100 bytes, aligned 16)");
    ::operator delete(block, std::nothrow);
    check(true, "delete_nothrow", "");
}

void array_forms()
{
    void *block = ::operator new[](size_100);
    check(is_usable(block, 100, 16), "new_array", "unusable (expected 100 bytes, aligned 16)");
    ::operator delete[](block);
    block = ::operator new[](size_100);
    ::operator delete[](block, size_100);
    check(true, "delete_array_sized", "");
    block = ::operator new[](size_100, std::nothrow);
    check(is_usable(block, 100, 16), "new_array_nothrow", "unusable (expected 100 bytes, aligned 16)");
    ::operator delete[](block, std::nothrow);
    check(true, "delete_array_nothrow", "");
}

void aligned_forms()
{
    void *block = ::operator new(size_100, align_64);
    check(is_usable(block, 100, 64), "new_aligned", "unusable (expected 100 bytes, aligned 64)");
    ::operator delete(block, align_64);
    block = ::operator new(size_100, align_4096);
    check(is_usable(block, 100, 4096), "new_aligned_4096", "unusable (expected 100 bytes, aligned 4096)");
    ::operator delete(block, size_100, align_4096);
    check(true, "delete_sized_aligned", "");
    block = ::operator new(size_100, align_64, std::nothrow);
    check(is_usable(block, 100, 64), "new_aligned_nothrow", "unusable (expected 100 bytes, aligned 64)");
    ::operator delete(block, align_64, std::nothrow);
    check(true, "delete_aligned_nothrow", "");
}

void aligned_array_forms()
{
    void *block = ::operator new[](size_100, align_64);
    check(is_usable(block, 100, 64), "new_array_aligned", "unusable (expected 100 bytes, aligned 64)");
    ::operator delete[](block, align_64);
    block = ::operator new[](size_100, align_4096);
    check(is_usable(block, 100, 4096), "new_array_aligned_4096", "unusable (expected 100 bytes, aligned 4096)");
    ::operator delete[](block, size_100, align_4096);
    check(true, "delete_array_sized_aligned", "");
    block = ::operator new[](size_100, align_64, std::nothrow);
    check(is_usable(block, 100, 64), "new_array_aligned_nothrow", "unusable (expected 100 bytes, aligned 64)");
    ::operator delete[](block, align_64, std::nothrow);
    check(true, "delete_array_aligned_nothrow", "");
}

void null_and_zero()
{
    // Deleting null does nothing, in every form.
    ::operator delete(nullptr);
    ::operator delete(nullptr, size_100);
    ::operator delete(nullptr, align_64);
    ::operator delete(nullptr, size_100, align_64);
    ::operator delete[](nullptr);
    ::operator delete[](nullptr, size_100);
    ::operator delete[](nullptr, align_64);
    ::operator delete[](nullptr, size_100, align_64);
    check(true, "delete_null", "");

    // operator new(0) returns unique blocks.
    const volatile std::size_t zero = 0;
    void *a = ::operator new(zero), *b = ::operator new(zero);
    check(a != nullptr && b != nullptr && a != b, "new_0_unique", "equal or null (expected two blocks)");
    ::operator delete(a);
    ::operator delete(b);
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

void impossible_sizes()
{
    // More than PTRDIFF_MAX bytes: bad_alloc from the throwing forms, null from the others.
    check(throws_bad_alloc([] { return ::operator new(impossible); }), "new_throws", "a block (expected bad_alloc)");
    check(throws_bad_alloc([] { return ::operator new[](impossible); }), "new_array_throws", "a block (expected bad_alloc)");
    check(throws_bad_alloc([] { return ::operator new(impossible, align_64); }), "new_aligned_throws",
          "a block (expected bad_alloc)");
    check(throws_bad_alloc([] { return ::operator new[](impossible, align_64); }), "new_array_aligned_throws",
          "a block (expected bad_alloc)");
    check(::operator new(impossible, std::nothrow) == nullptr, "new_nothrow_null", "a block (expected null)");
    check(::operator new[](impossible, std::nothrow) == nullptr, "new_array_nothrow_null", "a block (expected null)");
    check(::operator new(impossible, align_64, std::nothrow) == nullptr, "new_aligned_nothrow_null", "a block (expected null)");
    check(::operator new[](impossible, align_64, std::nothrow) == nullptr, "new_array_aligned_nothrow_null",
          "a block (expected null)");
    check(throws_bad_alloc([] {
              std::vector<char> vector;
              const volatile std::size_t nearly_all = PTRDIFF_MAX;
              vector.reserve(nearly_all);
              return vector.data();
          }),
          "vector_reserve_throws", "a block (expected bad_alloc)");
}

// ---- new_handler ----

int handler_calls;

void gives_up_at_third_call()
{
    if (++handler_calls == 3)
        std::set_new_handler(nullptr);
}

struct FromHandler {};
void throws_its_own() { throw FromHandler(); }

// A size that the program asks for until the handler has "made room", which it does by shrinking
// the size. operator new keeps its own copy of the size, so this takes the way of real programs:
// ask again with less.
void *asks_until_it_fits()
{
    std::size_t size = impossible;
    for (;;) {
        try {
            return ::operator new(size);
        } catch (const FromHandler &) {
            size = 100;
        }
    }
}

void new_handlers()
{
    // operator new calls the handler again and again until there is none; then it throws.
    handler_calls = 0;
    std::set_new_handler(gives_up_at_third_call);
    bool threw = throws_bad_alloc([] { return ::operator new(impossible); });
    check(threw && handler_calls == 3, "new_handler_called", "not called 3 times (expected 3 calls, then bad_alloc)");

    // The nothrow form calls it too, and returns null at the end.
    handler_calls = 0;
    std::set_new_handler(gives_up_at_third_call);
    void *block = ::operator new(impossible, std::nothrow);
    check(block == nullptr && handler_calls == 3, "new_handler_called_nothrow",
          "not called 3 times (expected 3 calls, then null)");

    handler_calls = 0;
    std::set_new_handler(gives_up_at_third_call);
    threw = throws_bad_alloc([] { return ::operator new(impossible, align_64); });
    check(threw && handler_calls == 3, "new_handler_called_aligned", "not called 3 times (expected 3 calls, then bad_alloc)");

    // An exception of the handler passes through operator new and reaches the caller.
    std::set_new_handler(throws_its_own);
    block = asks_until_it_fits();
    std::set_new_handler(nullptr);
    check(is_usable(block, 100, 16), "new_handler_exception", "no block (expected one after the handler's exception)");
    ::operator delete(block);
}

// ---- recovery: the handler gives back memory, and the same call succeeds ----

std::vector<void *> *reserve;

void gives_back_one_block()
{
    if (reserve->empty()) {
        std::set_new_handler(nullptr);
        return;
    }
    handler_calls++;
    ::operator delete(reserve->back());
    reserve->pop_back();
}

// Address space for 1 GiB more than there is now.
void limit_address_space(rlimit *before)
{
    std::size_t pages = 0;
    std::FILE *statm = std::fopen("/proc/self/statm", "r");
    check(statm != nullptr && std::fscanf(statm, "%zu", &pages) == 1, "statm", "unreadable (expected a number)");
    std::fclose(statm);
    getrlimit(RLIMIT_AS, before);
    rlimit limited = *before;
    limited.rlim_cur = pages * 4096 + (std::size_t{1} << 30);
    setrlimit(RLIMIT_AS, &limited);
}

void recovery()
{
    constexpr std::size_t step = std::size_t{64} << 20;
    std::vector<void *> blocks;
    blocks.reserve(64);
    reserve = &blocks;
    rlimit before;
    limit_address_space(&before);
    void *block;
    while (blocks.size() < blocks.capacity() && (block = ::operator new(step, std::nothrow)) != nullptr)
        blocks.push_back(block);
    bool was_exhausted = !blocks.empty() && blocks.size() < blocks.capacity();
    handler_calls = 0;
    std::set_new_handler(gives_back_one_block);
    block = ::operator new(step, std::nothrow);
    std::set_new_handler(nullptr);
    setrlimit(RLIMIT_AS, &before);
    check(was_exhausted, "address_space_exhausted", "never, or at once (expected after some blocks of 64 MiB)");
    check(block != nullptr && handler_calls >= 1, "new_handler_recovers",
          "null, or handler not called (expected a block after the handler freed one)");
    ::operator delete(block);
    for (void *each : blocks)
        ::operator delete(each);
}

// ---- exceptions through frames that allocate ----

struct Thrown { int depth; };

OWN_FRAME void throws_below(int depth)
{
    std::string text(100 + depth, 'x');
    std::vector<int> numbers(10 + depth);
    auto object = std::make_unique<char[]>(64);
    escapes(object.get());
    if (depth == 0)
        throw Thrown{int(text.size())};
    throws_below(depth - 1);
    escapes(&text);
}

void exceptions()
{
    int caught = 0;
    for (int i = 0; i < 10000; i++) {
        try {
            throws_below(10);
        } catch (const Thrown &thrown) {
            caught += thrown.depth == 100;
        }
    }
    check(caught == 10000, "exceptions_through_allocating_frames", "some lost (expected 10000 caught)");
}

// new T where T's constructor throws: the matching operator delete is called before the exception
// arrives.
int class_news, class_deletes;

struct ThrowsInConstructor {
    char bytes[200];
    OWN_FRAME ThrowsInConstructor() { throw Thrown{1}; }
    static void *operator new(std::size_t size) { class_news++; return ::operator new(size); }
    static void operator delete(void *block, std::size_t size) { class_deletes++; ::operator delete(block, size); }
};

struct alignas(128) AlignedThrows {
    char bytes[256];
    OWN_FRAME AlignedThrows() { throw Thrown{2}; }
};

template <class T>
int count_throws(int times)
{
    int caught = 0;
    for (int i = 0; i < times; i++) {
        try {
            delete new T;
        } catch (const Thrown &) {
            caught++;
        }
    }
    return caught;
}

void constructors()
{
    int caught = count_throws<ThrowsInConstructor>(1000);
    check(caught == 1000 && class_news == 1000 && class_deletes == 1000, "constructor_throws",
          "unbalanced (expected 1000 caught, 1000 news, 1000 deletes)");
    check(count_throws<AlignedThrows>(1000) == 1000, "constructor_throws_aligned", "some lost (expected 1000 caught)");
}

/* A library that looks for the operators too early may begin libc before it has its arguments. */
void environment()
{
    check(environ != nullptr && environ[0] != nullptr, "environment", "none (expected some)");
}

} // namespace

int main()
{
    environment();
    plain_forms();
    array_forms();
    aligned_forms();
    aligned_array_forms();
    null_and_zero();
    impossible_sizes();
    new_handlers();
    recovery();
    exceptions();
    constructors();
    return failures != 0;
}
