// Two writers of jobs, and one thread that cannot keep up.
//
// expect: backlog submit
#include "../pace.h"
#include <deque>
#include <memory>
#include <mutex>
#include <thread>

struct Job {
    char body[9000];
};

static std::mutex lock;
static std::deque<std::unique_ptr<Job>> jobs;

SITE static void submit() {
    auto job = std::make_unique<Job>();
    fill(job->body, sizeof job->body);
    std::lock_guard<std::mutex> held(lock);
    jobs.push_back(std::move(job));
}

static void consume() {
    while (going()) {
        for (int i = 0; i < 7; i++) {
            std::lock_guard<std::mutex> held(lock);
            if (!jobs.empty())
                jobs.pop_front();
        }
        rest(50);
    }
}

int main(int argc, char **argv) {
    begin(argc, argv);
    std::thread consumer(consume);
    while (going()) {
        for (int i = 0; i < 11; i++)
            submit();
        rest(50);
    }
    consumer.join();
    printf("%zu\n", jobs.size());
}
