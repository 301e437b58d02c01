// A class whose destructor frees one of its two buffers.
//
// expect: leak open_output; cache|churn|nothing open_input
#include "../pace.h"
#include <deque>
#include <memory>

SITE static char *open_input() {
    char *buffer = new char[12000];
    fill(buffer, 12000);
    return buffer;
}

SITE static char *open_output() {
    char *buffer = new char[6000];
    fill(buffer, 6000);
    return buffer;
}

struct Stream {
    char *input = open_input();
    char *output = open_output();
    ~Stream() { delete[] input; }
};

int main(int argc, char **argv) {
    std::deque<std::unique_ptr<Stream>> streams;
    begin(argc, argv);
    while (going()) {
        for (int i = 0; i < 4; i++)
            streams.push_back(std::make_unique<Stream>());
        while (streams.size() > 100)
            streams.pop_front();
        rest(50);
    }
    printf("%zu\n", streams.size());
}
