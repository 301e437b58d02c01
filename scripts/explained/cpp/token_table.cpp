// A table of tokens, as many at any time. Each use replaces one by chance.
//
// expect: cache renew; churn|nothing answer
#include "../pace.h"
#include <memory>
#include <string>
#include <vector>

struct Token {
    char secret[600];
};

static std::vector<std::unique_ptr<Token>> tokens(10000);

SITE static std::unique_ptr<Token> renew() {
    auto token = std::make_unique<Token>();
    fill(token->secret, sizeof token->secret);
    return token;
}

SITE static size_t answer(unsigned place) {
    std::string text(400 + place % 300, 'a');
    fill(text.data(), text.size());
    return text.size();
}

int main(int argc, char **argv) {
    size_t sum = 0;
    begin(argc, argv);
    for (auto &token : tokens)
        token = renew();
    while (going()) {
        for (int i = 0; i < 150; i++) {
            unsigned place = chance(10000);
            tokens[place] = renew();
            sum += answer(place);
        }
        rest(10);
    }
    printf("%zu\n", sum);
}
