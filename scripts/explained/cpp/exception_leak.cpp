// A buffer from new is lost when the parser throws: two requests of a hundred.
//
// expect: leak take_buffer; churn take_buffer
#include "../pace.h"
#include <stdexcept>

SITE static char *take_buffer() {
    char *buffer = new char[24000];
    fill(buffer, 24000);
    return buffer;
}

static int parse(const char *buffer) {
    if (chance(100) < 2)
        throw std::runtime_error("unexpected end");
    return buffer[7];
}

static int handle() {
    char *buffer = take_buffer();
    int result = parse(buffer);
    delete[] buffer;
    return result;
}

int main(int argc, char **argv) {
    unsigned long served = 0, failed = 0;
    begin(argc, argv);
    while (going()) {
        for (int i = 0; i < 40; i++) {
            try {
                served += static_cast<unsigned long>(handle());
            } catch (const std::runtime_error &) {
                failed++;
            }
        }
        rest(50);
    }
    printf("%lu %lu\n", served, failed);
}
