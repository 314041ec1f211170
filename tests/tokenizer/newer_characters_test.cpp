// Characters newer than the pattern engine are replaced wherever they stand, and by as many bytes.
#include "tokenizer/newer_characters.h"

#include <gtest/gtest.h>

#include "base/utf8.h"

namespace ingot::test::newer_characters_test {

std::string of(uint32_t c) {
  std::string text;
  utf8::append(text, c);
  return text;
}

/// Text is looked through eight bytes at a time.
TEST(NewerCharacters, AreFoundAtEveryPlaceOfATextOfEveryLength) {
  const NewerRange three = newer_ranges().front(), four = newer_ranges().back();
  for (const NewerRange& range : {three, four})
    for (size_t before = 0; before <= 17; ++before)
      for (size_t behind = 0; behind <= 17; ++behind)
        for (const char* other : {"a", "\xC3\xA9", "\xE6\x97\xA5"}) {
          std::string front, back;
          for (size_t i = 0; i < before; ++i) front += i % 3 == 2 ? other : "x";
          for (size_t i = 0; i < behind; ++i) back += i % 3 == 0 ? other : "y";
          const std::string known = with_known_characters(front + of(range.begin) + back);
          EXPECT_EQ(known, front + of(range.stand_in) + back) << before << " " << behind << " " << other;
          EXPECT_EQ(of(range.begin).size(), of(range.stand_in).size());
          EXPECT_EQ(with_known_characters(front + back), "") << "nothing to replace";
        }
}

}  // namespace ingot::test::newer_characters_test
