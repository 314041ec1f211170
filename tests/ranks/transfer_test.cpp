// Transfers on the tape: they begin in their op and are waited for where somebody reads; what can be computed meanwhile is.
#include <gtest/gtest.h>

#include <algorithm>

#include "comm/threads.h"
#include "support/layout_parity.h"

namespace ingot::test {
namespace {

/// Writes down when operations of a group begin and are waited for.
class Diary final : public Communicator {
 public:
  Diary(Communicator& group, std::vector<std::string>& lines) : Communicator(group.name(), group.rank(), group.size()), group_(group), lines_(lines) {}

 private:
  class Waiting final : public Pending::State {
   public:
    Waiting(Pending pending, std::vector<std::string>& lines, std::string what) : pending_(std::move(pending)), lines_(lines), what_(std::move(what)) {}
    void wait() override {
      pending_.wait();
      lines_.push_back("wait " + what_);
    }

   private:
    Pending pending_;
    std::vector<std::string>& lines_;
    std::string what_;
  };
  Pending start(CommRequest r) override {
    const std::string what = name_of(r.kind);
    lines_.push_back("start " + what);
    Pending p;
    switch (r.kind) {
      case CommKind::all_reduce: p = group_.all_reduce(r.in, r.out); break;
      case CommKind::all_gather: p = group_.all_gather(r.in, r.out); break;
      case CommKind::all_to_all: p = group_.all_to_all(r.in, r.in_rows, r.out, r.out_rows); break;
      default: INGOT_CHECK(false, "{}", r.str());
    }
    return Pending(std::make_unique<Waiting>(std::move(p), lines_, what));
  }
  Pending start_message(const Tensor&, int, bool) override { INGOT_CHECK(false, "no messages here"); return {}; }

  Communicator& group_;
  std::vector<std::string>& lines_;
};

/// ... and which ops run.
class Witness final : public TapeObserver {
 public:
  explicit Witness(std::vector<std::string>& lines) : lines_(lines) {}
  void tensor(const std::string& name, const Tensor&) override { lines_.push_back(name); }

 private:
  std::vector<std::string>& lines_;
};

/// The diary of one forward and backward pass of a model on rank 0 of two.
std::vector<std::string> diary_of(const std::string& model, const GridShape& shape) {
  const Grid grid(shape);
  std::vector<std::string> diaries[2];
  run_ranks(2, [&](ThreadRank& self) {
    std::vector<std::string>& lines = diaries[self.rank()];
    const RankGroups groups(grid, self.rank(), [&](std::string name, const std::vector<int>& members) {
      return self.group(std::move(name), members);
    });
    const Decoder decoder(small_model_config(model));
    WeightSet weights(decoder.table(), groups.placement(), Precision::f64());
    weights.initialize(5);
    GradientBuffer buffer(decoder.table(), groups.placement(), DType::f64);
    const data::Batch batch = packed_batch(1, 16, {16}, 61);
    const MicroBatch mb = micro_batch(batch, 0, 1);
    HeapArena arena;
    Witness witness(lines);
    Tape tape(arena, {.sink = &buffer, .observer = &witness});
    Context c{tape, weights, &mb.rows, tape.leaf(mb.positions)};
    groups.join(c);
    Diary tensor(groups.tensor(), lines), expert(groups.expert(), lines);
    c.tensor = &tensor, c.expert = &expert;
    buffer.begin_step();
    DecoderOutput out = decoder.forward(c, tape.leaf(mb.ids));
    const HeadResult h = decoder.head(c, {.mode = HeadMode::store}, out.hidden_TD, tape.leaf(mb.targets));
    std::vector<double> d(16, -1.0);
    tape.seed(h.logprob_T, Tensor::of(d.data(), {16}));
    out = {};
    Cursor(tape).run();
  });
  return diaries[0];
}

/// Whether a line that contains `inside` stands between one that is `begin` and the next that is `end`.
bool between(const std::vector<std::string>& lines, const std::string& begin, const std::string& inside, const std::string& end) {
  bool open = false, found = false;
  for (const std::string& line : lines) {
    if (line == begin) open = true, found = false;
    if (open && line.find(inside) != std::string::npos) found = true;
    if (line == end) {
      if (open && found) return true;
      open = false;
    }
  }
  return false;
}

TEST(Transfers, WeightGradientsFillTheTimeOfTensorRanks) {
  const auto lines = diary_of("llama", {.tp = 2});
  EXPECT_TRUE(between(lines, "start all_reduce", ".d_weight", "wait all_reduce"));
}

TEST(Transfers, TheSharedExpertRunsWhileTokensTravel) {
  const auto lines = diary_of("moe-shared", {.dp = 2, .ep = 2});
  const bool shared = std::any_of(lines.begin(), lines.end(), [](const std::string& l) { return l.find(".shared.") != std::string::npos; });
  ASSERT_TRUE(shared) << "the model has no shared expert";
  EXPECT_TRUE(between(lines, "start all_to_all", ".shared.", "wait all_to_all"));
}

}  // namespace
}  // namespace ingot::test
