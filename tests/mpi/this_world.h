// The world of the tests that run as ranks.
#pragma once
#include <gtest/gtest.h>

#include <cstdio>

#include "comm/world.h"

namespace ingot::test {

World& this_world();

/// What ranks other than 0 print.
class FailuresOnly final : public testing::EmptyTestEventListener {
  void OnTestPartResult(const testing::TestPartResult& r) override {
    if (r.failed())
      std::fprintf(stderr, "rank %d: %s:%d: %s\n", this_world().rank(), r.file_name(), r.line_number(),
                   r.message());
  }
};

}  // namespace ingot::test
