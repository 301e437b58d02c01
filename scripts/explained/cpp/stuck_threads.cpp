// Each download has a thread, and some servers never answer: their threads wait for ever.
//
// expect: leak open_download; churn|nothing receive
#include "../pace.h"
#include <thread>
#include <vector>

SITE static std::vector<char> open_download() {
    std::vector<char> buffer(300000);
    fill(buffer.data(), buffer.size());
    return buffer;
}

SITE static void receive() {
    std::vector<char> block(60000);
    fill(block.data(), block.size());
    rest(20);
}

static void download(bool answers) {
    std::vector<char> buffer = open_download();
    if (answers)
        receive();
    while (!answers && going())
        rest(200);
}

int main(int argc, char **argv) {
    std::vector<std::thread> waiting;
    waiting.reserve(10000);
    begin(argc, argv);
    while (going()) {
        waiting.emplace_back(download, false);
        for (int i = 0; i < 3; i++)
            std::thread(download, true).join();
        rest(400);
    }
    for (std::thread &thread : waiting)
        thread.join();
}
