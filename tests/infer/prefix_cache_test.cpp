// The tree of prefixes: what is found, what is shared, and what goes first.
#include "infer/prefix_cache.h"

#include <gtest/gtest.h>

#include "base/philox.h"

namespace ingot::test::prefix_cache_test {

using Pages = std::vector<PrefixCache::Page>;

Pages new_pages(size_t count) {
  Pages pages;
  for (size_t i = 0; i < count; ++i) pages.push_back(std::make_shared<std::byte>());
  return pages;
}

std::vector<int32_t> ids_of(std::initializer_list<int32_t> pages, int64_t tail = 0) {
  std::vector<int32_t> ids;
  for (const int32_t p : pages) ids.insert(ids.end(), 64, p);
  ids.insert(ids.end(), static_cast<size_t>(tail), 99);
  return ids;
}

TEST(PrefixCache, FindsTheLongestPrefixOfWholePages) {
  PrefixCache cache;
  Pages a = new_pages(3);
  cache.insert(ids_of({1, 2, 3}, 5), a);
  EXPECT_EQ(cache.pages(), 3);
  EXPECT_EQ(cache.find(ids_of({1, 2, 3, 4})), a);
  EXPECT_EQ(cache.find(ids_of({1, 2}, 63)), Pages(a.begin(), a.begin() + 2));
  EXPECT_TRUE(cache.find(ids_of({2, 3})).empty());
  EXPECT_TRUE(cache.find(ids_of({}, 63)).empty());
  std::vector<int32_t> almost = ids_of({1, 2, 3});
  almost[127] = 5;
  EXPECT_EQ(cache.find(almost).size(), 1u);
}

TEST(PrefixCache, APageThatIsKnownIsShared) {
  PrefixCache cache;
  Pages a = new_pages(2), b = new_pages(3);
  cache.insert(ids_of({1, 2}), a);
  const auto own = b[2];
  cache.insert(ids_of({1, 2, 7}), b);
  EXPECT_EQ(b, (Pages{a[0], a[1], own}));
  EXPECT_EQ(cache.pages(), 3);
}

TEST(PrefixCache, TheLeastRecentlyUsedLeavesGoFirst) {
  PrefixCache cache;
  {
    Pages a = new_pages(2), b = new_pages(2), c = new_pages(1);
    cache.insert(ids_of({1, 2}), a);
    cache.insert(ids_of({1, 3}), b);
    cache.insert(ids_of({5}), c);
    cache.find(ids_of({1, 2}));
    EXPECT_EQ(cache.evict(10), 0) << "others hold every page";
  }
  EXPECT_EQ(cache.unused_pages(), 4);
  EXPECT_EQ(cache.evict(1), 1);
  EXPECT_EQ(cache.find(ids_of({1, 3})).size(), 1u);
  EXPECT_EQ(cache.find(ids_of({1, 2})).size(), 2u);
  EXPECT_EQ(cache.evict(1), 1);
  EXPECT_TRUE(cache.find(ids_of({5})).empty());
  const Pages held = cache.find(ids_of({1}));
  EXPECT_EQ(cache.evict(10), 1) << "the leaf below a page that is held";
  EXPECT_EQ(cache.pages(), 1);
  cache.clear();
  EXPECT_EQ(cache.pages(), 0);
}

TEST(PrefixCache, RandomUseKeepsPathsWhole) {
  PrefixCache cache;
  const Random random(3, RandomPurpose::test);
  uint64_t next = 0;
  for (int round = 0; round < 2000; ++round) {
    std::vector<int32_t> ids;
    for (uint64_t depth = 1 + random.below(next++, 5); depth > 0; --depth)
      ids.insert(ids.end(), 64, static_cast<int32_t>(random.below(next++, 3)));
    Pages pages = new_pages(ids.size() / 64);
    switch (random.below(next++, 3)) {
      case 0:
        cache.insert(ids, pages);
        pages.clear();
        EXPECT_EQ(cache.find(ids).size(), ids.size() / 64);
        break;
      case 1:
        cache.find(ids);
        break;
      default: {
        const auto wanted = static_cast<int64_t>(random.below(next++, 4)), before = cache.pages();
        pages.clear();
        const int64_t given = cache.evict(wanted);
        EXPECT_EQ(given, std::min(wanted, before));
        EXPECT_EQ(cache.pages(), before - given);
      }
    }
  }
}

}  // namespace ingot::test::prefix_cache_test
