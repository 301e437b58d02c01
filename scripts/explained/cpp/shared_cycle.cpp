// Documents and their pages hold each other by shared_ptr, so that neither ever ends.
//
// expect: leak open_document; leak add_page; churn|nothing render
#include "../pace.h"
#include <memory>
#include <vector>

struct Document;

struct Page {
    std::shared_ptr<Document> document;
    char text[3000];
};

struct Document {
    std::vector<std::shared_ptr<Page>> pages;
    char title[2000];
};

SITE static std::shared_ptr<Document> open_document() {
    auto document = std::make_shared<Document>();
    fill(document->title, sizeof document->title);
    document->pages.reserve(3);
    return document;
}

SITE static void add_page(const std::shared_ptr<Document> &document) {
    auto page = std::make_shared<Page>();
    fill(page->text, sizeof page->text);
    page->document = document;
    document->pages.push_back(std::move(page));
}

SITE static size_t render(const Document &document) {
    std::vector<char> picture(6000, document.title[0]);
    fill(picture.data(), picture.size());
    return picture.size() + document.pages.size();
}

int main(int argc, char **argv) {
    size_t sum = 0;
    begin(argc, argv);
    while (going()) {
        for (int i = 0; i < 4; i++) {
            auto document = open_document();
            for (int page = 0; page < 3; page++)
                add_page(document);
            sum += render(*document);
        }
        rest(60);
    }
    printf("%zu\n", sum);
}
