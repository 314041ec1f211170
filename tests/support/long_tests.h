// Tests that take minutes, or measure on a machine that does nothing else, run with INGOT_LONG_TESTS=1 only.
#pragma once
#include <gtest/gtest.h>

#include <cstdlib>

namespace ingot::test {

inline bool long_tests() {
  return std::getenv("INGOT_LONG_TESTS") != nullptr;
}

}  // namespace ingot::test

/// Leaves a test unless long ones are asked for. `what` says what it needs, e.g. "minutes".
#define INGOT_LONG_TEST(what) \
  if (!::ingot::test::long_tests()) GTEST_SKIP() << "set INGOT_LONG_TESTS=1 (" what ")"
