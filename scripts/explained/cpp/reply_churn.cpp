// A server that builds each reply by adding strings, and keeps nothing.
//
// expect: churn build_reply; nothing *
#include "../pace.h"
#include <string>

SITE static std::string build_reply(unsigned rows) {
    std::string reply = "<table>";
    for (unsigned row = 0; row < rows; row++)
        reply = reply + "<tr><td>" + std::to_string(chance(1000)) + "</td></tr>\n";
    return reply + "</table>";
}

int main(int argc, char **argv) {
    size_t sum = 0;
    begin(argc, argv);
    while (going()) {
        for (int i = 0; i < 15; i++)
            sum += build_reply(60 + chance(60)).size();
        rest(60);
    }
    printf("%zu\n", sum);
}
