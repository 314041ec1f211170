// The text of pipeline layouts: published ones, the grammar's corners, refusals, printing and reading back.
#include "parallel/pipeline_layout.h"

#include <gtest/gtest.h>

#include "base/error.h"

namespace ingot::pipeline_layout_test {

int64_t layers_of(const PipelineLayout& p) {
  int64_t n = 0;
  for (const StageParts& s : p.stages) {
    EXPECT_EQ(s.first_layer, n);
    n += s.layers;
  }
  return n;
}

TEST(PipelineLayout, Published) {
  // Table 10: 16 ranks with two chunks. Rank 0: E and 3 layers, 2; ranks 1-13: 2, 2; rank 14: 2, m; rank 15:
  // 2, L.
  const PipelineLayout p = parse_pipeline_layout("Et*3|(tt|)*29,m|L", 16, 61, 1);
  ASSERT_EQ(p.stages.size(), 32u);
  EXPECT_EQ(p.chunks(), 2);
  EXPECT_EQ(p.at(0, 0), (StageParts{.embedding = true, .layers = 3}));
  EXPECT_EQ(p.at(0, 1), (StageParts{.first_layer = 33, .layers = 2}));
  for (int r = 1; r < 16; ++r) EXPECT_EQ(p.at(r, 0).layers, 2) << r;
  for (int r = 1; r < 14; ++r) EXPECT_EQ(p.at(r, 1).layers, 2) << r;
  EXPECT_EQ(p.at(14, 1), (StageParts{.first_layer = 61, .modules = 1}));
  EXPECT_EQ(p.at(15, 1), (StageParts{.first_layer = 61, .first_module = 1, .loss = true}));
  EXPECT_EQ(layers_of(p), 61);

  EXPECT_EQ(parse_pipeline_layout("Et*3|(tt|)*29,m|L", 8, 61, 1).chunks(), 4);
  EXPECT_EQ(layers_of(parse_pipeline_layout("Et|(tt|)*30mL", 8, 61, 1)), 61);
  EXPECT_EQ(layers_of(parse_pipeline_layout("Et*4|(tttt|)*14tmL", 4, 61, 1)), 61);
  EXPECT_EQ(layers_of(parse_pipeline_layout("Et*2|(tt|)*22t|(tt|)*7mL", 16, 61, 1)), 61);
  EXPECT_EQ(parse_pipeline_layout("E||t|L", 2, 1, 0).at(1, 0), StageParts{});
  EXPECT_EQ(layer_groups_of(parse_pipeline_layout("Ett|tm|m|L", 4, 3, 2).at(2, 0)),
            (std::vector<int64_t>{4}));
}

TEST(PipelineLayout, Grammar) {
  EXPECT_EQ(parse_pipeline_layout("E(t|t)*2L", 1, 4, 0), parse_pipeline_layout("Et|tt|tL", 1, 4, 0));
  EXPECT_EQ(parse_pipeline_layout("E|*3tL", 2, 1, 0), parse_pipeline_layout("E|||tL", 2, 1, 0));
  EXPECT_EQ(parse_pipeline_layout("E,t*1,2L", 1, 12, 0), parse_pipeline_layout("Et*12L", 1, 12, 0));
  EXPECT_EQ(parse_pipeline_layout("EtL", 1, 1, 0).str(), "EtL");
  for (const char* text : {"Et*3|(tt|)*29,m|L", "Et|(tt|)*30mL", "Et*4|(tttt|)*14tmL"}) {
    const PipelineLayout p = parse_pipeline_layout(text, 2, 61, 1);
    EXPECT_EQ(parse_pipeline_layout(p.str(), 2, 61, 1), p) << p.str();
  }
}

void expect_refused(const char* text, const char* why, int ranks = 1, int64_t layers = 2,
                    int64_t modules = 0) {
  try {
    parse_pipeline_layout(text, ranks, layers, modules);
    ADD_FAILURE() << text;
  } catch (const Error& e) {
    EXPECT_NE(std::string(e.what()).find(why), std::string::npos) << e.what();
  }
}

TEST(PipelineLayout, Refusals) {
  expect_refused("E(t(t)*1)*1L", "a group inside a group at character 4");
  expect_refused("E(tt)L", "a group needs '*'");
  expect_refused("E(tt*2L", "'(' without ')' at character 2");
  expect_refused("Ett)L", "')' without '(' at character 4");
  expect_refused("Et*L", "'*' needs a number from 1 on at character 3");
  expect_refused("Et*0L", "'*' needs a number");
  expect_refused("*2L", "nothing to repeat");
  expect_refused("EtxtL", "'x' at character 3 means nothing");
  expect_refused("Et tL", "' ' at character 3 means nothing");
  expect_refused("Et2tL", "the number 2 without '*'");
  expect_refused("Et*99999999999999999999L", "more stages and layers");
  expect_refused("ttL", "the first symbol is not E");
  expect_refused("", "the first symbol is not E");
  expect_refused("Ett", "the last symbol is not L");
  expect_refused("EttLt", "L is not the last symbol");
  expect_refused("EtEtL", "E is not the first symbol");
  expect_refused("EtL", "1 layers, the model has 2");
  expect_refused("EttmL", "1 modules of multi-token prediction, the model has 0");
  expect_refused("EttL", "0 modules of multi-token prediction, the model has 1", 1, 2, 1);
  expect_refused("EtmtL", "a layer after a module", 1, 2, 1);
  expect_refused("Et|tm|L|", "L is not the last symbol", 2, 2, 1);
  expect_refused("Et|tm||L", "not in the last chunk of its rank", 2, 2, 1);
  expect_refused("E||tt|L", "the stages of pipeline rank 1 are empty", 4);
  expect_refused("Et|t|L", "3 stages are no multiple of 2", 2);
}

TEST(PipelineLayout, Even) {
  EXPECT_EQ(even_pipeline_layout(2, 2, 4, 1).str(), "Et|t|t|tmL");
  EXPECT_EQ(even_pipeline_layout(4, 1, 6, 0).str(), "Et|t*2|t*2|tL");
  EXPECT_EQ(even_pipeline_layout(2, 1, 3, 0).str(), "Et|t*2L");
  for (int stages = 1; stages <= 8; ++stages)
    for (int64_t layers = stages; layers <= 20; ++layers)
      EXPECT_EQ(layers_of(even_pipeline_layout(stages, 1, layers, 0)), layers);
  EXPECT_THROW(even_pipeline_layout(4, 2, 7, 0), Error);
}

}  // namespace ingot::pipeline_layout_test
