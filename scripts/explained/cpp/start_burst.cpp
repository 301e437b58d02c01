// A file is read whole at the start, an index is made of it, and the file goes.
//
// expect: burst read_file; one-time make_index; nothing look_up
#include "../pace.h"
#include <memory>
#include <string>
#include <vector>

SITE static std::vector<std::string> read_file() {
    std::vector<std::string> lines;
    lines.reserve(1500);
    for (int i = 0; i < 1500; i++) {
        lines.emplace_back(60000, 'l');
        if (i % 50 == 0)
            rest(60);
    }
    return lines;
}

SITE static std::vector<std::string> make_index(const std::vector<std::string> &lines) {
    std::vector<std::string> index;
    index.reserve(lines.size());
    for (const std::string &line : lines)
        index.push_back(line.substr(0, 8000));
    return index;
}

SITE static size_t look_up(const std::vector<std::string> &index) {
    std::string key = index[chance(1500)].substr(0, 500);
    return key.size();
}

int main(int argc, char **argv) {
    size_t sum = 0;
    begin(argc, argv);
    auto lines = std::make_unique<std::vector<std::string>>(read_file());
    auto index = make_index(*lines);
    lines.reset();
    while (going()) {
        sum += look_up(index);
        rest(50);
    }
    printf("%zu\n", sum);
}
