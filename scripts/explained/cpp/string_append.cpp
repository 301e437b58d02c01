// A report that is one string, and that nobody ever begins anew.
//
// expect: growing block add_line; nothing format_line
#include "../pace.h"
#include <string>

static std::string report;

SITE static std::string format_line(unsigned number) {
    std::string line = "line " + std::to_string(number) + " of the report:";
    for (int i = 0; i < 40; i++)
        line += " value " + std::to_string(chance(1000000));
    return line + "\n";
}

SITE static void add_line(const std::string &line) {
    report += line;
}

int main(int argc, char **argv) {
    unsigned number = 0;
    begin(argc, argv);
    while (going()) {
        std::string line = format_line(number++);
        for (int i = 0; i < 60; i++)
            add_line(line);
        rest(60);
    }
    printf("%zu\n", report.size());
}
