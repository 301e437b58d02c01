// A cache by weak_ptr: make_shared keeps an object's memory until the last weak_ptr goes.
//
// expect: leak load_font; churn|nothing draw
#include "../pace.h"
#include <memory>
#include <unordered_map>
#include <vector>

struct Font {
    char glyphs[9000];
};

static std::unordered_map<unsigned, std::weak_ptr<Font>> fonts;

SITE static std::shared_ptr<Font> load_font(unsigned id) {
    auto font = std::make_shared<Font>();
    fill(font->glyphs, sizeof font->glyphs);
    fonts[id] = font;
    return font;
}

SITE static size_t draw(const Font &font) {
    std::vector<char> picture(9000, font.glyphs[4]);
    fill(picture.data(), picture.size());
    return picture.size();
}

int main(int argc, char **argv) {
    unsigned id = 0;
    size_t sum = 0;
    begin(argc, argv);
    while (going()) {
        for (int i = 0; i < 3; i++)
            sum += draw(*load_font(id++));
        rest(50);
    }
    printf("%zu\n", sum);
}
