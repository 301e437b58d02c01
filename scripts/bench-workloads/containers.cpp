/* C++ containers and strings.
 *
 *   containers N [strings|maps]      N rounds
 */
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <list>
#include <map>
#include <memory>
#include <string>
#include <unordered_map>
#include <vector>

static std::uint64_t random_state = 88172645463325252u;
static std::uint64_t drawn()
{
    random_state ^= random_state << 13;
    random_state ^= random_state >> 7;
    random_state ^= random_state << 17;
    return random_state;
}

/* Joins words, cuts them apart, and keeps them in vectors. */
static std::size_t strings()
{
    std::vector<std::string> words;
    for (int i = 0; i < 200; i++) words.push_back(std::string(1 + drawn() % 60, static_cast<char>('a' + drawn() % 26)));
    std::string joined;
    for (auto const &word : words) joined += word + ", ";
    std::vector<std::string> cut;
    for (std::size_t at = 0, end; (end = joined.find(", ", at)) != std::string::npos; at = end + 2)
        cut.push_back(joined.substr(at, end - at));
    return cut.size();
}

/* Maps, lists and shared objects that come and go. */
static std::size_t maps()
{
    std::map<std::uint64_t, std::string> sorted;
    std::unordered_map<std::string, std::shared_ptr<std::vector<int>>> hashed;
    std::list<std::string> recent;
    for (int i = 0; i < 200; i++) {
        std::uint64_t key = drawn() % 500;
        sorted[key] = "the value of the key " + std::to_string(key);
        auto &row = hashed["row " + std::to_string(key % 50)];
        if (!row) row = std::make_shared<std::vector<int>>();
        row->push_back(i);
        recent.push_back(sorted[key]);
        if (recent.size() > 20) recent.pop_front();
        if (i % 3 == 0) sorted.erase(drawn() % 500);
    }
    return sorted.size() + hashed.size() + recent.size();
}

int main(int argc, char **argv)
{
    long n = argc > 1 ? std::atol(argv[1]) : 1000;
    bool of_maps = argc > 2 && std::strcmp(argv[2], "maps") == 0;
    std::size_t sum = 0;
    for (long i = 0; i < n; i++) sum += of_maps ? maps() : strings();
    std::printf("%zu\n", sum);
}
