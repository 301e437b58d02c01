/*
 * A service that fills its model in the first third of the run, and is steady later.
 *
 * expect: one-time|nothing learn; churn|nothing predict
 */
#include "../pace.h"

struct weight {
    struct weight *next;
    double values[500];
};

static struct weight *model;

SITE static void learn(void) {
    struct weight *weight = fill(malloc(sizeof *weight), sizeof *weight);
    weight->next = model;
    model = weight;
}

SITE static double predict(void) {
    double *input = fill(malloc(8000), 8000);
    double sum = input[3];
    free(input);
    return sum;
}

int main(int argc, char **argv) {
    double sum = 0;
    begin(argc, argv);
    while (going()) {
        for (int i = 0; i < 30 && part() < 0.33; i++)
            learn();
        for (int i = 0; i < 10; i++)
            sum += predict();
        rest(50);
    }
    printf("%f\n", sum);
}
