// A queue by priority: urgent jobs are done, and more of the others wait all the time.
//
// expect: leak|backlog submit; churn|nothing submit
#include "../pace.h"
#include <queue>
#include <vector>

struct Job {
    unsigned priority;
    std::vector<char> body;
    bool operator<(const Job &other) const { return priority < other.priority; }
};

static std::priority_queue<Job> jobs;

SITE static void submit() {
    Job job{chance(1000), std::vector<char>(12000)};
    fill(job.body.data(), job.body.size());
    jobs.push(std::move(job));
}

int main(int argc, char **argv) {
    begin(argc, argv);
    while (going()) {
        for (int i = 0; i < 10; i++)
            submit();
        for (int i = 0; i < 7; i++)
            jobs.pop();
        rest(60);
    }
    printf("%zu\n", jobs.size());
}
