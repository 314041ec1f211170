// `ingot profile`: what it prints follows from recorded steps, recordings cover the steps, and nothing is
// written into the run.
#include <gtest/gtest.h>

#include <filesystem>
#include <nlohmann/json.hpp>

#include "base/log.h"
#include "comm/threads.h"
#include "measure/profile_run.h"
#include "ops/embedding/embedding.h"
#include "ops/registry.h"
#include "support/sim_orders.h"
#include "support/support.h"
#include "support/tiny_run.h"

namespace ingot::test::profile_runs_test {

using nlohmann::json;

OpSpan span(const char* op, const char* segment, int layer, OpPass pass, TimeOf what, double begin,
            double end) {
  OpSpan s;
  s.op = op, s.segment = segment, s.layer = layer, s.pass = pass, s.what = what, s.begin = begin, s.end = end;
  return s;
}

/// One step of 10 seconds: data 0-1, passes 1-7, norm 7-8, update 8-9, records 9-10; a wait of 0.5 s inside
/// of an op of 2 s.
ProfileReport example() {
  RankProfile rank;
  rank.threads = 2;
  rank.peak_gflops = {90, 110, 100}, rank.read_gbs = {10, 10};
  StepSpan step;
  step.begin = 100, step.end = 110;
  step.phases = {{StepPart::data, 100, 101},
                 {StepPart::passes, 101, 107},
                 {StepPart::optimizer, 107, 108},
                 {StepPart::update, 108, 109},
                 {StepPart::records, 109, 110}};
  step.ops = {span("linear", "mlp", 0, OpPass::forward, TimeOf::products, 101, 102),
              span("wait", "dispatch", 0, OpPass::forward, TimeOf::exchanges, 103, 103.5),
              span("exchange_rows", "dispatch", 0, OpPass::forward, TimeOf::exchanges, 102, 104),
              span("linear", "mlp", 0, OpPass::weight_gradient, TimeOf::products, 104, 106),
              span("wait", "", -1, OpPass::forward, TimeOf::exchanges, 107.25, 107.5)};
  step.ops[0].flops = 50e9, step.ops[0].bytes = 1e9;
  step.ops[2].waited = 0.5;
  step.ops[3].flops = 50e9;
  rank.steps = {step};
  ProfileReport r;
  r.of = "example", r.batch = 2, r.length = 5;
  r.ranks = {rank};
  return r;
}

TEST(Profile, TimesAddUpToTheStep) {
  const ProfileReport r = example();
  const auto t = r.times(r.ranks[0]);
  const auto at = [&](TimeOf what) { return t[static_cast<size_t>(what)]; };
  EXPECT_DOUBLE_EQ(at(TimeOf::products), 3);
  EXPECT_DOUBLE_EQ(at(TimeOf::exchanges), 2.25)
      << "a wait inside of an op counts once; waits of the optimizer too";
  EXPECT_DOUBLE_EQ(at(TimeOf::optimizer), 1.75);
  EXPECT_DOUBLE_EQ(at(TimeOf::data), 1);
  EXPECT_DOUBLE_EQ(at(TimeOf::rest), 2) << "1 of the passes, 1 of the records";
  double sum = 0;
  for (const double part : t) sum += part;
  EXPECT_DOUBLE_EQ(sum, 10);
  EXPECT_DOUBLE_EQ(r.peak_gflops(), 100);
  EXPECT_DOUBLE_EQ(r.step_seconds().median, 10);
}

TEST(Profile, SharesAreOfWhatARankCan) {
  ProfileReport r = example();
  r.ranks.push_back(r.ranks[0]);
  r.ranks[1].rank = 1;
  EXPECT_DOUBLE_EQ(r.peak_gflops(), 200);
  const auto cell = r.cells().at({"linear", "mlp", 0, OpPass::forward});
  EXPECT_EQ(cell.calls, 2);
  EXPECT_DOUBLE_EQ(cell.seconds, 2);
  const std::string text = to_text(r, true);
  // 50 GFLOP in 1 s of a rank that can 100 a second, 1 GB of 10.
  EXPECT_NE(text.find("1000.000  50.0%  10.0%"), std::string::npos) << text;
  EXPECT_NE(text.find("layer   0 mlp"), std::string::npos) << text;
  EXPECT_NE(text.find("10.0 % of P"), std::string::npos) << text;
}

/// Of two threads that have half of a core each, which had 9 processor seconds while 7.75 s went by without a
/// wait, one of them in the update, in which nobody waits: elsewhere they had 8 in 6.75 s.
TEST(Profile, RanksThatShareCoresAreSlowerWhileNoneWaits) {
  RankProfile rank = example().ranks[0];
  EXPECT_EQ(rank.crowding(), 1) << "alone";
  rank.steps[0].processor = 9;
  rank.processor_share = {0.45, 0.5, 0.6};
  EXPECT_DOUBLE_EQ(rank.crowding(), 8 / (0.5 * 2 * 6.75));
  rank.processor_share = {1, 1, 1};
  EXPECT_EQ(rank.crowding(), 1) << "threads with cores of their own";
}

TEST(Profile, ComesBackFromText) {
  RankProfile a = example().ranks[0];
  a.processor_share = {0.5, 0.75}, a.steps[0].processor = 4.5;
  const RankProfile b = read_profile(write_profile(a));
  EXPECT_EQ(b.crowding(), a.crowding());
  EXPECT_EQ(write_profile(a), write_profile(b));
  EXPECT_EQ(b.steps[0].ops[2].waited, 0.5);
  EXPECT_EQ(b.steps[0].phases[3].phase, StepPart::update);
}

/// Spans of a track lie inside of each other or apart.
void expect_nested(const json& trace) {
  std::map<int, std::vector<std::pair<double, double>>> open;
  std::vector<json> spans;
  for (const json& e : trace["traceEvents"])
    if (e["ph"] == "X") spans.push_back(e);
  std::stable_sort(spans.begin(), spans.end(), [](const json& a, const json& b) {
    const double x = a["ts"], y = b["ts"], dx = a["dur"], dy = b["dur"];
    return x != y ? x < y : dx > dy;
  });
  for (const json& e : spans) {
    auto& stack = open[e["tid"].get<int>()];
    const double begin = e["ts"], end = begin + e["dur"].get<double>();
    while (!stack.empty() && stack.back().second <= begin + 1e-6) stack.pop_back();
    EXPECT_TRUE(stack.empty() || end <= stack.back().second + 1e-3) << e.dump();
    stack.emplace_back(begin, end);
  }
}

TEST(Profile, TraceNestsOpsInSegmentsInPassesInSteps) {
  const json trace = json::parse(trace_json(example()));
  expect_nested(trace);
  std::map<std::string, int> kinds;
  for (const json& e : trace["traceEvents"])
    if (e["ph"] == "X") ++kinds[e["cat"]];
  EXPECT_EQ(kinds["step"], 1);
  EXPECT_EQ(kinds["phase"], 5);
  EXPECT_EQ(kinds["pass"], 2);
  EXPECT_EQ(kinds["segment"], 3) << "mlp, dispatch, mlp";
  EXPECT_EQ(kinds["products"], 2);
  EXPECT_EQ(kinds["exchanges"], 3);
}

TEST(Profile, EveryOpHasAPurpose) {
  std::map<TimeOf, int> count;
  for (const Op* op : all_ops()) ++count[time_of(*op)];
  EXPECT_EQ(count[TimeOf::products], 4);
  EXPECT_EQ(count[TimeOf::attention], 3);
  EXPECT_GE(count[TimeOf::exchanges], 6);
  EXPECT_EQ(time_of(embedding_op()), TimeOf::kernels);
}

/// Of a table that another reader of it has written to: the rows of the tokens only.
TEST(Profile, EmbeddingGradientsTouchRows) {
  const Tensor ids(nullptr, {3}, DType::i32, DeviceKind::null),
      table(nullptr, {1000, 8}, DType::f32, DeviceKind::null);
  const std::vector<Tensor> in{ids, table};
  const AttrBox attr{EmbeddingAttr{}};
  std::vector<GradSlot> d_in{{}, {table, true}};
  EXPECT_EQ(embedding_op().cost({attr.data(), in, {}, {}, d_in}).weight_bytes, 3 * 8 * 12);
  EXPECT_EQ(touched_bytes({attr.data(), in, {}, {}, d_in}), 12 + 3 * 32000);
  d_in[1].accumulate = false;
  EXPECT_EQ(embedding_op().cost({attr.data(), in, {}, {}, d_in}).weight_bytes, 0)
      << "the whole table is written";
}

class ProfileRun : public ::testing::Test {
 protected:
  ProfileRun() : level_(log::level()) {
    log::set_level(log::Level::error);
    write_text(folder_ / "text.txt", tiny_text(4000));
    write_text(folder_ / "recipe.toml", tiny_recipe(folder_ / "run", folder_ / "data", folder_ / "text.txt"));
  }
  ~ProfileRun() override {
    log::set_level(level_);
    set_kernel_policy(KernelPolicy::strict);
  }
  ProcessResult ingot(std::vector<std::string> arguments) const {
    arguments.insert(arguments.begin(), INGOT_BINARY);
    return run_process(arguments);
  }
  const TempDir folder_;

 private:
  const log::Level level_;
};

TEST_F(ProfileRun, SaysWhatADeviceDidInAStep) {
  const ComputeOn on(DeviceKind::sim);
  const ProfileOptions o{.steps = 2, .warm_up = 2};
  const auto world = self_world();
  const ProfileReport r = profile_run(
      real_file_system(), profiled_steps(real_file_system(), folder_ / "recipe.toml", {}, o), o, *world);
  ASSERT_STREQ(r.device_work.front().name, "launches");
  EXPECT_GT(r.device_work.front().count, 100);
  const std::string text = to_text(r, false);
  EXPECT_NE(text.find(" graphs, 1 waits of the host, 0 allocations, "), std::string::npos) << text;
  EXPECT_NE(text.find(", 0 of these unplanned\n"), std::string::npos) << text;
  const json device = json::parse(to_json(r))["device_work"];
  EXPECT_EQ(device["synchronizations"], 2);
  EXPECT_EQ(device["launches"], r.device_work.front().count);
  const int64_t micro_batches = r.batch / r.micro_batch;
  EXPECT_EQ(device["graph_launches"], 2 * (micro_batches + 1)) << "those of the passes, and of the update";
  EXPECT_EQ(device["uploads"], 2 * (micro_batches + 1));
  EXPECT_EQ(device["downloads"], 2 * (micro_batches + 1));
}

TEST_F(ProfileRun, RecordsEveryOpInsideOfItsSteps) {
  const ProfileOptions o{.steps = 3, .warm_up = 1, .saves = 2};
  const ProfiledSteps profiled =
      profiled_steps(real_file_system(), folder_ / "recipe.toml", {"--memory.recompute=[\"activation\"]"}, o);
  const auto world = self_world();
  const ProfileReport r = profile_run(real_file_system(), profiled, o, *world);
  EXPECT_FALSE(std::filesystem::exists(folder_ / "run"));
  ASSERT_EQ(r.ranks.size(), 1u);
  ASSERT_EQ(r.steps(), 3) << "the warm-up is not kept";
  EXPECT_GT(r.peak_gflops(), 0);
  std::set<OpPass> passes;
  for (const StepSpan& step : r.ranks[0].steps) {
    EXPECT_EQ(step.phases.size(), 5u);
    double last = step.begin;
    for (const OpSpan& op : step.ops) {
      EXPECT_GE(op.begin, last);
      EXPECT_GE(op.end, op.begin);
      EXPECT_FALSE(op.segment.empty());
      const bool had_been =
          op.op == "head" && op.pass == OpPass::input_gradient;  // its products ran in forward
      EXPECT_TRUE(op.what != TimeOf::products || had_been || (op.flops > 0 && op.bytes > 0)) << op.op;
      last = op.end;
      passes.insert(op.pass);
    }
    EXPECT_LE(last, step.end);
  }
  EXPECT_EQ(passes.size(), 4u) << "forward, recompute, both gradients";
  EXPECT_GE(r.saves.bytes, 4 * r.parameters);
  EXPECT_EQ(r.saves.most, r.saves.bytes) << "of one rank";
  EXPECT_TRUE(r.saves.pause > 0 && r.saves.write > 0);
  expect_nested(json::parse(trace_json(r)));
}

TEST_F(ProfileRun, SeesRanksExchange) {
  set_kernel_policy(KernelPolicy::any);
  const ProfileOptions o{.steps = 2, .warm_up = 1};
  const ProfiledSteps profiled =
      profiled_steps(real_file_system(), folder_ / "recipe.toml",
                     {"--parallel.expert=2", "--phases.0.batch=8", "--phases.0.micro_batch=2"}, o);
  ProfileReport r;
  run_ranks(2, [&](ThreadRank& self) {
    ProfileReport mine = profile_run(real_file_system(), profiled, o, self);
    if (self.rank() == 0) r = std::move(mine);
  });
  ASSERT_EQ(r.ranks.size(), 2u);
  EXPECT_EQ(r.micro_batch, 2);
  for (const RankProfile& rank : r.ranks) {
    ASSERT_EQ(rank.steps.size(), 2u);
    const auto t = r.times(rank);
    EXPECT_GT(t[static_cast<size_t>(TimeOf::exchanges)], 0);
    double sum = 0;
    for (int w = 0; w < kTimesOf; ++w) {
      EXPECT_GE(t[static_cast<size_t>(w)], -1e-9) << name_of(static_cast<TimeOf>(w));
      sum += t[static_cast<size_t>(w)];
    }
    double steps = 0;
    for (const StepSpan& s : rank.steps) steps += s.end - s.begin;
    EXPECT_NEAR(sum, steps / 2, 1e-9);
  }
  double sent = 0;
  bool waits = false;
  for (const auto& [key, cell] : r.cells()) sent += cell.wire_bytes, waits |= key.op == "wait";
  EXPECT_GT(sent, 0);
  EXPECT_TRUE(waits);
  const json trace = json::parse(trace_json(r));
  expect_nested(trace);
  std::set<int> tracks;
  for (const json& e : trace["traceEvents"]) tracks.insert(e["tid"].get<int>());
  EXPECT_EQ(tracks, (std::set<int>{0, 1}));
}

/// Names, sizes and times of a folder's files.
std::string listing(const std::string& folder) {
  std::vector<std::string> lines;
  for (const auto& e : std::filesystem::recursive_directory_iterator(folder))
    lines.push_back(fmt::format("{} {} {}\n", e.path().string(), e.is_regular_file() ? e.file_size() : 0,
                                e.last_write_time().time_since_epoch().count()));
  std::sort(lines.begin(), lines.end());
  std::string text;
  for (const std::string& line : lines) text += line;
  return text;
}

TEST_F(ProfileRun, TakesARunWhereItStandsAndLeavesItAlone) {
  ASSERT_EQ(ingot({"run", folder_ / "recipe.toml"}).exit_code, 0);
  const std::string before = listing(folder_ / "run");
  const Recipe recipe = profiled_steps(real_file_system(), folder_ / "run", {}, {}).recipe;
  const Recipe whole = load_recipe(folder_ / "recipe.toml", {});
  ASSERT_EQ(recipe.phases.size(), 1u);
  EXPECT_EQ(recipe.phases[0].name, whole.phases.back().name);
  EXPECT_EQ(recipe.phases[0].sequence, whole.phases.back().sequence);
  EXPECT_EQ(recipe.run.start_from, folder_ / "run");
  const auto r = ingot({"profile", folder_ / "run", "--steps=2", "--warm-up=0", "--layers", "--trace",
                        folder_ / "trace.json", "--json", folder_ / "profile.json", "--scratch",
                        folder_.path(), "--stage", whole.phases[0].name, "--kernels=strict"});
  ASSERT_EQ(r.exit_code, 0) << r.output;
  EXPECT_EQ(listing(folder_ / "run"), before);
  for (const auto& e : std::filesystem::directory_iterator(folder_.path()))
    EXPECT_EQ(e.path().filename().string().find("ingot-profile"), std::string::npos) << "left behind";
  for (const char* text : {"time of a step", "data wait", "weight gradient", "grouped_linear", "segment",
                           "layer   1", "ui.perfetto.dev"})
    EXPECT_NE(r.output.find(text), std::string::npos) << text << "\n" << r.output;
  const json all = json::parse(read_text(folder_ / "profile.json"));
  EXPECT_EQ(all["format"], 1);
  EXPECT_EQ(all["steps"], 2);
  EXPECT_EQ(all["stage"], whole.phases[0].name);
  EXPECT_GT(all["cells"].size(), 20u);
  double times = 0, steps = 0;
  for (const auto& [name, seconds] : all["ranks"][0]["times"].items()) times += seconds.get<double>();
  for (const auto& s : all["ranks"][0]["step_seconds"]) steps += s.get<double>();
  EXPECT_NEAR(times, steps / 2, 1e-9);
  expect_nested(json::parse(read_text(folder_ / "trace.json")));
}

TEST_F(ProfileRun, RefusesWhatItCannotProfile) {
  const auto stage = ingot({"profile", folder_ / "recipe.toml", "--stage=no_such"});
  EXPECT_EQ(stage.exit_code, 1);
  EXPECT_NE(stage.output.find("its phases: "), std::string::npos) << stage.output;
  EXPECT_EQ(ingot({"profile", folder_ / "no_recipe.toml"}).exit_code, 1);
  EXPECT_EQ(ingot({"profile", folder_ / "recipe.toml", "--scratch", folder_ / "absent"}).exit_code, 1);
  EXPECT_EQ(ingot({"profile", folder_ / "recipe.toml", "--steps=0"}).exit_code, 2);
  EXPECT_EQ(ingot({"profile", folder_ / "recipe.toml", "--ranks=2", "--parallel.tensor=3"}).exit_code, 1);
}

}  // namespace ingot::test::profile_runs_test
