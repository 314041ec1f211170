// Layouts of processes equal one rank, like those of thread ranks (parallel/layout_ranks_test.cpp,
// parallel/pipeline_ranks_test.cpp): every case with as many ranks as there are processes.
#include "mpi/this_world.h"
#include "support/layout_parity.h"

namespace ingot::test::parity_test {

using enum PipelineScheduleKind;

void expect_equal_one_rank(const std::vector<LayoutCase>& cases) {
  int ran = 0;
  for (const LayoutCase& c : cases) {
    if (Grid(c.grid).ranks() != this_world().ranks()) continue;
    SCOPED_TRACE(c.name());
    expect_layout_equals_one_rank(c, OneRank(c.problem), this_world());
    ++ran;
  }
  if (ran == 0) GTEST_SKIP() << "no case has " << this_world().ranks() << " ranks";
}

TEST(MpiLayouts, EqualOneRank) {
  expect_equal_one_rank(parity_matrix());
}

TEST(MpiLayouts, WithoutTargetsOrRowsEqualOneRank) {
  std::vector<LayoutCase> cases;
  for (const GridShape& grid :
       {GridShape{.dp = 2, .ep = 2}, GridShape{.dp = 4, .ep = 4},
        GridShape{.pp = 2, .dp = 2, .tp = 2, .ep = 2}, GridShape{.dp = 8, .ep = 4, .etp = 2}})
    for (const bool starve : {false, true})
      cases.push_back(
          {.problem = {.model = "moe", .rows = 8, .starve = starve, .mask_last = true}, .grid = grid});
  expect_equal_one_rank(cases);
}

TEST(MpiPipelines, EqualOneRank) {
  std::vector<LayoutCase> cases;
  for (const PipelineScheduleKind kind : {one_forward_one_backward, zero_bubble, merged}) {
    const auto add = [&](const char* model, const GridShape& grid) {
      cases.push_back({.problem = {.model = model, .layers = 4, .rows = 8}, .grid = grid, .schedule = kind});
    };
    for (const char* model : {"llama", "gpt2", "zaya"}) add(model, {.pp = 2});
    for (const char* model : {"gpt2", "zaya"}) add(model, {.pp = 4});
    for (const char* model : {"moe", "zaya"}) add(model, {.pp = 2, .dp = 2, .ep = 2});
    add("llama", {.pp = 2, .tp = 2});
    add("moe", {.pp = 2, .dp = 2, .tp = 2, .ep = 2});
  }
  for (const PipelineScheduleKind kind : {interleaved, merged})
    cases.push_back({.problem = {.model = "zaya", .layers = 4, .rows = 8},
                     .grid = {.pp = 2},
                     .chunks = 2,
                     .schedule = kind});
  expect_equal_one_rank(cases);
}

}  // namespace ingot::test::parity_test
