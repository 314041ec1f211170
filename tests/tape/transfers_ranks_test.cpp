// Transfers on the tape begin in their op and are waited for where an op reads the result; other ops run
// meanwhile.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>

#include "comm/threads.h"
#include "ops/collective/collective.h"
#include "ops/linear/linear.h"
#include "ops/reference.h"
#include "support/layout_parity.h"
#include "tape/backward.h"

namespace ingot::test::transfers_ranks_test {

/// Writes down when operations of a group begin and are waited for, and when they are moved along.
class Diary final : public Communicator {
 public:
  Diary(Communicator& group, std::vector<std::string>& lines)
      : Communicator(group.name(), group.rank(), group.size()), group_(group), lines_(lines) {}
  void progress() override { lines_.push_back("progress"); }

 private:
  class Waiting final : public Pending::State {
   public:
    Waiting(Pending pending, std::vector<std::string>& lines, std::string what)
        : pending_(std::move(pending)), lines_(lines), what_(std::move(what)) {}
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
      case CommKind::all_reduce:
        p = group_.all_reduce(r.in, r.out);
        break;
      case CommKind::all_gather:
        p = group_.all_gather(r.in, r.out);
        break;
      case CommKind::all_to_all:
        p = group_.all_to_all(r.in, r.in_rows, r.out, r.out_rows);
        break;
      default:
        INGOT_CHECK(false, "{}", r.str());
    }
    return Pending(std::make_unique<Waiting>(std::move(p), lines_, what));
  }
  Pending start_message(const Tensor&, int, bool) override {
    INGOT_CHECK(false, "no messages here");
    return {};
  }

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
    Backward(tape).run();
  });
  return diaries[0];
}

/// Whether a line that contains `inside` stands between one that is `begin` and the next that is `end`.
bool between(const std::vector<std::string>& lines, const std::string& begin, const std::string& inside,
             const std::string& end) {
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
  const bool shared = std::any_of(lines.begin(), lines.end(), [](const std::string& l) {
    return l.find(".shared.") != std::string::npos;
  });
  ASSERT_TRUE(shared) << "the model has no shared expert";
  EXPECT_TRUE(between(lines, "start all_to_all", ".shared.", "wait all_to_all"));
}

/// What the kernel of twice_op did, on the thread that runs it.
thread_local std::vector<std::string>* twice_diary = nullptr;

/// y = 2 x in f64, by rows.
const Op& twice_op() {
  static const Kernel kernel{"test", [](const OpCall&) -> const char* { return nullptr; },
                             [](const OpCall& call) {
                               twice_diary->push_back(fmt::format("{} rows", call.in[0].dim(0)));
                               for (int64_t i = 0; i < call.in[0].numel(); ++i)
                                 call.out[0].as<double>()[i] = 2 * call.in[0].as<double>()[i];
                             },
                             nullptr, nullptr};
  static const Op op{"twice",
                     {{"x", InputKind::data}},
                     {{"y", false}},
                     [](const void*) { return BackwardReads{}; },
                     [](const OpCall& call, std::span<TensorMeta> out) { out[0] = call.in[0].meta; },
                     [](const OpCall&) { return OpCost{}; },
                     nullptr,
                     [](const void*) { return std::string(); },
                     {kernel},
                     false,
                     nullptr,
                     true};
  return op;
}

TEST(Transfers, AnOpByRowsBeginsWithOwnRows) {
  std::vector<std::string> diaries[3];
  run_ranks(3, [&](ThreadRank& self) {
    std::vector<std::string>& lines = *(twice_diary = &diaries[self.rank()]);
    const std::unique_ptr<Communicator> group = self.group("three", {0, 1, 2});
    Diary axis(*group, lines);
    HeapArena arena;
    Tape tape(arena, {.record = false});
    std::vector<double> x(static_cast<size_t>(2 * 2), 1 + self.rank());
    const Value all = all_gather_rows(tape, &axis, tape.leaf(Tensor::of(x.data(), {2, 2})));
    const Value y = tape.apply(twice_op(), 0, {all}).front();
    for (int64_t i = 0; i < 12; ++i)
      EXPECT_EQ(y.tensor().as<double>()[i], static_cast<double>(2 * (1 + i / 4))) << i;
    EXPECT_EQ(all.tensor().as<double>()[11], 3);
  });
  const std::string start = "start all_gather", wait = "wait all_gather";
  EXPECT_EQ(diaries[0], (std::vector<std::string>{start, "2 rows", wait, "4 rows"}));
  EXPECT_EQ(diaries[1], (std::vector<std::string>{start, "2 rows", wait, "2 rows", "2 rows"}));
  EXPECT_EQ(diaries[2], (std::vector<std::string>{start, "2 rows", wait, "4 rows"}));
}

TEST(Transfers, DataMoveAlongBeforeEveryOp) {
  std::vector<std::string> lines;
  twice_diary = &lines;
  const std::unique_ptr<Communicator> alone = self_communicator("one");
  Diary ranks(*alone, lines);
  HeapArena arena;
  Tape tape(arena, {.record = false, .ranks = &ranks});
  std::vector<double> x(4, 1);
  Value y = tape.leaf(Tensor::of(x.data(), {2, 2}));
  for (int i = 0; i < 2; ++i) y = tape.apply(twice_op(), 0, {y}).front();
  EXPECT_EQ(lines, (std::vector<std::string>{"progress", "2 rows", "progress", "2 rows"}));
}

TEST(Transfers, AProductThatBeganWithOwnRowsHasTheSameBits) {
  constexpr int64_t kRows = 5, kIn = 37, kOut = 29;
  for (const DType dtype : {DType::f32, DType::bf16, DType::f64}) {
    run_ranks(3, [&](ThreadRank& self) {
      const std::unique_ptr<Communicator> group = self.group("three", {0, 1, 2});
      HeapArena arena;
      Tape tape(arena, {.record = false});
      const Block memory = arena.allocate((3 * kRows * kIn + kOut * kIn + kOut) * size_of(dtype), "test");
      const Tensor rows(memory.data, {3 * kRows, kIn}, dtype);
      const Tensor weight(static_cast<char*>(memory.data) + rows.bytes(), {kOut, kIn}, dtype);
      const Tensor bias(static_cast<char*>(memory.data) + rows.bytes() + weight.bytes(), {kOut}, dtype);
      for (const Tensor& t : {rows, weight, bias}) {
        std::vector<double> values(static_cast<size_t>(t.numel()));
        for (size_t i = 0; i < values.size(); ++i) values[i] = std::sin(static_cast<double>(i * i + i));
        reference::store(t, values);
      }
      const Value w = tape.leaf(weight), b = tape.leaf(bias);
      const Value whole = linear(tape, dtype, tape.leaf(rows), w, b);
      const Value own = tape.leaf(rows.slice(self.rank() * kRows, (self.rank() + 1) * kRows));
      const Value parts = linear(tape, dtype, all_gather_rows(tape, group.get(), own), w, b);
      EXPECT_EQ(
          std::memcmp(whole.tensor().data, parts.tensor().data, static_cast<size_t>(whole.tensor().bytes())),
          0)
          << name_of(dtype);
      arena.release(memory);
    });
  }
}

}  // namespace ingot::test::transfers_ranks_test
