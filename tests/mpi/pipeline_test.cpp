// Pipelines of processes equal one rank, as thread ranks do (ranks/pipeline_test.cpp).
#include "mpi/this_world.h"
#include "support/pipeline_parity.h"

namespace ingot::test {
namespace {

using enum PipelineScheduleKind;

TEST(MpiPipelines, EqualOneRank) {
  std::vector<PipelineCase> cases;
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
  int ran = 0;
  for (const PipelineCase& c : cases) {
    if (Grid(c.grid).ranks() != this_world().ranks()) continue;
    SCOPED_TRACE(fmt::format("{}, {}, {}", c.problem.model, Grid(c.grid).str(), name_of(c.schedule)));
    expect_pipeline_equals_one_rank(c, OneRank(c.problem), this_world());
    ++ran;
  }
  if (ran == 0) GTEST_SKIP() << "no case has " << this_world().ranks() << " ranks";
}

}  // namespace
}  // namespace ingot::test
