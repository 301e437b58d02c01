// A nightly import, ten times in the run, that leaves its index behind each time.
//
// expect: leak build_index; burst|periodic|nothing read_import
#include "../pace.h"
#include <map>
#include <string>
#include <vector>

using Index = std::map<std::string, std::vector<char>>;
static std::vector<Index *> generations;

SITE static std::vector<char> read_import() {
    std::vector<char> text(3000000);
    fill(text.data(), text.size());
    return text;
}

SITE static Index *build_index(const std::vector<char> &text) {
    auto *index = new Index;
    for (int i = 0; i < 1000; i++)
        (*index)["key " + std::to_string(i)].assign(text.begin(), text.begin() + 3000);
    return index;
}

int main(int argc, char **argv) {
    double next = 0.05;
    begin(argc, argv);
    generations.reserve(100);
    while (going()) {
        if (part() > next) {
            std::vector<char> text = read_import();
            rest(500);
            generations.push_back(build_index(text));
            next += 0.1;
        }
        rest(50);
    }
    printf("%zu\n", generations.size());
}
