// base/range: bounds, their words, numbers as text, products of counts.
#include "base/range.h"

#include <gtest/gtest.h>

#include <cmath>

#include "base/error.h"

namespace ingot::test::range_test {
namespace {

TEST(Range, SaysWhatItTakesAndWhatIsWrong) {
  EXPECT_EQ(between(1, 4096, "ranks").str(), "1 to 4096");
  EXPECT_EQ(positive(1).str(), "above 0, at most 1");
  EXPECT_EQ(below_one().str(), "0 or more, below 1");
  EXPECT_EQ(zero_or(1, 8).str(), "0, or 1 to 8");
  EXPECT_EQ(any_integer().str(), "any integer");
  EXPECT_EQ(between(1, 4096, "ranks").problem(int64_t{0}), "must be at least 1, found 0");
  EXPECT_EQ(between(1, 4096, "ranks").problem(INT64_MAX),
            "must be at most 4096 ranks, found 9223372036854775807");
  EXPECT_EQ(up_to(1).problem(-1.0), "must not be negative, found -1");
  EXPECT_EQ(positive(1).problem(0.0), "must be positive, found 0");
  EXPECT_EQ(below_one().problem(1.0), "must be below 1, found 1");
  EXPECT_EQ(zero_or(1, 8).problem(0.5), "must be 0 or at least 1, found 0.5");
  EXPECT_EQ(up_to(1).problem(std::nan("")), "must be a number (0 to 1), found nan");
  EXPECT_EQ(zero_or(1, 8).problem(0.0), "");
  EXPECT_EQ(any_integer().problem(INT64_MIN), "");
  EXPECT_EQ(any_integer().problem(INT64_MAX), "");
  EXPECT_EQ(between(0, 1).problem(INFINITY), "must be at most 1, found inf");
  EXPECT_FALSE(Range().contains(std::nan("")));
}

std::string refused(const std::string& text) {
  try {
    parse_integer(text, between(1, 1024, "threads"), "INGOT_THREADS");
  } catch (const Error& error) {
    return error.what();
  }
  return "";
}

TEST(Range, NumbersOfTextAreWholeAndInRange) {
  EXPECT_EQ(parse_integer("12", between(1, 1024), "n"), 12);
  EXPECT_EQ(parse_number("2.5e-1", positive(1), "n"), 0.25);
  EXPECT_EQ(refused("x"), "INGOT_THREADS must be an integer (1 to 1024), found 'x'");
  EXPECT_EQ(refused("4x"), "INGOT_THREADS must be an integer (1 to 1024), found '4x'");
  EXPECT_EQ(refused("-3"), "INGOT_THREADS must be at least 1, found -3");
  EXPECT_EQ(refused("99999"), "INGOT_THREADS must be at most 1024 threads, found 99999");
  EXPECT_NE(refused("99999999999999999999"), "");
  EXPECT_THROW(parse_number("nan", up_to(1), "n"), Error);
}

TEST(Range, ProductsOfCountsNeverWrap) {
  EXPECT_EQ(checked_product({3, 4, 5}, "cells"), 60);
  EXPECT_EQ(checked_product({INT64_MAX, INT64_MAX, 0}, "cells"), 0);
  EXPECT_EQ(checked_product({int64_t{1} << 31, int64_t{1} << 31}, "cells"), int64_t{1} << 62);
  try {
    checked_product({int64_t{1} << 32, int64_t{1} << 31}, "tokens (batch x sequence)");
    FAIL();
  } catch (const Error& error) {
    EXPECT_STREQ(error.what(),
                 "tokens (batch x sequence): 4294967296 x 2147483648 is more than can be counted (2^63)");
  }
}

}  // namespace
}  // namespace ingot::test::range_test
