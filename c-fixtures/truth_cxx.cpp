// The C++ part of the program with known truth (truth.c).
//
// Situation: every form of operator new and delete, and standard containers whose requests are
// exactly known: a reserved vector asks for n elements, a long string for capacity() + 1. Node
// containers and allocate_shared use an allocator that accounts its requests.
// A correct profiler charges each block to its site, whatever lies between: operator new in
// libstdc++, templates.
// If it is wrong: a form of operator new is not hooked, or hooked twice (once itself, once through
// malloc).
#include "truth_account.h"
#include "frames.h"

#include <list>
#include <map>
#include <memory>
#include <new>
#include <string>
#include <vector>

namespace {

struct Plain { char bytes[48]; };
struct Large { char bytes[128]; };
struct alignas(64) Aligned { char bytes[192]; };

// Passes requests on to operator new and accounts exactly these. operator delete: the sized form.
template <class T, enum site_account SITE>
struct Recording {
    using value_type = T;
    template <class U> struct rebind { using other = Recording<U, SITE>; };
    Recording() = default;
    template <class U> Recording(const Recording<U, SITE> &) {}
    T *allocate(std::size_t n)
    {
        void *block = ::operator new(n * sizeof(T));
        account_alloc(SITE, block, n * sizeof(T));
        return static_cast<T *>(block);
    }
    void deallocate(T *block, std::size_t n)
    {
        account_free(SITE, n * sizeof(T));
        ::operator delete(block, n * sizeof(T));
    }
    template <class U> bool operator==(const Recording<U, SITE> &) const { return true; }
    template <class U> bool operator!=(const Recording<U, SITE> &) const { return false; }
};

using RecordedList = std::list<Plain, Recording<Plain, site_list_nodes_account>>;
using RecordedMap = std::map<long, long, std::less<long>,
                             Recording<std::pair<const long, long>, site_map_nodes_account>>;

// Memory of one round's containers. It is made outside every site, and reachable for ever.
struct Shelf {
    std::vector<long> vectors[50];
    std::string strings[100];
    std::string short_strings[100];
    std::unique_ptr<char[]> arrays[50];
    RecordedList list;
    RecordedMap map;
    std::shared_ptr<Large> allocated_shared[100];
    std::shared_ptr<Large> made_shared[100];
    Shelf *next = nullptr;
};

Shelf *all_shelves;

Shelf *new_shelf()
{
    Shelf *shelf = new Shelf;
    shelf->next = __atomic_load_n(&all_shelves, __ATOMIC_RELAXED);
    while (!__atomic_compare_exchange_n(&all_shelves, &shelf->next, shelf, false, __ATOMIC_RELEASE, __ATOMIC_RELAXED))
        ;
    return shelf;
}

} // namespace

// extern "C": the names in a profile are the names in the truth, whatever the demangler does.
extern "C" {

OWN_FRAME static void site_new()
{
    for (int i = 0; i < 1000; i++)
        account_keep(site_new_account, escapes(new Plain), sizeof(Plain));
}

OWN_FRAME static void site_new_array()
{
    for (int i = 0; i < 300; i++)
        account_keep(site_new_array_account, escapes(new char[300]), 300);
}

OWN_FRAME static void site_new_aligned()
{
    for (int i = 0; i < 200; i++)
        account_keep(site_new_aligned_account, escapes(new Aligned), sizeof(Aligned));
}

OWN_FRAME static void site_new_array_aligned()
{
    for (int i = 0; i < 100; i++)
        account_keep(site_new_array_aligned_account, escapes(new Aligned[3]), 3 * sizeof(Aligned));
}

OWN_FRAME static void site_new_nothrow()
{
    for (int i = 0; i < 1000; i++)
        account_keep(site_new_nothrow_account, escapes(new (std::nothrow) Plain), sizeof(Plain));
}

OWN_FRAME static void site_new_array_nothrow()
{
    for (int i = 0; i < 300; i++)
        account_keep(site_new_array_nothrow_account, escapes(new (std::nothrow) char[310]), 310);
}

OWN_FRAME static void site_new_then_sized_delete()
{
    for (int i = 0; i < 1000; i++) {
        Plain *object = static_cast<Plain *>(escapes(new Plain));
        account_alloc(site_new_then_sized_delete_account, object, sizeof(Plain));
        account_free(site_new_then_sized_delete_account, sizeof(Plain));
        delete object;
    }
}

OWN_FRAME static void site_new_then_array_delete()
{
    for (int i = 0; i < 300; i++) {
        char *array = static_cast<char *>(escapes(new char[330]));
        account_alloc(site_new_then_array_delete_account, array, 330);
        account_free(site_new_then_array_delete_account, 330);
        delete[] array;
    }
}

OWN_FRAME static void site_new_then_aligned_delete()
{
    for (int i = 0; i < 300; i++) {
        Aligned *object = static_cast<Aligned *>(escapes(new Aligned));
        account_alloc(site_new_then_aligned_delete_account, object, sizeof(Aligned));
        account_free(site_new_then_aligned_delete_account, sizeof(Aligned));
        delete object;
    }
}

OWN_FRAME static void site_vector_reserve(Shelf *shelf)
{
    for (auto &vector : shelf->vectors) {
        vector.reserve(250);
        account_alloc(site_vector_reserve_account, vector.data(), vector.capacity() * sizeof(long));
    }
}

OWN_FRAME static void site_vector_churn()
{
    for (int i = 0; i < 100; i++) {
        std::vector<char> vector(1000);
        account_alloc(site_vector_churn_account, escapes(vector.data()), vector.capacity());
        account_free(site_vector_churn_account, vector.capacity());
    }
}

OWN_FRAME static void site_string(Shelf *shelf)
{
    for (auto &string : shelf->strings) {
        string.assign(600, 'x');
        account_alloc(site_string_account, string.data(), string.capacity() + 1);
    }
}

// 15 letters fit into the string itself: a site that must not appear at all.
OWN_FRAME static void site_string_short(Shelf *shelf)
{
    for (auto &string : shelf->short_strings)
        string.assign(15, 'x');
}

OWN_FRAME static void site_make_unique_array(Shelf *shelf)
{
    for (auto &array : shelf->arrays) {
        array = std::make_unique<char[]>(700);
        account_alloc(site_make_unique_array_account, array.get(), 700);
    }
}

OWN_FRAME static void site_list_nodes(Shelf *shelf)
{
    for (int i = 0; i < 400; i++)
        shelf->list.push_back(Plain());
}

OWN_FRAME static void site_map_nodes(Shelf *shelf)
{
    for (long i = 0; i < 400; i++)
        shelf->map[i] = i;
    for (long i = 0; i < 100; i++)
        shelf->map.erase(i * 4);
}

OWN_FRAME static void site_allocate_shared(Shelf *shelf)
{
    for (auto &object : shelf->allocated_shared)
        object = std::allocate_shared<Large>(Recording<Large, site_allocate_shared_account>());
}

// Untruthed: the size of the control block depends on the library.
OWN_FRAME static void site_make_shared(Shelf *shelf)
{
    for (auto &object : shelf->made_shared) {
        object = std::make_shared<Large>();
        account_alloc(site_make_shared_account, object.get(), sizeof(Large));
    }
}

void cxx_round()
{
    site_new();
    site_new_array();
    site_new_aligned();
    site_new_array_aligned();
    site_new_nothrow();
    site_new_array_nothrow();
    site_new_then_sized_delete();
    site_new_then_array_delete();
    site_new_then_aligned_delete();
    site_vector_churn();
    Shelf *shelf = new_shelf();
    site_vector_reserve(shelf);
    site_string(shelf);
    site_string_short(shelf);
    site_make_unique_array(shelf);
    site_list_nodes(shelf);
    site_map_nodes(shelf);
    site_allocate_shared(shelf);
    site_make_shared(shelf);
}

} // extern "C"
