// Situation: C++ allocates while an exception is on its way: in the thrown object's constructor, in
// a destructor that the unwinder runs, in the catch block, and after a rethrow.
// A correct profiler shows the functions that are still on the stack at that moment, and no others;
// the exception arrives where it should.
// If it is wrong: replaced return addresses make the unwinder abort; cached frames of functions
// that have returned show up below the catch block; or a hook that cannot be unwound ends in
// std::terminate.
//
// gcc moves the catch block into a part of its own, far from the function, with the symbol
// catches_and_rethrows.cold. DWARF knows it by the function's name, which is expected here.
#include "frames.h"

#include <cstdio>
#include <cstdlib>

void *kept[5];

struct Thrown {
    OWN_FRAME Thrown() { kept[0] = std::malloc(7001); }
};

struct Guard {
    OWN_FRAME ~Guard() { kept[1] = std::malloc(7002); }
};

extern "C" {

OWN_FRAME static void throws()
{
    throw Thrown();
}

OWN_FRAME static void has_guard()
{
    Guard guard;
    escapes(&guard);
    throws();
    NO_TAIL_CALL();
}

OWN_FRAME static void catches_and_rethrows()
{
    try {
        has_guard();
    } catch (const Thrown &) {
        kept[2] = std::malloc(7003);
        throw;
    }
}

OWN_FRAME static void catches()
{
    try {
        catches_and_rethrows();
    } catch (const Thrown &) {
        kept[3] = std::malloc(7004);
    }
    kept[4] = std::malloc(7005);
}

} // extern "C"

int main()
{
    catches();
    std::printf("stack 7001 Thrown::Thrown throws has_guard catches_and_rethrows catches main\n");
    std::printf("stack 7002 Guard::~Guard has_guard catches_and_rethrows catches main\n");
    std::printf("stack 7003 catches_and_rethrows catches main\n");
    std::printf("stack 7004 catches main\n");
    std::printf("stack 7005 catches main\n");
}
